//! What bounds `ekiden_far`'s window, whatever it is told of the path.

use std::sync::Arc;

use ekiden_congestion::{Algorithm, Before, CongestionControl, Native, PathMemory, RateSample, Tunables, Window};
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
    memory: PathMemory,
}

impl Path {
    fn new() -> Self {
        Self::new_at(1_000)
    }

    /// The least round trip is known.
    fn new_at(base_us: u32) -> Self {
        let mut path = Self::untried();
        path.round(1, 0, base_us, false);
        path
    }

    fn untried() -> Self {
        let control = Native::new(Algorithm::Far, Arc::new(Tunables::default()));
        let sample = RateSample { now_us: 1_000_000, mss: 1448, ..RateSample::default() };
        let (base_us, memory) = (u64::from(u32::MAX), PathMemory::default());
        let mut path = Self { control, window: Window::default(), sample, base_us, carried: 0, memory };
        path.control.remember(&path.memory);
        path
    }

    /// The connection ends, and another one begins after so long.
    fn again(&mut self, after_us: u64) {
        self.control.on_end();
        self.control = Native::new(Algorithm::Far, Arc::new(Tunables::default()));
        self.control.remember(&self.memory);
        self.window = Window::default();
        self.sample = RateSample { now_us: self.sample.now_us + after_us, mss: 1448, ..RateSample::default() };
    }

    /// The first ten segments of a connection arrive as fast as the path of [`Path::fills`] carries them.
    fn first_ten(&mut self) {
        self.train(10, 0, (80_000, 2_000), false);
    }

    /// Rounds of 80 ms over a path that carries 400 segments in each.
    fn fills(&mut self, rounds: u32) {
        for _ in 0..rounds {
            let sent = self.window.cwnd.max(4);
            self.round(sent.min(400), sent.saturating_sub(400), 80_000, false);
        }
    }

    /// A round in which so many segments arrive one by one; the losses are found with the first.
    fn round(&mut self, delivered: u32, lost: u32, rtt_us: u32, is_app_limited: bool) {
        self.train(delivered, lost, (rtt_us, rtt_us), is_app_limited);
    }

    /// The same, where they arrive within `span_us` after a round trip.
    fn train(&mut self, delivered: u32, lost: u32, (rtt_us, span_us): (u32, u32), is_app_limited: bool) {
        let began = self.sample.delivered;
        let now_us = self.sample.now_us;
        self.base_us = self.base_us.min(u64::from(rtt_us));
        self.carried = self.carried.max(u64::from(delivered));
        self.sample.lost += u64::from(lost);
        for at in 1..=delivered {
            let before = if at == delivered { began } else { began.saturating_sub(1) };
            let late_us = u64::from(span_us) * u64::from(at) / u64::from(delivered);
            self.sample.now_us = now_us + u64::from(rtt_us - span_us) + late_us;
            self.sample.delivered += 1;
            self.sample.delivered_now = 1;
            self.sample.was_in_flight = self.window.cwnd;
            self.sample.rtt_us = Some(rtt_us);
            self.sample.srtt_us = rtt_us;
            self.sample.before =
                Some(Before { delivered: before, interval_us: u64::from(rtt_us), is_app_limited, ..Before::default() });
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
                2 => path.again(1_000_000),
                3 => { path.control.on_idle(&mut path.window, 31_000_000); }
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
        assert!(round < 20 || path.window.cwnd < 140, "{} in round {round}", path.window.cwnd);
    }
    assert!(path.window.cwnd >= 80);
}

/// Hosts that are late by most of a millisecond look like a short queue.
#[test]
fn chance_that_was_taken_for_an_overflow_is_learnt_all_the_same() {
    let mut path = Path::new_at(100_000);
    let carries = |path: &mut Path, part| {
        let sent = path.window.cwnd.clamp(4, 400);
        let lost = sent * part / 100;
        path.round(sent - lost, lost, 100_800, false);
    };
    (0..20).for_each(|_| carries(&mut path, 0));
    (0..2).for_each(|_| carries(&mut path, 10));
    (0..600).for_each(|_| carries(&mut path, 2));
    assert!(path.window.cwnd > 300, "{}", path.window.cwnd);
}

#[test]
fn round_trips_below_a_millisecond_are_not_paced() {
    for (rtt_us, is_paced) in [(200, false), (999, false), (1_000, true), (80_000, true)] {
        let mut path = Path::untried();
        (0..5).for_each(|_| path.round(10, 0, rtt_us, false));
        // A tenth of a microsecond for each segment is no pace.
        assert_eq!(path.control.pacing_rate().unwrap() < 1e7, is_paced, "{rtt_us}");
    }
}

/// The first ten segments leave at once, and so do their acknowledgements arrive: the last of them finds little in flight.
#[test]
fn the_first_ten_segments_double_the_window() {
    let mut path = Path::untried();
    path.sample.now_us += 80_000;
    for at in 0..5 {
        path.sample.delivered += 2;
        path.sample.delivered_now = 2;
        path.sample.was_in_flight = 10 - 2 * at;
        path.sample.rtt_us = Some(80_000);
        path.sample.srtt_us = 80_000;
        path.sample.before = Some(Before { delivered: 0, interval_us: 80_000, ..Before::default() });
        path.control.on_sample(&mut path.window, &path.sample);
    }
    assert_eq!(path.window.cwnd, 20);
}

/// The losses that a timeout marks are not a policer's: the window doubles from four.
#[test]
fn a_timeouts_own_losses_do_not_end_the_startup() {
    let mut path = Path::untried();
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

/// A connection begins with ten segments, and with half of what the path carried when these have arrived: a new one, and one that has
/// paused for long.
#[test]
fn what_a_path_carried_is_where_the_next_connection_begins() {
    let known = || {
        let mut path = Path::untried();
        path.fills(100);
        path
    };
    let begins = |path: &mut Path| {
        path.first_ten();
        path.window.cwnd
    };
    let mut path = known();
    path.again(1_000_000);
    assert!((150..=220).contains(&begins(&mut path)), "{}", path.window.cwnd);

    let mut path = known();
    path.control.on_idle(&mut path.window, 31_000_000);
    path.sample.now_us += 31_000_000;
    assert_eq!(path.window.cwnd, 10, "after a pause");
    assert!((150..=220).contains(&begins(&mut path)), "after a pause: {}", path.window.cwnd);

    // After ten minutes it is an unknown path, and so is one whose first segments are lost, or come later.
    let mut path = known();
    path.again(601_000_000);
    assert!(begins(&mut path) <= 20, "{}", path.window.cwnd);
    for (lost, rtt_us, most) in [(0, 80_000, 220), (2, 80_000, 20), (0, 120_000, 20), (0, 30_000, 20)] {
        let mut path = known();
        path.again(1_000_000);
        path.train(3, 0, (rtt_us, 600), false);
        // The rest of the same train.
        path.sample.now_us -= u64::from(rtt_us - 1_400);
        path.train(7, lost, (rtt_us, 1_400), false);
        assert!((most / 2..=most).contains(&path.window.cwnd), "{lost} lost, {rtt_us} us: {}", path.window.cwnd);
    }
}

/// What was sent after the jump is lost: the window falls to what has arrived, and the next connection begins as on an unknown path.
#[test]
fn a_path_that_does_not_carry_it_any_more_is_forgotten() {
    let mut path = Path::untried();
    path.fills(100);
    path.again(1_000_000);
    path.first_ten();
    let jump = path.window.cwnd;
    assert!(jump >= 150, "{jump}");
    path.round(4, 0, 80_000, false);
    path.round(40, jump - 40, 80_000, false);
    assert!(path.window.cwnd <= 60, "{}", path.window.cwnd);
    path.again(1_000_000);
    path.first_ten();
    assert!(path.window.cwnd <= 20, "{}", path.window.cwnd);
}

/// Flights that are acknowledged as a whole, and too short to tell anything of the path: the window grows all the same.
#[test]
fn short_flights_on_a_known_path_do_not_hold_the_window() {
    let mut path = Path::untried();
    path.fills(100);
    path.again(1_000_000);
    for _ in 0..20 {
        path.control.on_idle(&mut path.window, 300_000);
        path.train(4, 0, (80_000, 800), false);
    }
    assert!(path.window.cwnd > 12, "{}", path.window.cwnd);
}

/// A path that carries 400 segments in a round trip, and is known, and a connection that has jumped.
fn jumped() -> Path {
    let mut path = Path::untried();
    path.fills(100);
    path.again(1_000_000);
    path.first_ten();
    assert!((150..=220).contains(&path.window.cwnd), "{}", path.window.cwnd);
    path
}

/// So is one that times out, and what is not confirmed any more is no window to come back to.
#[test]
fn a_jump_that_times_out_is_forgotten() {
    let mut path = jumped();
    path.control.on_timeout();
    path.window.cwnd = 4;
    path.sample.lost += 100;
    path.train(2, 0, (80_000, 400), false);
    path.control.undo();
    assert!(path.window.cwnd <= 12, "{}", path.window.cwnd);
    path.again(1_000_000);
    path.first_ten();
    assert!(path.window.cwnd <= 20, "{}", path.window.cwnd);
}

/// A recovery that was none changes nothing: the kernel undoes those too.
#[test]
fn an_undone_recovery_leaves_a_jump_as_it_is() {
    let mut path = jumped();
    let jump = path.window.cwnd;
    path.control.undo();
    path.train(2, 0, (80_000, 400), false);
    assert!(path.window.cwnd <= jump + 4, "{} after {jump}", path.window.cwnd);
}

/// The first acknowledgement covers nine of ten segments, and says that one is lost.
#[test]
fn a_loss_in_the_first_acknowledgement_means_an_unknown_path() {
    let mut path = Path::untried();
    path.fills(100);
    path.again(1_000_000);
    (path.sample.lost, path.sample.lost_now) = (1, 1);
    (path.sample.delivered, path.sample.delivered_now, path.sample.was_in_flight) = (9, 9, 10);
    (path.sample.rtt_us, path.sample.srtt_us) = (Some(80_000), 80_000);
    path.sample.before = Some(Before { delivered: 0, interval_us: 80_000, is_app_limited: false, ..Before::default() });
    path.control.on_sample(&mut path.window, &path.sample);
    assert!(path.window.cwnd <= 20, "{}", path.window.cwnd);
}

/// Connections that begin at the same time do not all jump.
#[test]
fn what_one_connection_begins_with_is_no_room_for_another() {
    let mut path = jumped();
    let mut other = Native::new(Algorithm::Far, Arc::new(Tunables::default()));
    other.remember(&path.memory);
    std::mem::swap(&mut other, &mut path.control);
    (path.window, path.sample.delivered, path.sample.before) = (Window::default(), 0, None);
    path.sample.now_us -= 70_000;
    path.first_ten();
    assert!(path.window.cwnd <= 20, "{}", path.window.cwnd);
}

/// One of many connections had a small part, or a receiver took little: whoever comes after them is not slower for it.
#[test]
fn a_small_part_of_a_path_does_not_end_the_startup() {
    for part in [4, 60] {
        let mut path = Path::untried();
        for _ in 0..100 {
            let sent = path.window.cwnd.max(4);
            path.round(sent.min(part), sent.saturating_sub(part), 80_000, false);
        }
        path.again(1_000_000);
        path.first_ten();
        assert!(path.window.cwnd >= 10, "{part}: {}", path.window.cwnd);
        path.fills(5);
        assert!(path.window.cwnd >= 300, "{part}: {}", path.window.cwnd);
    }
}
