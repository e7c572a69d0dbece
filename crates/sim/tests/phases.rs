//! Connections that share a full drop-tail queue fall into step where everything happens exactly on time (Floyd and Jacobson,
//! 1992: phase effects), and do not where links have jitter, or programs take a while to run, as under `linux`.

use ekiden_record::Kept;
use ekiden_scenario::{Scenario, Sweep};
use ekiden_sim::{Options, simulate};

/// HSTCP between proxies beside a direct Reno connection: S0, Figure 12.
const FIGURE_12: &str = include_str!("../../../scenarios/s0/fig12.toml");

/// What the relayed connection has, over what the direct one has, with one delay and another 0.5 % less.
fn shares(profile: &str, jitter: &str) -> Vec<f64> {
    let sets = [
        "link.internet.delay=21.4ms,21.5ms".to_owned(),
        format!("link.osaka_lan_a.jitter+link.osaka_lan_b.jitter+link.proxy_a_lan.jitter={jitter}"),
        format!("tcp.profile={profile}"),
        "node.osaka_b.tcp.send_buffer+node.tokyo_b.tcp.receive_buffer=1MiB".to_owned(),
    ];
    let points = Sweep::parse(&sets).unwrap().points();
    let share = |point| {
        let scenario = Scenario::parse_with(FIGURE_12, "fig12.toml", point).unwrap();
        let record = simulate(&scenario, &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap();
        record.flows[0].goodput_bit_s as f64 / record.flows[1].goodput_bit_s as f64
    };
    points.iter().map(share).collect()
}

#[test]
fn hstcp_takes_more_than_reno_whatever_the_phase_if_not_all_is_exactly_on_time() {
    let exact = shares("rfc", "0");
    assert!(exact[1] > 2.0 * exact[0], "{exact:?}: 0.5 % of the delay decides");
    for (profile, jitter) in [("rfc", "1ms"), ("linux", "0"), ("linux", "1ms")] {
        let shares = shares(profile, jitter);
        assert!(shares.iter().all(|share| *share > 1.2), "{profile}, {jitter}: {shares:?}");
    }
}
