//! What bounds `ekiden_far`'s window, whatever it is told of the path.

use std::sync::Arc;

use ekiden_congestion::{Algorithm, Before, CongestionControl, Native, RateSample, Tunables, Window};
use proptest::prelude::*;

/// The margin of far.h, and a segment that rounding takes.
const MARGIN: u64 = 11;

/// A path that answers each round trip with what was delivered, lost and measured.
struct Path {
    control: Native,
    window: Window,
    sample: RateSample,
    base_us: u64,
    /// The most that a round trip has carried at the highest rate, in segments: what is delivered in any round is no more.
    carried: u64,
}

impl Path {
    fn new() -> Self {
        let control = Native::new(Algorithm::Far, Arc::new(Tunables::default()));
        let sample = RateSample { now_us: 1_000_000, mss: 1448, ..RateSample::default() };
        let mut path = Self { control, window: Window::default(), sample, base_us: u64::from(u32::MAX), carried: 0 };
        path.round(1, 0, 1_000, false);
        path
    }

    /// A round in which so many segments arrive one by one; the losses are found with the first.
    fn round(&mut self, delivered: u32, lost: u32, rtt_us: u32, is_app_limited: bool) {
        let began = self.sample.delivered;
        let now_us = self.sample.now_us;
        self.base_us = self.base_us.min(u64::from(rtt_us));
        self.carried = self.carried.max(u64::from(delivered));
        self.sample.lost += u64::from(lost);
        for at in 1..=delivered {
            let before = if at == delivered { began } else { began.saturating_sub(1) };
            self.sample.now_us = now_us + u64::from(rtt_us) * u64::from(at) / u64::from(delivered);
            self.sample.delivered += 1;
            self.sample.delivered_now = 1;
            self.sample.was_in_flight = self.window.cwnd;
            self.sample.rtt_us = Some(rtt_us);
            self.sample.srtt_us = rtt_us;
            self.sample.before = Some(Before { delivered: before, interval_us: u64::from(rtt_us), is_app_limited });
            self.control.on_sample(&mut self.window, &self.sample);
            let bound = 4 * self.carried + MARGIN;
            assert!(u64::from(self.window.cwnd) <= bound, "{} of {bound}", self.window.cwnd);
        }
    }
}

proptest! {
    /// Losses, round trips and pauses as they come: the window follows from what was delivered.
    #[test]
    fn the_window_is_bounded_by_what_was_delivered(
        rounds in prop::collection::vec((1u32..300, 0u32..3_000, 1_000u32..200_000, any::<bool>(), 0u8..40), 1..120),
    ) {
        let mut path = Path::new();
        for (delivered, lost, rtt_us, is_app_limited, event) in rounds {
            path.round(delivered, lost, rtt_us, is_app_limited);
            match event {
                0 => path.control.on_timeout(),
                1 => { path.control.undo(); }
                _ => {}
            }
        }
    }
}

/// A path that carries 100 segments a round trip and loses all else: twice that once the startup is over.
#[test]
fn losses_beyond_what_the_path_carries_are_not_learnt() {
    let mut path = Path::new();
    for round in 0..2_000 {
        let sent = path.window.cwnd.max(4);
        path.round(sent.min(100), sent.saturating_sub(100), 80_000, false);
        assert!(round < 20 || path.window.cwnd < 130, "{} in round {round}", path.window.cwnd);
    }
    assert!(path.window.cwnd >= 80);
}

/// The losses that a timeout marks are not a policer's: the window doubles from four.
#[test]
fn a_timeouts_own_losses_do_not_end_the_startup() {
    let mut path = Path::new();
    for _ in 0..30 {
        let sent = path.window.cwnd.max(4);
        path.round(sent.min(200), sent.saturating_sub(200), 80_000, false);
    }
    path.control.on_timeout();
    path.sample.lost += 200;
    path.window.cwnd = 4;
    path.round(2, 0, 80_000, false);
    assert!(path.window.cwnd <= 8, "{} after the first ACKs", path.window.cwnd);
    for _ in 0..10 {
        let sent = path.window.cwnd;
        path.round(sent.min(200), 0, 80_000, false);
    }
    assert!(path.window.cwnd > 40, "{}", path.window.cwnd);
}
