//! The bounds on what may be in flight (section 5.5.10).

use super::{AckPhase, BETA, Bbr3, HEADROOM, LOSS_MOST, State, WINDOW_LEAST};
use crate::sample::LostSegment;

/// The maximum number of doublings of the long bound's growth; it doubles each round trip.
const UP_ROUNDS_MOST: u32 = 30;

impl Bbr3 {
    /// BBRUpdateLatestDeliverySignals.
    pub(super) fn note_delivery(&mut self) {
        self.loss_round_begins = false;
        self.latest_rate = self.latest_rate.max(self.sampled.rate);
        self.latest_delivered = self.latest_delivered.max(self.sampled.delivered);
        if self.sampled.delivered_before >= self.loss_round_delivered {
            self.loss_round_delivered = self.delivered;
            self.loss_round_begins = true;
        }
    }

    /// BBRUpdateCongestionSignals.
    pub(super) fn note_congestion(&mut self) {
        if self.sampled.delivered_before >= self.next_round {
            self.start_round();
            self.rounds += 1;
            self.rounds_since_probe += 1;
            self.begins_round = true;
        }
        if self.sampled.rate >= self.max_rate() || !self.sampled.is_app_limited {
            self.rates[1] = self.rates[1].max(self.sampled.rate);
        }
        if !self.loss_round_begins {
            return;
        }
        let probes = matches!(self.state, State::Startup | State::Refill | State::Up);
        if self.loss_in_round && !probes {
            if self.rate_bound.is_infinite() {
                self.rate_bound = self.max_rate();
            }
            if self.short_bound.is_infinite() {
                self.short_bound = self.window;
            }
            self.rate_bound = self.latest_rate.max(BETA * self.rate_bound);
            self.short_bound = self.latest_delivered.max(BETA * self.short_bound);
        }
        self.loss_in_round = false;
    }

    /// BBRHandleLostPacket.
    pub(super) fn note_lost(&mut self, lost: &LostSegment) {
        if !self.loss_in_round {
            self.loss_round_delivered = self.delivered;
        }
        self.loss_in_round = true;
        if !self.is_judged {
            return;
        }
        let (in_flight, lost_since) = (f64::from(lost.in_flight), lost.lost as f64);
        if lost_since > LOSS_MOST * in_flight {
            // The point in the flight at which the losses became too many (BBRInflightAtLoss).
            let (in_flight, lost_since) = (in_flight - 1.0, lost_since - 1.0);
            let prefix = (LOSS_MOST * in_flight - lost_since) / (1.0 - LOSS_MOST);
            self.is_too_much(in_flight + prefix.max(0.0), lost.is_app_limited);
        }
    }

    /// BBRHandleInflightTooHigh.
    fn is_too_much(&mut self, in_flight: f64, is_app_limited: bool) {
        self.is_judged = false;
        if !is_app_limited {
            self.long_bound = in_flight.max(BETA * self.target());
        }
        if self.state == State::Up {
            self.start_down();
        }
    }

    /// IsInflightTooHigh.
    pub(super) fn loses_too_much(&self) -> bool {
        self.sampled.lost > LOSS_MOST * self.sampled.in_flight
    }

    /// BBRTargetInflight.
    pub(super) fn target(&self) -> f64 {
        self.bdp(self.rate(), 1.0).min(self.window)
    }

    /// BBRInflightWithHeadroom.
    pub(super) fn with_headroom(&self) -> f64 {
        if self.long_bound.is_infinite() {
            return self.long_bound;
        }
        (self.long_bound - (HEADROOM * self.long_bound).max(1.0)).max(WINDOW_LEAST)
    }

    pub(super) fn forget_short_bounds(&mut self) {
        (self.rate_bound, self.short_bound) = (f64::INFINITY, f64::INFINITY);
    }

    pub(super) fn forget_congestion(&mut self) {
        self.loss_in_round = false;
        (self.latest_rate, self.latest_delivered) = (0.0, 0.0);
    }

    /// BBRAdaptLongTermModel.
    pub(super) fn adapt_long_bound(&mut self) {
        if self.ack_phase == AckPhase::ProbeStarting && self.begins_round {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.begins_round {
            (self.is_judged, self.ack_phase) = (false, AckPhase::Other);
            if self.state.probes_bandwidth() && !self.sampled.is_app_limited && self.rates[1] > 0.0 {
                self.rates = [self.rates[1], 0.0];
            }
        }
        if self.loses_too_much() {
            if self.is_judged {
                let Self { sampled, .. } = *self;
                self.is_too_much(sampled.in_flight, sampled.is_app_limited);
            }
            return;
        }
        if self.long_bound.is_infinite() {
            return;
        }
        self.long_bound = self.long_bound.max(self.sampled.in_flight);
        if self.state == State::Up {
            self.raise_long_bound();
        }
    }

    /// BBRProbeInflightLongtermUpward.
    fn raise_long_bound(&mut self) {
        if !(self.is_window_limited || self.was_window_limited) || self.window < self.long_bound.floor() {
            return;
        }
        self.probe_up_acks += self.sampled.newly_acked;
        if self.probe_up_acks >= self.probe_up_count {
            let steps = (self.probe_up_acks / self.probe_up_count).floor();
            self.probe_up_acks -= steps * self.probe_up_count;
            self.long_bound += steps;
        }
        if self.begins_round {
            self.raise_slope();
        }
    }

    /// BBRRaiseInflightLongtermSlope.
    pub(super) fn raise_slope(&mut self) {
        let growth = f64::from(1_u32 << self.probe_up_rounds);
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(UP_ROUNDS_MOST);
        self.probe_up_count = (self.window / growth).max(1.0);
    }
}
