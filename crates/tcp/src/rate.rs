//! The delivery rate, sampled at every acknowledgement (draft-cheng-iccrg-delivery-rate-estimation-02; Linux: `tcp_rate.c`).

use ekiden_congestion::{Before, RateSample, Repair};
use ekiden_units::Time;

use crate::scoreboard::{AckSummary, Mark};

#[derive(Debug, Default)]
pub(crate) struct RateEstimator {
    /// Segments delivered, and when the last was (C.delivered, C.delivered_time).
    delivered: u64,
    delivered_at: Time,
    /// When the segment was sent that was newest in the last sample (C.first_sent_time).
    first_sent: Time,
    /// The application limits the sender until so many are delivered; 0: it does not (C.app_limited).
    limited_until: u64,
    /// Segments that were known to be lost at the last acknowledgement.
    lost: u64,
}

/// What a sample needs to know of the sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub was_in_flight: u32,
    pub in_flight: u32,
    /// Segments found lost over the whole connection.
    pub lost: u64,
    pub least_rtt: Option<Time>,
    pub mss: u32,
    pub repair: Repair,
}

impl RateEstimator {
    /// Segments delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A segment is sent, behind `outstanding` others.
    pub fn mark(&mut self, now: Time, outstanding: u32) -> Mark {
        if outstanding == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        Mark {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            is_app_limited: self.limited_until > 0,
        }
    }

    /// The application has nothing more to send, and the window would let it.
    pub fn note_app_limited(&mut self, in_flight: u32) {
        self.limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// An acknowledgement arrived.
    pub fn on_ack(&mut self, now: Time, summary: &AckSummary) {
        self.delivered += u64::from(summary.delivered);
        if summary.delivered > 0 {
            self.delivered_at = now;
        }
        if self.delivered > self.limited_until {
            self.limited_until = 0;
        }
    }

    /// The sample of that acknowledgement.
    pub fn sample(&mut self, now: Time, summary: &AckSummary, flow: &Flow) -> RateSample {
        let before = summary.newest.and_then(|newest| {
            let (sent, acked) = (newest.at.since(newest.mark.first_sent), now.since(newest.mark.delivered_at));
            self.first_sent = newest.at;
            let interval = sent.max(acked);
            // What is shorter than a round trip was acknowledged late.
            flow.least_rtt.is_none_or(|least| interval >= least).then_some(Before {
                delivered: newest.mark.delivered,
                interval_us: interval.0 / 1000,
                is_app_limited: newest.mark.is_app_limited,
            })
        });
        let lost_now = u32::try_from(flow.lost - self.lost).unwrap_or(u32::MAX);
        self.lost = flow.lost;
        RateSample {
            now_us: now.0 / 1000,
            delivered: self.delivered,
            before,
            delivered_now: summary.delivered,
            lost_now,
            lost: flow.lost,
            was_in_flight: flow.was_in_flight,
            in_flight: flow.in_flight,
            rtt_us: summary.sent_at.map(|at| u32::try_from(now.since(at).0 / 1000).unwrap_or(u32::MAX)),
            mss: flow.mss,
            repair: flow.repair,
        }
    }
}
