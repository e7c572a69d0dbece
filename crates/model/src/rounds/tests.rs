use super::*;

fn path(rate_mbit: f64, rtt_ms: f64, buffer_bdp: f64, loss: f64) -> Bottleneck {
    let rate = BitRate((rate_mbit * 1e6) as u64);
    let rtt = Time((rtt_ms * 1e6) as u64);
    let buffer = Bytes((buffer_bdp * Bytes::at(rate, rtt).0 as f64).max(15_000.0) as u64);
    Bottleneck { rtt, rate, mtu: 1500, buffer, loss, policer: None }
}

fn one(control: Sender) -> Senders {
    Senders { connections: 1, window: Bytes::mib(64), control }
}

/// The mean over seeds, in Mbit/s.
fn mean(path: &Bottleneck, senders: &Senders, seconds: u64) -> f64 {
    let seeds = 0..20;
    let count = seeds.end as f64;
    seeds.map(|seed| transfer(path, senders, Amount::Time(Time::secs(seconds)), seed).rate()).sum::<f64>() / count / 1e6
}

#[test]
fn what_the_lab_carried_over_random_paths() {
    // docs/measurements/fidelity.md, random paths: rate, round trip, queue in BDP, loss, control, and the median of the lab with its
    // least and greatest. A mean over twenty seeds lies between these, give or take a tenth.
    for (rate, rtt, bdp, loss, control, [low, median, high]) in [
        (9.3, 137.6, 1.58, 1e-4, Sender::Reno, [6.5, 8.4, 8.7]),
        (49.0, 29.0, 1.17, 0.0, Sender::Reno, [46.9, 47.0, 47.0]),
        (47.3, 164.7, 0.57, 1e-3, Sender::Reno, [3.2, 5.7, 7.3]),
        (123.2, 14.2, 1.75, 1e-3, Sender::Reno, [30.9, 33.4, 41.9]),
        (377.8, 22.2, 0.36, 1e-4, Sender::Reno, [65.2, 76.5, 83.3]),
        (24.6, 70.6, 1.57, 1e-4, Sender::Reno, [18.5, 20.4, 22.6]),
        (34.0, 180.2, 2.43, 0.0, Sender::Reno, [31.0, 31.0, 31.0]),
        (90.7, 84.8, 0.45, 1e-3, Sender::Cubic, [6.6, 10.4, 13.5]),
        (309.1, 225.2, 0.78, 1e-4, Sender::Reno, [24.3, 35.3, 58.4]),
        (20.2, 49.8, 2.18, 1e-3, Sender::Cubic, [8.8, 9.9, 12.4]),
        (75.3, 5.7, 0.39, 1e-4, Sender::Cubic, [66.5, 66.7, 67.0]),
        (106.8, 21.0, 2.18, 1e-3, Sender::Cubic, [19.9, 22.8, 28.2]),
        (7.4, 67.1, 0.26, 0.0, Sender::Cubic, [6.9, 6.9, 6.9]),
        (27.5, 87.9, 0.71, 1e-4, Sender::Cubic, [21.6, 24.3, 25.9]),
        (98.5, 9.7, 0.37, 0.0, Sender::Reno, [81.2, 81.2, 81.2]),
        (60.0, 144.7, 0.37, 1e-3, Sender::Cubic, [5.2, 8.9, 10.8]),
        (401.7, 47.9, 0.69, 1e-4, Sender::Reno, [47.1, 51.5, 69.9]),
    ] {
        let got = mean(&path(rate, rtt, bdp, loss), &one(control), 20);
        println!(
            "{rate} {rtt} {bdp} {loss} {control:?}: {got:.1}, lab {median} [{low}-{high}] {:+.1}%",
            100.0 * (got / median - 1.0)
        );
        assert!((0.9 * low..=1.1 * high).contains(&got), "{rate} Mbit/s, {rtt} ms: {got}, lab {low} to {high}");
    }
}
