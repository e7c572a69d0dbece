//! The controls of Linux that the simulator imitates.

use ekiden_congestion::{CongestionControl, Cubic, CubicSettings, LinuxBic, LinuxCubic, Window};

/// A sender that its window limits, every segment acknowledged by itself.
struct Sender<C> {
    control: C,
    window: Window,
    now_us: u64,
}

impl<C: CongestionControl> Sender<C> {
    /// In congestion avoidance.
    fn new(control: C, cwnd: u32) -> Self {
        Self { control, window: Window { cwnd, ssthresh: 2, ..Window::default() }, now_us: 1_000_000 }
    }

    fn round(&mut self, rtt_us: u32) {
        let cwnd = self.window.cwnd;
        for _ in 0..cwnd {
            self.now_us += u64::from(rtt_us / cwnd);
            self.control.on_rtt(&self.window, self.now_us, rtt_us);
            self.control.on_ack(&mut self.window, 1);
        }
    }

    fn loss(&mut self) {
        self.window.ssthresh = self.control.on_loss(self.window.cwnd);
        self.window.cwnd = self.window.ssthresh;
        self.window.cwnd_cnt = 0;
    }

    /// Segments by which the window grows in so many round trips.
    fn grown(&mut self, rounds: u32, rtt_us: u32) -> f64 {
        let before = self.window.cwnd;
        (0..rounds).for_each(|_| self.round(rtt_us));
        f64::from(self.window.cwnd) - f64::from(before)
    }
}

/// 8 (1024 + 717) / 3 / (1024 - 717), in whole numbers, is 15 eighths of a window for a segment of W_est.
#[test]
fn cubic_grows_by_8_15ths_of_a_segment_per_round_trip_below_and_above_its_last_window() {
    let mut sender = Sender::new(LinuxCubic::default(), 40);
    sender.loss();
    assert_eq!(sender.window.cwnd, 28, "717 / 1024");
    let (below, above) = (sender.grown(20, 10_000), sender.grown(60, 10_000));
    // W_est begins with the window, and the window follows it.
    assert!((0.4..0.55).contains(&(below / 20.0)), "{below} in 20 round trips");
    assert!(sender.window.cwnd > 60 && (above / 60.0 - 8.0 / 15.0).abs() < 0.04, "{above} in 60 round trips");
}

/// Where the curve decides, and not Reno, it is the RFC's.
#[test]
fn cubic_follows_the_curve_of_rfc_9438_where_windows_are_large() {
    let mut linux = Sender::new(LinuxCubic::default(), 5_000);
    let mut rfc = Sender::new(Cubic::new(CubicSettings { hystart: false, ..CubicSettings::default() }), 5_000);
    linux.loss();
    rfc.loss();
    // K = (1500 / 0.4)^(1/3) = 15.5 s.
    for round in 0..250 {
        linux.round(100_000);
        rfc.round(100_000);
        let (found, expected) = (f64::from(linux.window.cwnd), f64::from(rfc.window.cwnd));
        assert!((found / expected - 1.0).abs() < 0.01, "{found} instead of {expected} in round {round}");
    }
    assert!(rfc.window.cwnd > 5_200, "{}", rfc.window.cwnd);
}

#[test]
fn cubic_grows_by_5_percent_per_round_trip_before_its_first_loss() {
    let mut sender = Sender::new(LinuxCubic::default(), 1_000);
    let grown = sender.grown(10, 50_000);
    assert!((1_000.0 * (1.05_f64.powi(10) - 1.0) / grown - 1.0).abs() < 0.05, "{grown}");
}

/// How much faster BIC grows for its smoothed number of segments per acknowledgement, which stays at 31/16 when it is 1.
const RATIO: f64 = 31.0 / 16.0;

/// A BIC that lost at 1,000 segments and has this window, after a round trip in which the ratio settles.
fn bic_at(cwnd: u32) -> Sender<LinuxBic> {
    let mut sender = Sender::new(LinuxBic::default(), 1_000);
    sender.loss();
    assert_eq!(sender.window.cwnd, 799, "819 / 1024");
    sender.round(200_000);
    (sender.window.cwnd, sender.window.cwnd_cnt) = (cwnd, 0);
    sender
}

#[test]
fn bic_grows_by_16_segments_far_below_the_last_maximum() {
    let grown = bic_at(800).grown(3, 200_000) / 3.0;
    assert!((grown / (16.0 * RATIO) - 1.0).abs() < 0.1, "{grown} segments per round trip");
}

/// From 960 a quarter of 40, and not half, less what is gone while the round trip lasts.
#[test]
fn bic_searches_by_quarters() {
    let grown = bic_at(960).grown(1, 200_000);
    let expected = 40.0 * (1.0 - (-RATIO / 4.0_f64).exp());
    assert!((grown / expected - 1.0).abs() < 0.15, "{grown} segments, not {expected}");
}

#[test]
fn bic_takes_five_round_trips_per_segment_around_the_maximum() {
    let grown = bic_at(994).grown(20, 200_000);
    assert!((grown - 20.0 / 5.0 * RATIO).abs() <= 1.0, "{grown} segments in 20 round trips");
}

#[test]
fn bic_grows_by_a_third_of_the_distance_beyond_the_maximum_and_by_16_at_most() {
    let near = bic_at(1_012).grown(1, 200_000);
    let expected = 12.0 * ((RATIO / 3.0).exp() - 1.0);
    assert!((near / expected - 1.0).abs() < 0.2, "{near} segments, not {expected}");
    let far = bic_at(1_100).grown(3, 200_000) / 3.0;
    assert!((far / (16.0 * RATIO) - 1.0).abs() < 0.1, "{far} segments per round trip");
}

/// "Low utilisation": before a loss, and after a timeout again.
#[test]
fn bic_grows_by_5_percent_per_round_trip_while_it_knows_no_maximum() {
    let mut sender = Sender::new(LinuxBic::default(), 1_000);
    let expected = 1_000.0 * ((RATIO / 20.0 * 5.0).exp() - 1.0);
    for when in ["new", "after a timeout"] {
        let grown = sender.grown(5, 200_000);
        assert!((grown / expected - 1.0).abs() < 0.15, "{grown} segments, not {expected}: {when}");
        sender.window.ssthresh = sender.control.on_loss(sender.window.cwnd);
        sender.control.on_timeout();
        (sender.window.cwnd, sender.window.ssthresh, sender.window.cwnd_cnt) = (1_000, 2, 0);
    }
}

#[test]
fn bic_is_reno_up_to_14_segments() {
    let mut sender = Sender::new(LinuxBic::default(), 10);
    assert_eq!(sender.grown(4, 200_000), 4.0);
    assert_eq!(sender.control.on_loss(14), 7);
    assert_eq!(sender.control.on_loss(15), 11);
}

/// A window that stands for several short round trips keeps the growth it had: here that before a loss, ten segments each.
#[test]
fn bic_looks_32_times_a_second_while_the_window_stands() {
    let after = |pause_us: u64| {
        let mut sender = Sender::new(LinuxBic::default(), 1_000);
        sender.control.on_rtt(&sender.window, sender.now_us, 1_000);
        sender.control.on_ack(&mut sender.window, 1);
        // Four segments below the maximum it would be 2,580.
        sender.control.on_loss(1_004);
        sender.control.on_rtt(&sender.window, sender.now_us + pause_us, 1_000);
        sender.control.on_ack(&mut sender.window, 200);
        sender.window.cwnd - 1_000
    };
    assert!(after(1_000) >= 15 && after(40_000) <= 1, "{} {}", after(1_000), after(40_000));
}

/// Delayed acknowledgements are counted out: two segments each, and half as many are asked for per segment of growth.
#[test]
fn bic_divides_by_the_segments_per_acknowledgement() {
    let mut sender = bic_at(800);
    for _ in 0..400 {
        sender.now_us += 500;
        sender.control.on_rtt(&sender.window, sender.now_us, 200_000);
        sender.control.on_ack(&mut sender.window, 2);
    }
    let grown = f64::from(sender.window.cwnd - 800);
    assert!((grown / 32.0 - 1.0).abs() < 0.1, "{grown}");
}
