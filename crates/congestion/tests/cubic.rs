//! CUBIC against the formulas, the tables and the rules of RFC 9438.

use std::sync::Arc;

use ekiden_congestion::{Algorithm, CongestionControl, Cubic, CubicSettings, Tunables, Window, control};
use proptest::prelude::*;

/// These are about congestion avoidance; HyStart has tests of its own.
const NO_HYSTART: CubicSettings = CubicSettings { c: 400, beta: 700, fast_convergence: true, hystart: false };

/// The formulas of section 4 as they stand there, in floating point, in segments and seconds.
struct Reference {
    c: f64,
    beta: f64,
    fast_convergence: bool,
    cwnd: f64,
    srtt: Option<f64>,
    w_max: Option<f64>,
    cwnd_prior: f64,
    /// t_epoch, cwnd_epoch, W_est.
    epoch: Option<(f64, f64, f64)>,
}

impl Reference {
    fn new(settings: CubicSettings, cwnd: u32) -> Self {
        Self {
            c: f64::from(settings.c) / 1e3,
            beta: f64::from(settings.beta) / 1e3,
            fast_convergence: settings.fast_convergence,
            cwnd: cwnd.into(),
            srtt: None,
            w_max: None,
            cwnd_prior: cwnd.into(),
            epoch: None,
        }
    }

    fn k(&self, cwnd_epoch: f64) -> f64 {
        ((self.w_max.unwrap_or(cwnd_epoch) - cwnd_epoch) / self.c).max(0.0).cbrt()
    }

    fn w_cubic(&self, t: f64, cwnd_epoch: f64) -> f64 {
        self.c * (t - self.k(cwnd_epoch)).powi(3) + self.w_max.unwrap_or(cwnd_epoch).max(cwnd_epoch)
    }

    fn rtt(&mut self, rtt: f64) {
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| 0.875 * srtt + 0.125 * rtt));
    }

    /// Returns how far the window might be if what is as good as the same (W_cubic(t) and W_est, W_est and cwnd_prior)
    /// compared the other way, as it may with times in whole microseconds.
    fn ack(&mut self, now: f64, acked: f64) -> f64 {
        let (t_epoch, cwnd_epoch, mut w_est) = self.epoch.unwrap_or((now, self.cwnd, self.cwnd));
        let least = 3.0 * (1.0 - self.beta) / (1.0 + self.beta);
        let alpha = if w_est >= self.cwnd_prior { 1.0 } else { least };
        let crosses = (w_est - self.cwnd_prior).abs() <= 1e-6 * w_est;
        let either = if crosses { (1.0 - least).abs() * acked / self.cwnd } else { 0.0 };
        w_est += alpha * acked / self.cwnd;
        self.epoch = Some((t_epoch, cwnd_epoch, w_est));
        let t = now - t_epoch;
        let w_cubic = self.w_cubic(t, cwnd_epoch);
        let target = self.w_cubic(t + self.srtt.unwrap(), cwnd_epoch).clamp(self.cwnd, 1.5 * self.cwnd);
        let reno = self.cwnd.max(w_est);
        let cubic = self.cwnd + (target - self.cwnd) * (acked / self.cwnd).min(1.0);
        self.cwnd = if w_cubic < w_est { reno } else { cubic };
        let same = self.w_cubic(t + 2e-6, cwnd_epoch) - self.w_cubic(t - 2e-6, cwnd_epoch) + 1e-9 * w_cubic;
        if (w_cubic - w_est).abs() <= same { either + (reno - cubic).abs() } else { either }
    }

    fn loss(&mut self, cwnd: f64) -> f64 {
        let further = self.fast_convergence && self.w_max.is_some_and(|w_max| cwnd < w_max);
        self.w_max = Some(if further { cwnd * (1.0 + self.beta) / 2.0 } else { cwnd });
        self.cwnd_prior = cwnd;
        self.epoch = None;
        cwnd * self.beta
    }

    fn timeout(&mut self) {
        self.w_max = None;
    }
}

/// A sender that its window limits: `acks` acknowledgements a round trip, evenly spread.
struct Sender {
    cubic: Cubic,
    window: Window,
    now_us: u64,
}

impl Sender {
    fn new(settings: CubicSettings, cwnd: u32) -> Self {
        let window = Window { cwnd, ssthresh: 2, ..Window::default() };
        Self { cubic: Cubic::new(settings), window, now_us: 1_000_000 }
    }

    fn ack(&mut self, after_us: u64, rtt_us: u32, acked: u32) {
        self.now_us += after_us;
        self.cubic.on_rtt(&self.window, self.now_us, rtt_us);
        self.cubic.on_ack(&mut self.window, acked);
    }

    fn round(&mut self, rtt_us: u32, acks: u32) {
        let acked = self.window.cwnd.div_ceil(acks);
        for _ in 0..acks {
            self.ack(u64::from(rtt_us / acks), rtt_us, acked);
        }
    }

    fn loss(&mut self) {
        self.window.ssthresh = self.cubic.on_loss(self.window.cwnd);
        self.window.cwnd = self.window.ssthresh;
    }

    fn cwnd(&self) -> f64 {
        f64::from(self.window.cwnd) + f64::from(self.window.cwnd_cnt) / 2_f64.powi(32)
    }
}

fn settings() -> impl Strategy<Value = CubicSettings> {
    let anything = (1_u32..10_000, 300_u32..950, any::<bool>());
    let others =
        anything.prop_map(|(c, beta, fast_convergence)| CubicSettings { c, beta, fast_convergence, ..NO_HYSTART });
    prop_oneof![Just(NO_HYSTART), others]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The window keeps to the formulas within a hundredth of a segment and a millionth of the window, through losses and
    /// timeouts.
    #[test]
    fn windows_follow_the_formulas(
        settings in settings(), start in prop_oneof![10_u32..200, 10_u32..100_000], rtt_us in 1_000_u32..600_000,
        stages in prop::collection::vec((1_u32..60, prop::bool::weighted(0.2)), 1..6), acks in 1_u32..40,
        jitter in 0_u32..4, stretch in prop_oneof![4 => Just(1), 1 => Just(3)],
    ) {
        let mut sender = Sender::new(settings, start);
        let mut reference = Reference::new(settings, start);
        for (rounds, timeout) in stages {
            let expected = reference.loss(sender.window.cwnd.into());
            sender.loss();
            prop_assert!((f64::from(sender.window.ssthresh) - expected.max(2.0)).abs() < 1.0);
            if timeout {
                sender.cubic.on_timeout();
                reference.timeout();
            }
            // The engine brings the window to the whole segments of ssthresh; both go on from there.
            reference.cwnd = sender.cwnd();
            let mut either = 0.0;
            for round in 0..rounds {
                let rtt_us = rtt_us + round % 5 * jitter * rtt_us / 16;
                let acked = sender.window.cwnd.div_ceil(acks) * stretch;
                for _ in 0..acks {
                    sender.ack(u64::from(rtt_us / acks), rtt_us, acked);
                    reference.rtt(f64::from(rtt_us) / 1e6);
                    either += reference.ack(sender.now_us as f64 / 1e6, acked.into());
                    let (found, expected) = (sender.cwnd(), reference.cwnd);
                    prop_assert!(
                        (found - expected).abs() <= 0.01 + expected * 1e-6 + either,
                        "{found} instead of {expected} in round {round} of {rounds}"
                    );
                }
            }
        }
    }

    /// The window after t lies between W_cubic(t - RTT) and W_cubic(t + RTT), or is Reno's.
    #[test]
    fn windows_follow_the_curve(start in 10_u32..100_000, rtt_us in 1_000_u32..600_000, acks in 1_u32..10) {
        let settings = NO_HYSTART;
        let mut sender = Sender::new(settings, start);
        sender.loss();
        let (w_max, cwnd_epoch, rtt) = (f64::from(start), sender.cwnd(), f64::from(rtt_us) / 1e6);
        let k = ((w_max - cwnd_epoch) / 0.4).cbrt();
        let w_cubic = |t: f64| 0.4 * (t - k).powi(3) + w_max;
        let rounds = ((2.0 * k / rtt) as u32).clamp(1, 1_000);
        let step = f64::from(rtt_us / acks * acks) / 1e6;
        let mut reno = false;
        for round in 1..=rounds {
            sender.round(rtt_us, acks);
            let t = f64::from(round) * step;
            // A window that grows by a segment per round trip at most; acknowledgements are rounded up to whole segments.
            let most_reno = cwnd_epoch + f64::from(round) * (1.0 + f64::from(acks) / cwnd_epoch);
            reno |= w_cubic(t - rtt) < most_reno;
            let (least, most) = (w_cubic(t - rtt).max(cwnd_epoch), w_cubic(t + rtt).max(cwnd_epoch));
            prop_assert!(sender.cwnd() >= least - 1.0 || reno, "{} < {least}", sender.cwnd());
            prop_assert!(sender.cwnd() <= most.max(if reno { most_reno } else { 0.0 }) + 1.0, "{} > {most}", sender.cwnd());
        }
    }

    /// Whatever comes in: no overflow, no fall but by a loss, no growth beyond slow start's, nothing beyond the clamp.
    #[test]
    fn windows_stay_within_bounds(
        c in any::<u32>(), beta in any::<u32>(), fast_convergence in any::<bool>(), clamp in 1_u32..=u32::MAX,
        cwnd in prop_oneof![1_u32..100, any::<u32>()], ssthresh in prop_oneof![2_u32..100, any::<u32>()],
        events in prop::collection::vec((0_u32..16, any::<u64>(), any::<u32>(), any::<u32>()), 1..60),
    ) {
        let mut cubic = Cubic::new(CubicSettings { c, beta, fast_convergence, ..NO_HYSTART });
        let mut window = Window { cwnd: cwnd.min(clamp), ssthresh, clamp, ..Window::default() };
        for (kind, now_us, rtt_us, acked) in events {
            let before = window.cwnd;
            match kind {
                0 => {
                    window.ssthresh = cubic.on_loss(window.cwnd);
                    window.cwnd = window.ssthresh.min(clamp);
                    prop_assert!(window.ssthresh >= 2 && (window.ssthresh < before || before <= 2));
                }
                1 => {
                    window.ssthresh = cubic.on_loss(window.cwnd);
                    cubic.on_timeout();
                    window.cwnd = 1;
                }
                2..6 => prop_assert!(!cubic.on_rtt(&window, now_us, rtt_us)),
                6..10 => prop_assert!(!cubic.on_rtt(&window, now_us % 100_000_000, rtt_us % 1_000_000)),
                _ => {
                    cubic.on_ack(&mut window, acked);
                    prop_assert!(window.cwnd >= before && window.cwnd <= clamp);
                    let slow_start = u64::from(before) + u64::from(acked);
                    // W_est's alpha may exceed 1 if beta is below 0.5, and 3 never.
                    let reno = 3 * (u64::from(acked) / u64::from(before.max(1)) + 1);
                    prop_assert!(u64::from(window.cwnd) <= slow_start.max(u64::from(before) + reno));
                }
            }
        }
    }
}

/// The mean window of a connection that loses one in `every` segments, per round trip. Its first loss is at `start`.
fn mean_window(settings: CubicSettings, rtt_us: u32, every: u64, start: u32) -> f64 {
    let mut sender = Sender::new(settings, start);
    sender.loss();
    let (mut left, mut means) = (every as i64, Vec::new());
    for _ in 0..14 {
        let (begun, mut sent) = (sender.now_us, 0);
        while left > 0 {
            // At most 64 acknowledgements per round trip: enough to follow the curve.
            let acked = sender.window.cwnd.div_ceil(64);
            let after = f64::from(acked) / sender.cwnd() * f64::from(rtt_us);
            sender.ack(after.round() as u64, rtt_us, acked);
            left -= i64::from(acked);
            sent += u64::from(acked);
        }
        left += every as i64;
        sender.loss();
        means.push(sent as f64 * f64::from(rtt_us) / (sender.now_us - begun) as f64);
    }
    let settled = &means[6..];
    settled.iter().sum::<f64>() / settled.len() as f64
}

/// Loss rate 10^-n; Reno; CUBIC with C = 0.04, 0.4 and 4.
type Row = (u32, u32, [u32; 3]);

/// RTT 0.1 s.
const TABLE_1: [Row; 7] = [
    (2, 12, [12, 12, 12]),
    (3, 38, [38, 38, 59]),
    (4, 120, [120, 187, 333]),
    (5, 379, [593, 1_054, 1_874]),
    (6, 1_200, [3_332, 5_926, 10_538]),
    (7, 3_795, [18_740, 33_325, 59_261]),
    (8, 12_000, [105_383, 187_400, 333_250]),
];

/// RTT 0.01 s.
const TABLE_2: [Row; 7] = [
    (2, 12, [12, 12, 12]),
    (3, 38, [38, 38, 38]),
    (4, 120, [120, 120, 120]),
    (5, 379, [379, 379, 379]),
    (6, 1_200, [1_200, 1_200, 1_874]),
    (7, 3_795, [3_795, 5_926, 10_538]),
    (8, 12_000, [18_740, 33_325, 59_261]),
];

/// With 1/p segments from loss to loss, as in section 5 and appendix B. There the time between two losses is K, so the first loss
/// is at the W_max for which it is: the mean is 0.925 of that. From elsewhere the window comes there, but slowly: at K the
/// curve is flat, so W_max moves by the cube of the distance.
///
/// Tolerance: the tables have 1.2 / √p for Reno, where AIMD(0.53, 0.7) gives 1.22 (figure 4), and the larger of Reno and
/// CUBIC, where a window that is one in one part of the time and the other in another part comes to more than both.
#[test]
fn mean_windows_are_those_of_tables_1_and_2() {
    let mut wrong = Vec::new();
    for (table, rtt_us) in [(TABLE_1, 100_000), (TABLE_2, 10_000)] {
        for (exponent, reno, cubic) in table {
            for (c, expected) in [40, 400, 4_000].into_iter().zip(cubic) {
                // One flow alone, for which section 4.7 says so.
                let settings = CubicSettings { c, fast_convergence: false, ..NO_HYSTART };
                let start = (f64::from(expected) / 0.925).round() as u32;
                let mean = mean_window(settings, rtt_us, 10_u64.pow(exponent), start);
                let ratio = mean / f64::from(expected);
                println!("RTT {rtt_us}, p 1e-{exponent}, C {c}: {mean:.0} for {expected} ({reno}), {ratio:.3}");
                if !(0.96..1.07).contains(&ratio) {
                    wrong.push((rtt_us, exponent, c, mean, expected));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// With a small window and a short round trip the curve is flat and the window Reno's: alpha_cubic = 0.53 segments a
/// round trip up to cwnd_prior, then 1 (section 4.3).
#[test]
fn small_windows_grow_as_reno() {
    let mut sender = Sender::new(NO_HYSTART, 40);
    sender.loss();
    assert_eq!(sender.window.cwnd, 28);
    let mut seen = vec![sender.cwnd()];
    for _ in 0..60 {
        // Each segment by itself, and no more than the window in a round.
        for _ in 0..sender.window.cwnd {
            sender.ack(10_000 / u64::from(sender.window.cwnd), 10_000, 1);
        }
        seen.push(sender.cwnd());
    }
    for steps in seen.windows(2) {
        let rate = if steps[1] < 40.0 { 9.0 / 17.0 } else { 1.0 };
        let across = steps[0] < 40.0 && steps[1] >= 40.0;
        // The window's fraction is not sent, so a round is up to a segment short.
        assert!(across || (steps[1] - steps[0] - rate).abs() < 0.04, "{steps:?}");
    }
    assert!(seen[60] > 70.0, "{seen:?}");
}

#[test]
fn fast_convergence_gives_room() {
    let plateau = |fast_convergence: bool| {
        let mut sender = Sender::new(CubicSettings { fast_convergence, ..NO_HYSTART }, 10_000);
        sender.loss();
        // This time it only came to 8,000.
        sender.window.cwnd = 8_000;
        sender.loss();
        // K, and how far the window is then.
        let w_max = if fast_convergence { 8_000.0 * 0.85 } else { 8_000.0 };
        let k = ((w_max - 5_600.0) / 0.4_f64).cbrt();
        for _ in 0..(k / 0.1) as u32 {
            sender.round(100_000, 100);
        }
        (sender.cwnd(), w_max)
    };
    for fast_convergence in [true, false] {
        let (found, expected) = plateau(fast_convergence);
        assert!((found - expected).abs() < 5.0, "{found} instead of {expected}");
    }
}

/// Section 4.8: slow start to 0.7 of the window, then the curve from there with K = 0.
#[test]
fn after_a_timeout_the_curve_starts_flat() {
    let mut sender = Sender::new(NO_HYSTART, 10_000);
    sender.window.ssthresh = sender.cubic.on_loss(10_000);
    sender.cubic.on_timeout();
    sender.window.cwnd = 1;
    while sender.window.cwnd < 7_000 {
        sender.round(100_000, 1);
    }
    assert_eq!((sender.window.ssthresh, sender.window.cwnd), (7_000, 7_000));
    for _ in 0..100 {
        sender.round(100_000, 100);
    }
    let expected = 7_000.0 + 0.4 * 10_f64.powi(3);
    assert!((sender.cwnd() - expected).abs() < 15.0, "{} instead of {expected}", sender.cwnd());
}

/// Section 4.2: t leaves out the time in which the window did not limit the sender.
#[test]
fn idle_time_does_not_count() {
    let after = |idle_us: u64| {
        let mut sender = Sender::new(NO_HYSTART, 10_000);
        sender.loss();
        for round in 0..100 {
            if round == 50 {
                sender.now_us += idle_us;
            }
            sender.round(100_000, 100);
        }
        sender.cwnd()
    };
    // The pause itself counts as a round trip.
    assert!((after(3_600_000_000) - after(100_000)).abs() < 0.5, "{} {}", after(3_600_000_000), after(100_000));
}

/// After an idle time the engine may begin with a small window again (RFC 5681, section 4.1).
#[test]
fn slow_start_ends_the_stage() {
    let mut sender = Sender::new(NO_HYSTART, 100);
    sender.loss();
    for _ in 0..60 {
        sender.round(10_000, 10);
    }
    assert!(sender.window.cwnd > 95, "{}", sender.window.cwnd);
    (sender.window.cwnd, sender.window.ssthresh) = (10, 70);
    while sender.window.cwnd < 70 {
        sender.round(10_000, 10);
    }
    sender.round(10_000, 10);
    assert!(sender.window.cwnd < 73, "it goes on from there, but is {}", sender.window.cwnd);
}

#[test]
fn slow_start_stops_at_the_threshold() {
    let mut sender = Sender::new(NO_HYSTART, 10);
    sender.window.ssthresh = 35;
    sender.round(50_000, 1);
    assert_eq!(sender.window.cwnd, 20);
    sender.round(50_000, 1);
    assert_eq!(sender.window.cwnd, 35);
    sender.round(50_000, 1);
    assert_eq!(sender.window.cwnd, 36, "then as Reno");
}

#[test]
fn every_name_has_its_control() {
    let tunables = Arc::new(Tunables::default());
    let after = |name: &str| control(name, &tunables).map(|mut control| control.on_loss(10_000));
    assert_eq!(after("cubic"), Some(7_000));
    assert_eq!(after("reno"), Some(5_000));
    assert_eq!(after("ekiden_bic"), Some(8_750));
    for algorithm in Algorithm::LOADABLE {
        assert!(after(algorithm.name()).is_some());
    }
    assert_eq!(after("bic"), Some(7_998));
    assert_eq!(after("vegas"), None);
    assert_eq!(after(""), None);
}
