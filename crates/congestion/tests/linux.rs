//! The controls of Linux that the simulator imitates.

use ekiden_congestion::{CongestionControl, Cubic, CubicSettings, LinuxCubic, Window};

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
