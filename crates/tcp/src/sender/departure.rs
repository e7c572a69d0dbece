//! When segments leave, and what their acknowledgements show of the path's rate.

use ekiden_congestion::{LostSegment, RateSample, Repair};
use ekiden_units::Time;

use super::Sender;
use crate::rate::Flow;
use crate::scoreboard::AckSummary;

impl Sender {
    /// Tells a control that sets a rate what an acknowledgement says of the path.
    pub(super) fn sample(&mut self, now: Time, summary: &AckSummary, was_in_flight: u32, is_marked: bool) {
        let repair = match (self.recovery.is_fast(), self.recovery.is_after_timeout()) {
            (true, _) => Repair::Recovery,
            (_, true) => Repair::Timeout,
            _ => Repair::Open,
        };
        let flow = Flow {
            was_in_flight,
            in_flight: self.board.pipe(),
            lost: self.board.lost_ever(),
            least_rtt: self.least_rtt(),
            srtt_us: self
                .timer
                .estimator()
                .smoothed()
                .map_or(0, |srtt| u32::try_from(srtt.0 / 1000).unwrap_or(u32::MAX)),
            mss: self.mss,
            repair,
        };
        let lost = self.board.losses.take();
        let earlier = flow.lost - lost.len() as u64;
        for (mark, now) in lost.iter().zip(1..) {
            self.window.on_lost(&LostSegment {
                in_flight: mark.in_flight,
                lost: earlier + now - mark.lost,
                is_app_limited: mark.is_app_limited,
            });
        }
        let sample = self.rate.sample(now, summary, &flow);
        self.window.on_sample(&RateSample { is_marked, ..sample });
    }

    /// Whether pacing holds the next segment back.
    pub(super) fn is_held(&mut self, now: Time) -> bool {
        self.window.sets_rate() && self.pacer.holds(now, self.window.pacing_rate())
    }

    /// A segment with this payload, in bytes, is sent.
    pub(super) fn note_departure(&mut self, now: Time, payload: u32) {
        self.board.mark = self.rate.mark(now, self.board.len(), self.board.pipe(), self.board.lost_ever());
        if self.window.sets_rate() {
            self.pacer.on_sent(now, self.window.pacing_rate(), f64::from(payload) / f64::from(self.mss));
        }
    }

    /// Nothing is to be sent: if the reason is a lack of data, what is delivered now says nothing about the path.
    pub(super) fn note_app_limited(&mut self) {
        let in_flight = self.board.pipe();
        if self.unsent() == 0 && in_flight < self.window.cwnd() && self.board.lost() == 0 {
            self.rate.note_app_limited(in_flight);
        }
    }
}
