//! What a node's own connections have shown of a leg, in the direction in which this node sends.
//!
//! This module decides how long an observation holds, and when it no longer counts.

use ekiden_units::{BitRate, Time};

/// The half-life of an observation in seconds of newer observed time: for what a leg carries in the long run ...
const STEADY_HALF_S: f64 = 30.0;
/// ... and its half-life in seconds of any time, observed or not.
const OLD_HALF_S: f64 = 300.0;
/// The same as `STEADY_HALF_S`, for the recent mean that shows whether earlier observations still hold.
const RECENT_HALF_S: f64 = 1.0;
/// If the two means differ by this factor, the leg has changed, and earlier observations no longer count.
const CHANGED: f64 = 2.0;
/// The part of the greatest rate in any second that is sure to come again: that rate is above the mean.
pub(crate) const CARRIED_PART: f64 = 0.8;
/// After this time without a stream that the leg limits, the next such stream has the leg for itself.
const IDLE: Time = Time::secs(10);
/// How long a failed leg is not used again, unless something succeeds on it.
pub const SHUNNED: Time = Time::secs(30);
/// A round trip is brief while what was seen of it covers less than this time, in seconds: then a shorter one replaces it, for
/// a node that starts answers late.
const BRIEF_S: f64 = 2.5;
/// How long a round trip holds.
pub const RTT_HOLDS: Time = Time::secs(600);
/// How long a rate holds.
pub const RATE_HOLDS: Time = Time::secs(6 * 3_600);

/// What the connections of a leg have shown since the look before.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Look {
    /// The length of that time, in seconds.
    pub span_s: f64,
    /// The mean of their smoothed round trips, in seconds; `None` if nothing was acknowledged.
    pub rtt_s: Option<f64>,
    /// What a stream got of the path, in bit/s, if the path was its limit, not the program or a window.
    pub rate_bit_s: Option<f64>,
    /// What all streams that the path limited got together, in bit/s; 0 if there were none.
    pub together_bit_s: f64,
    /// The greatest rate of one stream, in bit/s, whatever limited it.
    pub carried_bit_s: f64,
    /// Segments sent, those sent again among them.
    pub sent: u64,
    /// Segments sent again.
    pub resent: u64,
}

/// A mean in which old values fade.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mean {
    steady: f64,
    recent: f64,
    /// The time that its observations cover, in seconds, as far as they still count.
    seen_s: f64,
    /// The time of the last observation.
    at: Time,
}

impl Mean {
    fn with(before: Option<Self>, value: f64, span_s: f64, at: Time) -> Self {
        let span_s = span_s.max(1e-3);
        let Some(before) = before else { return Self { steady: value, recent: value, seen_s: span_s, at } };
        let ages = 0.5_f64.powf(at.since(before.at).as_secs() / OLD_HALF_S);
        // First a mean of everything; once it covers enough time, one in which old values fade.
        let counts_s = (before.seen_s * ages).min(STEADY_HALF_S / std::f64::consts::LN_2);
        let steady = (before.steady * counts_s + value * span_s) / (counts_s + span_s);
        let keeps = 0.5_f64.powf(span_s / RECENT_HALF_S);
        let recent = before.recent * keeps + value * (1.0 - keeps);
        match recent > steady * CHANGED || recent * CHANGED < steady {
            // The recent mean still contains something from before.
            true => Self { steady: value, recent: value, seen_s: span_s, at },
            false => Self { steady, recent, seen_s: counts_s + span_s, at },
        }
    }

    fn is_brief(&self) -> bool {
        self.seen_s < BRIEF_S
    }
}

/// What is known of a leg.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Leg {
    rtt_s: Option<Mean>,
    rate_bit_s: Option<Mean>,
    /// What all streams that the leg limited got together, for as long as the rate was seen.
    together_bit_s: Option<Mean>,
    /// The greatest rate that was carried, and when.
    carried: Option<(f64, Time)>,
    loss: Option<Mean>,
    failed: Option<Time>,
}

/// What holds of a leg at some time, in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holds {
    /// The round trip.
    pub rtt: Time,
    /// What a stream gets, if a stream was ever limited by this leg.
    pub rate: Option<BitRate>,
    /// The most that a stream has carried, where none was limited by the leg.
    pub carried: BitRate,
    /// The part of the segments that is sent again.
    pub loss: f64,
    /// How old the oldest of these is.
    pub age: Time,
    /// Whether the round trip was seen so briefly that it may be shorter.
    pub is_brief: bool,
}

impl Leg {
    /// Takes a look.
    pub fn see(&mut self, look: &Look, now: Time) {
        let positive = |value: &f64| value.is_finite() && *value > 0.0;
        if let Some(rtt_s) = look.rtt_s.filter(positive) {
            let before = self.rtt_s.filter(|mean| now <= mean.at + RTT_HOLDS);
            self.rtt_s = Some(match before {
                Some(before) if before.is_brief() && rtt_s < before.steady => {
                    Mean { steady: rtt_s, recent: rtt_s, seen_s: before.seen_s + look.span_s.max(0.0), at: now }
                }
                before => Mean::with(before, rtt_s, look.span_s, now),
            });
            self.failed = None;
        }
        if let Some(rate) = look.rate_bit_s.filter(positive) {
            let with = |before: Option<Mean>, value: f64| {
                Some(Mean::with(before.filter(|mean| now <= mean.at + RATE_HOLDS), value, look.span_s, now))
            };
            self.rate_bit_s = with(self.rate_bit_s, rate);
            self.together_bit_s = with(self.together_bit_s, look.together_bit_s.max(rate));
        }
        let holds = self.carried.filter(|(_, at)| now <= *at + RATE_HOLDS);
        if positive(&look.carried_bit_s) && holds.is_none_or(|(most, _)| look.carried_bit_s >= most) {
            self.carried = Some((look.carried_bit_s, now));
        }
        if look.sent > 0 {
            let part = look.resent.min(look.sent) as f64 / look.sent as f64;
            // Without a jump: a mean of few losses goes up and down.
            let keeps = 0.5_f64.powf(look.span_s.max(0.0) / STEADY_HALF_S);
            let steady = self.loss.map_or(part, |loss| loss.steady * keeps + part * (1.0 - keeps));
            self.loss = Some(Mean { steady, recent: part, seen_s: look.span_s, at: now });
        }
    }

    /// A connection failed to open, broke, or nothing moves on it.
    pub fn fail(&mut self, now: Time) {
        self.failed = Some(now);
    }

    /// When it failed, if nothing has succeeded on it since.
    pub fn failed_at(&self) -> Option<Time> {
        self.failed
    }

    /// Whether it failed a short while ago, and nothing has succeeded on it since.
    pub fn is_shunned(&self, now: Time) -> bool {
        self.failed.is_some_and(|failed| now < failed + SHUNNED)
    }

    /// What holds now. `None` if no round trip is known.
    pub fn holds(&self, now: Time) -> Option<Holds> {
        let fresh = |mean: Option<Mean>, holds: Time| mean.filter(|mean| now <= mean.at + holds);
        let rtt = fresh(self.rtt_s, RTT_HOLDS)?;
        let rate = fresh(self.rate_bit_s, RATE_HOLDS);
        let carried = self.carried.filter(|(_, at)| now <= *at + RATE_HOLDS);
        let bits = |value: f64| BitRate((value as u64).max(1));
        let at = rate.map_or(rtt.at, |rate| rate.at.min(rtt.at));
        // The streams that shared the leg have gone: the next one gets what they had together, up to what one stream has
        // carried.
        let most = carried.map_or(0.0, |(most, _)| most * CARRIED_PART);
        let alone = self.together_bit_s.filter(|mean| now > mean.at + IDLE).map_or(0.0, |mean| mean.steady.min(most));
        Some(Holds {
            rtt: Time((rtt.steady * 1e9) as u64),
            rate: rate.map(|rate| bits(rate.steady.max(alone))),
            carried: carried.map_or(BitRate(0), |(most, _)| bits(most)),
            loss: self.loss.map_or(0.0, |loss| loss.steady),
            age: now.since(at),
            is_brief: rtt.is_brief(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(rate_bit_s: f64) -> Look {
        Look {
            span_s: 1.0,
            rtt_s: Some(0.1),
            rate_bit_s: Some(rate_bit_s),
            together_bit_s: rate_bit_s,
            carried_bit_s: rate_bit_s,
            sent: 100,
            resent: 1,
        }
    }

    #[test]
    fn a_leg_that_carries_a_tenth_is_known_as_such_within_three_seconds() {
        let mut leg = Leg::default();
        (0..60).for_each(|second| leg.see(&look(100e6), Time::secs(second)));
        (60..63).for_each(|second| leg.see(&look(10e6), Time::secs(second)));
        let rate = leg.holds(Time::secs(63)).unwrap().rate.unwrap();
        assert!(rate < BitRate::mbit(12), "{rate}");
        // One look that shows less is no change yet.
        let mut leg = Leg::default();
        (0..60).for_each(|second| leg.see(&look(100e6), Time::secs(second)));
        leg.see(&look(10e6), Time::secs(60));
        assert!(leg.holds(Time::secs(60)).unwrap().rate.unwrap() > BitRate::mbit(95));
    }

    #[test]
    fn noise_of_a_tenth_moves_a_rate_by_little() {
        let mut leg = Leg::default();
        for second in 0..600 {
            leg.see(&look(if second % 3 == 0 { 110e6 } else { 95e6 }), Time::secs(second));
        }
        let rate = leg.holds(Time::secs(600)).unwrap().rate.unwrap().as_mbit();
        assert!((98.0..102.0).contains(&rate), "{rate}");
    }

    #[test]
    fn the_first_looks_count_alike_and_old_ones_little() {
        let mut leg = Leg::default();
        let mut rate = |mbit: f64, second: u64| {
            leg.see(&look(mbit * 1e6), Time::secs(second));
            leg.holds(Time::secs(second)).unwrap().rate.unwrap().as_mbit().round()
        };
        assert_eq!([rate(80.0, 0), rate(110.0, 1), rate(110.0, 2)], [80.0, 95.0, 100.0]);
        // Others were there an hour ago; a few seconds now say more.
        assert_eq!(rate(150.0, 3_600), 150.0);
        assert_eq!(rate(160.0, 3_601), 155.0);
    }

    #[test]
    fn when_streams_that_shared_a_leg_have_gone_one_gets_what_they_had() {
        let rate = |leg: &Leg, second: u64| leg.holds(Time::secs(second)).unwrap().rate.unwrap().as_mbit().round();
        let shared = |carried: f64| {
            let mut leg = Leg::default();
            leg.see(
                &Look { rate_bit_s: None, together_bit_s: 0.0, carried_bit_s: carried, ..look(0.0) },
                Time::secs(0),
            );
            (1..60).for_each(|second| leg.see(&Look { together_bit_s: 100e6, ..look(25e6) }, Time::secs(second)));
            leg
        };
        // While they are there, and afterwards.
        assert_eq!([rate(&shared(100e6), 60), rate(&shared(100e6), 70)], [25.0, 80.0]);
        // With losses as the limit each gets only this rate, however many there are.
        assert_eq!(rate(&shared(25e6), 70), 25.0);
    }

    #[test]
    fn a_leg_that_has_failed_is_left_alone_until_something_comes_about_on_it() {
        let mut leg = Leg::default();
        assert_eq!(leg.holds(Time::secs(1)), None);
        leg.see(&look(1e6), Time::secs(1));
        leg.fail(Time::secs(2));
        assert!(leg.is_shunned(Time::secs(3)));
        leg.see(&look(1e6), Time::secs(4));
        assert!(!leg.is_shunned(Time::secs(4)));
        leg.fail(Time::secs(5));
        assert!(!leg.is_shunned(Time::secs(5) + SHUNNED));
    }

    #[test]
    fn the_shortest_of_the_first_round_trips_counts_and_then_their_mean() {
        let mut leg = Leg::default();
        let mut rtt = |rtt_s: f64, second: u64| {
            leg.see(&Look { span_s: 1.0, rtt_s: Some(rtt_s), ..Look::default() }, Time::secs(second));
            let holds = leg.holds(Time::secs(second)).unwrap();
            (holds.rtt.as_ms().round(), holds.is_brief)
        };
        // The node at the other end starts.
        assert_eq!([rtt(1.5, 0), rtt(0.02, 2), rtt(0.02, 4)], [(1500.0, true), (20.0, true), (20.0, false)]);
        assert_eq!(rtt(0.01, 5), (17.0, false));
        // It is seen anew once it was forgotten.
        let later = 6 + RTT_HOLDS.as_secs() as u64;
        assert_eq!([rtt(0.3, later), rtt(0.2, later + 1)], [(300.0, true), (200.0, true)]);
    }

    #[test]
    fn what_is_old_holds_no_more() {
        let mut leg = Leg::default();
        leg.see(&look(1e6), Time::secs(0));
        assert!(leg.holds(RTT_HOLDS).unwrap().rate.is_some());
        assert_eq!(leg.holds(RTT_HOLDS + Time::secs(1)), None);
        let later = RATE_HOLDS + Time::secs(1);
        leg.see(&Look { rate_bit_s: None, carried_bit_s: 5e5, ..look(0.0) }, later);
        let holds = leg.holds(later).unwrap();
        assert_eq!((holds.rate, holds.carried), (None, BitRate(500_000)));
    }
}
