//! Its states (section 5.3).

use super::{
    AckPhase, Bbr3, DRAIN_ROUNDS, FULL_ROUNDS, LEAST_RTT_HOLDS_US, PROBE_RTT_EVERY_US, PROBE_RTT_US,
    PROBE_RTT_WINDOW_GAIN, STARTUP_LOSSES, State, WINDOW_LEAST,
};
use crate::Window;
use crate::sample::{RateSample, Repair};

/// A probe comes after 2 to 3 s, or as many round trips as Reno takes to grow by the window, 63 at most.
const PROBE_WAIT_US: f64 = 2_000_000.0;
const PROBE_WAIT_MORE_US: f64 = 1_000_000.0;
const RENO_ROUNDS_MOST: f64 = 63.0;

impl Bbr3 {
    fn forget_full(&mut self) {
        (self.full_rate, self.full_rounds, self.is_full_now) = (0.0, 0, false);
    }

    /// BBRCheckFullBWReached.
    pub(super) fn look_for_full(&mut self) {
        if self.is_full_now || !self.begins_round || self.sampled.is_app_limited {
            return;
        }
        if self.sampled.rate >= 1.25 * self.full_rate {
            self.forget_full();
            self.full_rate = self.sampled.rate;
            return;
        }
        self.full_rounds += 1;
        self.is_full_now = self.full_rounds >= FULL_ROUNDS;
        self.is_full |= self.is_full_now;
    }

    /// BBRCheckStartupDone, with the losses of section 5.3.1.3.
    pub(super) fn leave_startup(&mut self, sample: &RateSample) {
        self.losing += u32::from(sample.lost_now > 0);
        if self.loss_round_begins && sample.before.is_some() {
            let repairs = sample.repair == Repair::Recovery;
            if !self.is_full && repairs && self.losing >= STARTUP_LOSSES && self.loses_too_much() {
                self.is_full = true;
                self.long_bound = self.bdp(self.max_rate(), 1.0).max(self.latest_delivered);
            }
            self.losing = 0;
        }
        if self.state == State::Startup && self.is_full {
            self.state = State::Drain;
            self.drain_at_round = self.rounds;
        }
    }

    /// BBRCheckDrainDone.
    pub(super) fn leave_drain(&mut self) {
        let is_late = self.rounds > self.drain_at_round + DRAIN_ROUNDS;
        if self.state == State::Drain && (self.in_flight <= self.fills(1.0) || is_late) {
            self.start_down();
        }
    }

    pub(super) fn start_down(&mut self) {
        self.forget_congestion();
        self.probe_up_count = f64::INFINITY;
        self.rounds_since_probe = u64::from(self.chance() < 0.5);
        self.probe_wait_us = (PROBE_WAIT_US + PROBE_WAIT_MORE_US * self.chance()) as u64;
        self.cycle_at = self.now_us;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::Down;
    }

    fn start_up(&mut self) {
        self.is_judged = true;
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.forget_full();
        self.full_rate = self.sampled.rate;
        self.state = State::Up;
        self.raise_slope();
    }

    /// BBRUpdateProbeBWCyclePhase.
    pub(super) fn probe_bandwidth(&mut self) {
        if !self.is_full {
            return;
        }
        self.adapt_long_bound();
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe() => {
                self.forget_short_bounds();
                (self.probe_up_rounds, self.probe_up_acks) = (0, 0.0);
                self.ack_phase = AckPhase::Refilling;
                self.start_round();
                self.state = State::Refill;
            }
            State::Down if self.in_flight <= self.with_headroom() && self.in_flight <= self.fills(1.0) => {
                self.state = State::Cruise;
            }
            State::Refill if self.begins_round => self.start_up(),
            State::Up => {
                if (self.is_window_limited || self.was_window_limited) && self.window >= self.long_bound.floor() {
                    // The bound limits the rate.
                    self.forget_full();
                    self.full_rate = self.sampled.rate;
                } else if self.is_full_now {
                    self.start_down();
                }
            }
            _ => {}
        }
    }

    /// BBRIsTimeToProbeBW.
    fn is_time_to_probe(&self) -> bool {
        let reno_rounds = self.target().min(RENO_ROUNDS_MOST);
        self.now_us > self.cycle_at + self.probe_wait_us || self.rounds_since_probe as f64 >= reno_rounds
    }

    /// BBRUpdateMinRTT.
    pub(super) fn update_least_rtt(&mut self, sample: &RateSample) {
        let now_us = sample.now_us;
        // Nothing is due before the first is measured.
        let is_known = self.recent_rtt_us != u64::MAX;
        self.probe_rtt_is_due = is_known && now_us > self.recent_rtt_at + PROBE_RTT_EVERY_US;
        if let Some(rtt_us) = sample.rtt_us.map(u64::from)
            && (rtt_us < self.recent_rtt_us || self.probe_rtt_is_due)
        {
            (self.recent_rtt_us, self.recent_rtt_at) = (rtt_us, now_us);
        }
        if self.recent_rtt_us < self.least_rtt_us || now_us > self.least_rtt_at + LEAST_RTT_HOLDS_US {
            (self.least_rtt_us, self.least_rtt_at) = (self.recent_rtt_us, self.recent_rtt_at);
        }
    }

    pub(super) fn probe_rtt_window(&self) -> f64 {
        self.bdp(self.rate(), PROBE_RTT_WINDOW_GAIN).max(WINDOW_LEAST)
    }

    /// BBRCheckProbeRTT.
    pub(super) fn probe_rtt(&mut self, window: &mut Window, sample: &RateSample) {
        if self.state != State::ProbeRtt && self.probe_rtt_is_due && !self.restarts {
            self.keep_window();
            self.state = State::ProbeRtt;
            self.probe_rtt_until = None;
            self.probed.start = sample.delivered;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.probed.end = sample.delivered + u64::from(sample.in_flight) + 1;
            if self.probe_rtt_until.is_none() {
                if self.in_flight <= self.probe_rtt_window() {
                    self.probe_rtt_until = Some(sample.now_us + PROBE_RTT_US);
                    self.probe_rtt_round_done = false;
                    self.start_round();
                }
            } else {
                self.probe_rtt_round_done |= self.begins_round;
                if self.probe_rtt_round_done {
                    self.end_probe_rtt();
                }
            }
            if self.state != State::ProbeRtt {
                window.cwnd = window.cwnd.max(self.window_before as u32);
            }
        }
        if sample.before.is_some() {
            self.restarts = false;
        }
    }

    /// BBRCheckProbeRTTDone.
    pub(super) fn end_probe_rtt(&mut self) {
        if self.probe_rtt_until.is_none_or(|until| self.now_us <= until) {
            return;
        }
        self.recent_rtt_at = self.now_us;
        self.forget_short_bounds();
        self.state = State::Startup;
        if self.is_full {
            self.start_down();
            self.state = State::Cruise;
        }
    }
}
