//! The delivery rate, sampled at every acknowledgement (draft-cheng-iccrg-delivery-rate-estimation-02; Linux: `tcp_rate.c`).

use ekiden_congestion::{Before, RateSample, Repair};
use ekiden_units::Time;

use crate::scoreboard::{AckSummary, Mark};

#[derive(Debug, Default)]
pub(crate) struct RateEstimator {
    /// Segments delivered, and when the last was (C.delivered, C.delivered_time).
    delivered: u64,
    delivered_at: Time,
    /// When the newest segment of the last sample was sent (C.first_sent_time).
    first_sent: Time,
    /// The number of delivered segments until which the application limits the sender; 0: it does not (C.app_limited).
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
    /// The smoothed round trip, in microseconds; 0 before the first.
    pub srtt_us: u32,
    pub mss: u32,
    pub repair: Repair,
}

impl RateEstimator {
    /// Segments delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A segment is sent, behind `outstanding` others, of which `in_flight` are in the network. `lost`: the segments found
    /// lost before.
    pub fn mark(&mut self, now: Time, outstanding: u32, in_flight: u32, lost: u64) -> Mark {
        if outstanding == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        Mark {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            is_app_limited: self.limited_until > 0,
            in_flight: in_flight + 1,
            lost,
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
            // An interval shorter than a round trip is due to late acknowledgements.
            flow.least_rtt.is_none_or(|least| interval >= least).then_some(Before {
                delivered: newest.mark.delivered,
                interval_us: interval.0 / 1000,
                is_app_limited: newest.mark.is_app_limited,
                in_flight: newest.mark.in_flight,
                lost: newest.mark.lost,
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
            srtt_us: flow.srtt_us,
            mss: flow.mss,
            repair: flow.repair,
            is_marked: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoreboard::Newest;

    const FLOW: Flow =
        Flow { was_in_flight: 0, in_flight: 0, lost: 0, least_rtt: None, srtt_us: 0, mss: 1448, repair: Repair::Open };

    /// An acknowledgement that reports `delivered` segments, the newest of which was sent at `at`.
    fn acknowledge(
        rate: &mut RateEstimator,
        now: Time,
        delivered: u32,
        at: Time,
        mark: Mark,
        flow: &Flow,
    ) -> RateSample {
        let newest = Some(Newest { serial: 0, at, mark });
        let summary = AckSummary { delivered, newest, sent_at: Some(at), ..AckSummary::default() };
        rate.on_ack(now, &summary);
        rate.sample(now, &summary, flow)
    }

    fn marked(rate: &mut RateEstimator, now: Time, outstanding: u32) -> Mark {
        rate.mark(now, outstanding, outstanding, 0)
    }

    #[test]
    fn an_interval_is_the_longer_of_sending_and_of_acknowledging() {
        let mut rate = RateEstimator::default();
        let marks: Vec<Mark> = (0..10).map(|sent| marked(&mut rate, Time::ms(10 * sent), sent as u32)).collect();
        // Ten that were sent in 90 ms are acknowledged together, 100 ms after the first had been sent.
        let sample = acknowledge(&mut rate, Time::ms(100), 10, Time::ms(90), marks[9], &FLOW);
        let before = sample.before.unwrap();
        assert_eq!((before.delivered, before.interval_us, sample.delivered), (0, 100_000, 10));
        // Ten more, sent 20 ms apart from then on: their acknowledgements come all within 40 ms of the last.
        let marks: Vec<Mark> = (1..=10).map(|sent| marked(&mut rate, Time::ms(90 + 20 * sent), 10)).collect();
        let sample = acknowledge(&mut rate, Time::ms(350), 9, Time::ms(270), marks[8], &FLOW);
        assert_eq!(sample.before.unwrap().interval_us, 250_000);
        let sample = acknowledge(&mut rate, Time::ms(390), 1, Time::ms(290), marks[9], &FLOW);
        assert_eq!((sample.before.unwrap().delivered, sample.before.unwrap().interval_us), (10, 290_000));
        assert_eq!((sample.delivered, sample.delivered_now, sample.rtt_us), (20, 1, Some(100_000)));
    }

    #[test]
    fn acknowledgements_that_come_together_do_not_make_a_path_faster() {
        let mut rate = RateEstimator::default();
        let first = marked(&mut rate, Time(0), 0);
        acknowledge(&mut rate, Time::ms(50), 1, Time(0), first, &FLOW);
        let mark = marked(&mut rate, Time::ms(50), 1);
        let later = marked(&mut rate, Time::ms(150), 2);
        acknowledge(&mut rate, Time::ms(199), 1, Time::ms(50), mark, &FLOW);
        let sample = acknowledge(&mut rate, Time::ms(200), 1, Time::ms(150), later, &FLOW);
        // They were sent 100 ms apart, and the acknowledgement before the last came 150 ms ago.
        assert_eq!(sample.before.unwrap().interval_us, 150_000);
        let shorter = Flow { least_rtt: Some(Time::ms(151)), ..FLOW };
        let mark = marked(&mut rate, Time::ms(200), 1);
        assert_eq!(acknowledge(&mut rate, Time::ms(210), 1, Time::ms(200), mark, &shorter).before, None);
    }

    #[test]
    fn a_pause_counts_in_no_interval() {
        let mut rate = RateEstimator::default();
        let mark = marked(&mut rate, Time(0), 0);
        acknowledge(&mut rate, Time::ms(20), 1, Time(0), mark, &FLOW);
        let mark = marked(&mut rate, Time::secs(5), 0);
        let sample = acknowledge(&mut rate, Time::ms(5_020), 1, Time::secs(5), mark, &FLOW);
        assert_eq!(sample.before.unwrap().interval_us, 20_000);
    }

    #[test]
    fn who_has_little_to_send_is_limited_until_that_has_arrived() {
        let mut rate = RateEstimator::default();
        let mark = marked(&mut rate, Time(0), 0);
        assert!(!mark.is_app_limited);
        rate.note_app_limited(2);
        let limited = marked(&mut rate, Time::ms(1), 1);
        assert!(limited.is_app_limited);
        acknowledge(&mut rate, Time::ms(20), 2, Time(0), mark, &FLOW);
        assert!(marked(&mut rate, Time::ms(20), 1).is_app_limited, "two have arrived, and not more");
        let sample = acknowledge(&mut rate, Time::ms(21), 1, Time::ms(1), limited, &FLOW);
        assert!(sample.before.unwrap().is_app_limited);
        assert!(!marked(&mut rate, Time::ms(22), 1).is_app_limited);
    }

    #[test]
    fn losses_count_once() {
        let mut rate = RateEstimator::default();
        let mark = marked(&mut rate, Time(0), 0);
        let lost = |lost: u64| Flow { lost, ..FLOW };
        let counts = [3, 3, 8].map(|all| {
            let sample = acknowledge(&mut rate, Time::ms(20), 1, Time(0), mark, &lost(all));
            (sample.lost_now, sample.lost)
        });
        assert_eq!(counts, [(3, 3), (0, 3), (5, 8)]);
    }
}
