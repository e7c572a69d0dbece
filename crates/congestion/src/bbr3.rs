//! BBRv3 (draft-ietf-ccwg-bbr-04 and -05, and Linux's version 3 where they are silent). Sections are the draft's.
//!
//! It models the path by the greatest delivery rate of two cycles and the least round trip of ten seconds, as BBR does, and
//! by a bound on what may be in flight: a probe that loses more than 2 % sets the bound for a long time, and losses of any
//! other round set it until the next probe.
//!
//! Left out: ECN, which the draft leaves open; restoring the model after a loss that turns out to be none (section 5.5.11);
//! and the conservation of packets during recovery, which the draft leaves to the transport.

mod bounds;
mod cycle;

use crate::linux::{Aggregation, segments_us};
use crate::sample::{LostSegment, RateSample, Repair};
use crate::{CongestionControl, Window};

/// Chapter 2, and section 5.6.1.
const STARTUP_GAIN: f64 = 2.77;
const DRAIN_GAIN: f64 = 0.5;
const DOWN_GAIN: f64 = 0.9;
const UP_GAIN: f64 = 1.25;
const WINDOW_GAIN: f64 = 2.0;
const UP_WINDOW_GAIN: f64 = 2.25;
const PROBE_RTT_WINDOW_GAIN: f64 = 0.5;
const PACING_MARGIN: f64 = 0.01;
const LOSS_MOST: f64 = 0.02;
const BETA: f64 = 0.7;
const HEADROOM: f64 = 0.15;
const WINDOW_LEAST: f64 = 4.0;
const INITIAL_WINDOW: f64 = 10.0;
/// The number of round trips in which the rate grew by less than a quarter, after which the pipe is full.
const FULL_ROUNDS: u32 = 3;
/// The number of acknowledgements of a round trip that report losses, from which on Startup ends.
const STARTUP_LOSSES: u32 = 6;
const LEAST_RTT_HOLDS_US: u64 = 10_000_000;
const PROBE_RTT_EVERY_US: u64 = 5_000_000;
const PROBE_RTT_US: u64 = 200_000;
/// The maximum number of round trips in Drain.
const DRAIN_ROUNDS: u64 = 3;

/// Sections 5.3.1 to 5.3.4. `Down` to `Up` are those of ProbeBW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    fn probes_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Pacing and window (section 5.6.1).
    fn gains(self) -> (f64, f64) {
        match self {
            Self::Startup => (STARTUP_GAIN, WINDOW_GAIN),
            Self::Drain => (DRAIN_GAIN, WINDOW_GAIN),
            Self::Down => (DOWN_GAIN, WINDOW_GAIN),
            Self::Cruise | Self::Refill => (1.0, WINDOW_GAIN),
            Self::Up => (UP_GAIN, UP_WINDOW_GAIN),
            Self::ProbeRtt => (1.0, PROBE_RTT_WINDOW_GAIN),
        }
    }
}

/// What acknowledgements report on (section 5.3.3.6: BBR.ack_phase).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckPhase {
    Other,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
    Refilling,
}

/// What the newest segment of an acknowledgement shows (section 2.2). Rates are segments a second.
#[derive(Debug, Clone, Copy, Default)]
struct Sampled {
    rate: f64,
    delivered: f64,
    delivered_before: u64,
    /// In flight when it was sent.
    in_flight: f64,
    /// Lost since then.
    lost: f64,
    is_app_limited: bool,
    newly_acked: f64,
}

/// One connection's BBRv3.
#[derive(Debug, Clone)]
pub struct Bbr3 {
    state: State,
    /// Round trips, counted by what was delivered when the segment of a sample was sent.
    rounds: u64,
    next_round: u64,
    begins_round: bool,
    rounds_since_probe: u64,
    /// In this round trip so far, or in the one before.
    is_window_limited: bool,
    was_window_limited: bool,
    drain_at_round: u64,
    sampled: Sampled,
    /// The greatest rates of the last cycle and of this one (BBR.max_bw_filter).
    rates: [f64; 2],
    /// BBR.bw_shortterm, BBR.inflight_shortterm, BBR.inflight_longterm; infinite: no bound.
    rate_bound: f64,
    short_bound: f64,
    long_bound: f64,
    /// BBR.bw_latest, BBR.inflight_latest.
    latest_rate: f64,
    latest_delivered: f64,
    loss_round_delivered: u64,
    loss_round_begins: bool,
    loss_in_round: bool,
    /// Acknowledgements of this round trip that reported losses.
    losing: u32,
    full_rate: f64,
    full_rounds: u32,
    is_full_now: bool,
    is_full: bool,
    least_rtt_us: u64,
    least_rtt_at: u64,
    /// The least of the last [`PROBE_RTT_EVERY_US`].
    recent_rtt_us: u64,
    recent_rtt_at: u64,
    probe_rtt_is_due: bool,
    probe_rtt_until: Option<u64>,
    probe_rtt_round_done: bool,
    /// Segments sent while the number of delivered segments was in this range say nothing about the path: the round trip was
    /// probed.
    probed: std::ops::Range<u64>,
    restarts: bool,
    ack_phase: AckPhase,
    /// Whether this probe is still to be judged by its losses (BBR.bw_probe_samples).
    is_judged: bool,
    probe_up_rounds: u32,
    probe_up_acks: f64,
    probe_up_count: f64,
    cycle_at: u64,
    probe_wait_us: u64,
    aggregation: Aggregation,
    delivered: u64,
    in_flight: f64,
    window: f64,
    window_before: f64,
    repair: Repair,
    /// Segments a second.
    pacing: f64,
    has_seen_rtt: bool,
    mss: f64,
    random: u32,
    now_us: u64,
}

impl Default for Bbr3 {
    fn default() -> Self {
        Self {
            state: State::Startup,
            rounds: 0,
            next_round: 0,
            begins_round: false,
            rounds_since_probe: 0,
            is_window_limited: false,
            was_window_limited: false,
            drain_at_round: 0,
            sampled: Sampled::default(),
            rates: [0.0; 2],
            rate_bound: f64::INFINITY,
            short_bound: f64::INFINITY,
            long_bound: f64::INFINITY,
            latest_rate: 0.0,
            latest_delivered: 0.0,
            loss_round_delivered: 0,
            loss_round_begins: false,
            loss_in_round: false,
            losing: 0,
            full_rate: 0.0,
            full_rounds: 0,
            is_full_now: false,
            is_full: false,
            least_rtt_us: u64::MAX,
            least_rtt_at: 0,
            recent_rtt_us: u64::MAX,
            recent_rtt_at: 0,
            probe_rtt_is_due: false,
            probe_rtt_until: None,
            probe_rtt_round_done: false,
            probed: 0..0,
            restarts: false,
            ack_phase: AckPhase::Other,
            is_judged: false,
            probe_up_rounds: 0,
            probe_up_acks: 0.0,
            probe_up_count: f64::INFINITY,
            cycle_at: 0,
            probe_wait_us: 0,
            aggregation: Aggregation::default(),
            delivered: 0,
            in_flight: 0.0,
            window: INITIAL_WINDOW,
            window_before: 0.0,
            repair: Repair::Open,
            // As if a millisecond had been measured (section 5.6.2).
            pacing: STARTUP_GAIN * INITIAL_WINDOW * 1000.0,
            has_seen_rtt: false,
            mss: 1448.0,
            random: 0x9e37_79b9,
            now_us: 0,
        }
    }
}

impl Bbr3 {
    /// Its name in scenarios.
    pub const NAME: &str = "bbr3";

    fn max_rate(&self) -> f64 {
        self.rates[0].max(self.rates[1])
    }

    /// Section 5.5.10.3: BBR.bw.
    fn rate(&self) -> f64 {
        self.max_rate().min(self.rate_bound)
    }

    fn bdp(&self, rate: f64, gain: f64) -> f64 {
        match self.least_rtt_us {
            u64::MAX => INITIAL_WINDOW,
            least_us => gain * rate * least_us as f64 / 1e6,
        }
    }

    /// With room for what hosts send and acknowledge at once (section 5.6.4.2).
    fn with_room(&self, window: f64) -> f64 {
        let bytes_s = self.pacing * self.mss;
        let burst = (bytes_s / 1000.0).min(64_000.0).max(2.0 * self.mss) / self.mss;
        let window = window.max(3.0 * burst).max(WINDOW_LEAST);
        if self.state == State::Up { window + 2.0 } else { window }
    }

    /// BBRInflight.
    fn fills(&self, gain: f64) -> f64 {
        self.with_room(self.bdp(self.max_rate(), gain))
    }

    fn start_round(&mut self) {
        self.next_round = self.delivered;
        (self.was_window_limited, self.is_window_limited) = (self.is_window_limited, false);
    }

    /// A random number from 0 to 1: connections that begin together diverge.
    fn chance(&mut self) -> f64 {
        self.random = (self.random ^ self.now_us as u32).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.random) / 4_294_967_296.0
    }

    /// Section 5.6.2.
    fn pace(&mut self, gain: f64, srtt_us: u32) {
        if !self.has_seen_rtt && srtt_us > 0 {
            self.has_seen_rtt = true;
            self.pacing = STARTUP_GAIN * self.window * 1e6 / f64::from(srtt_us);
        }
        let rate = gain * self.rate() * (1.0 - PACING_MARGIN);
        if self.is_full || rate > self.pacing {
            self.pacing = rate;
        }
    }

    /// Section 5.6.4.
    fn set_window(&mut self, window: &mut Window, sample: &RateSample) {
        let acked = f64::from(sample.delivered_now);
        let extra = self.aggregation.room(self.is_full, segments_us(self.rate())) as f64;
        let most = self.with_room(self.bdp(self.rate(), self.state.gains().1) + extra);
        let mut cwnd = f64::from(window.cwnd);
        if self.is_full {
            cwnd = (cwnd + acked).min(most);
        } else if cwnd < most || (sample.delivered as f64) < INITIAL_WINDOW {
            cwnd += acked;
        }
        if self.repair == Repair::Timeout && sample.repair == Repair::Open {
            cwnd = cwnd.max(self.window_before);
        }
        self.repair = sample.repair;
        cwnd = cwnd.max(WINDOW_LEAST);
        if self.state == State::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_window());
        }
        let bound = match self.state {
            State::ProbeRtt | State::Cruise => self.with_headroom(),
            state if state.probes_bandwidth() => self.long_bound,
            _ => f64::INFINITY,
        };
        cwnd = cwnd.min(bound.min(self.short_bound).max(WINDOW_LEAST));
        window.cwnd = (cwnd as u32).min(window.clamp);
        self.window = window.cwnd.into();
    }

    fn keep_window(&mut self) {
        let is_low = self.loss_in_round || self.state == State::ProbeRtt;
        self.window_before = if is_low { self.window_before.max(self.window) } else { self.window };
    }

    fn look(&mut self, sample: &RateSample) {
        self.now_us = sample.now_us;
        self.delivered = sample.delivered;
        self.in_flight = sample.in_flight.into();
        self.mss = sample.mss.into();
        self.is_window_limited |= f64::from(sample.was_in_flight) >= self.window;
        self.begins_round = false;
        self.sampled.newly_acked = sample.delivered_now.into();
        let Some(before) = sample.before else { return };
        let delivered = (sample.delivered - before.delivered) as f64;
        self.sampled = Sampled {
            rate: delivered * 1e6 / before.interval_us.max(1) as f64,
            delivered,
            delivered_before: before.delivered,
            in_flight: before.in_flight.into(),
            lost: (sample.lost - before.lost) as f64,
            // The draft marks the connection as limited by its application while it probes the round trip.
            is_app_limited: before.is_app_limited || self.probed.contains(&before.delivered),
            newly_acked: sample.delivered_now.into(),
        };
    }
}

impl CongestionControl for Bbr3 {
    fn on_rtt(&mut self, _: &Window, _: u64, _: u32) -> bool {
        false
    }

    fn on_ack(&mut self, _: &mut Window, _: u32) {}

    fn on_loss(&mut self, _: u32) -> u32 {
        self.keep_window();
        i32::MAX as u32
    }

    fn on_timeout(&mut self) {
        self.repair = Repair::Timeout;
    }

    fn on_idle(&mut self, _window: &mut Window, _idle_us: u64) -> bool {
        self.restarts = true;
        self.aggregation.restart(self.now_us);
        match self.state {
            state if state.probes_bandwidth() => self.pace(1.0, 0),
            State::ProbeRtt => self.end_probe_rtt(),
            _ => {}
        }
        false
    }

    fn asks_for_losses(&self) -> bool {
        true
    }

    fn on_lost(&mut self, lost: &LostSegment) {
        self.note_lost(lost);
    }

    /// Section 5.2.3.
    fn on_sample(&mut self, window: &mut Window, sample: &RateSample) {
        self.look(sample);
        if sample.before.is_some() {
            self.note_delivery();
            self.note_congestion();
        }
        let rate = segments_us(self.rate());
        self.aggregation.update(sample, self.begins_round, self.is_full, rate, self.window as u32);
        self.look_for_full();
        self.leave_startup(sample);
        self.leave_drain();
        self.probe_bandwidth();
        self.update_least_rtt(sample);
        self.probe_rtt(window, sample);
        if self.loss_round_begins {
            (self.latest_rate, self.latest_delivered) = (self.sampled.rate, self.sampled.delivered);
        }
        let gain = self.state.gains().0;
        self.pace(gain, sample.srtt_us);
        self.set_window(window, sample);
    }

    fn sets_rate(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<f64> {
        Some(self.pacing)
    }
}
