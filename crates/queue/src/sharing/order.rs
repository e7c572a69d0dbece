//! How the streams of a class share its rate in an order: those in front get what they can use.
//!
//! What a stream can use follows from its congestion window, and so from what is on the way. The stream in front may double
//! that, as slow start does, and each behind it until the rate is used up. The others get little, and no less than the
//! service that they are promised. Where those that can use more are too few for the rate, the next ones begin.

/// Each stream gets at least this part of an even share, and `RATE_LEAST` in bytes per second.
const LEAST_PART: f64 = 0.1;
pub const RATE_LEAST: f64 = 1_500.0;
/// This part of the rate is for those behind the front, `NEXT` bytes per second each: a sender plans by its rate when its next
/// two segments leave, so when such a stream comes to the front they leave within 50 ms, and not seconds later.
const NEXT_PART: f64 = 0.2;
const NEXT: f64 = 40.0 * SEGMENT;
const SEGMENT: f64 = 1_448.0;
/// What a stream in front is expected to use soon, in relation to what it uses now. While the queue has room it may use twice
/// as much, as in slow start; those in front may so exceed the rate, up to twice.
const GROWTH: f64 = 1.1;
const GROWTH_MOST: f64 = 2.0;
/// Where streams cannot use the rate, the next ones may begin, with ten segments in a round trip (RFC 6928) each. Not all of
/// them do at once: while the queue has room they may together use this multiple of what is left.
const BEGINNING: f64 = 10.0 * SEGMENT;
const BEGINNING_PART: f64 = 2.0;

/// What a stream does with its rate.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// Bytes that are on the way.
    pub in_flight: f64,
    /// The round-trip time in seconds.
    pub rtt: f64,
    /// Whether data waits. If not, its rate is no limit.
    pub is_waiting: bool,
}

impl Use {
    /// In bytes per second.
    fn rate(self) -> f64 {
        // A stream in front sends at least a segment.
        let least = if self.is_waiting { SEGMENT } else { 0.0 };
        self.in_flight.max(least) / self.rtt
    }
}

/// The rates, in bytes per second, of streams in their order, which together have the rate `part`. `has_room`: whether the
/// leg's queue has.
pub fn in_order(part: f64, has_room: bool, streams: &[Use]) -> Vec<f64> {
    let waiting = streams.iter().filter(|of| of.is_waiting).count();
    let least = (part * LEAST_PART / waiting.max(1) as f64).max(RATE_LEAST);
    let mut next = part * NEXT_PART;
    let mut left = part - next - least * waiting as f64;
    let mut spare = if has_room { part } else { 0.0 };
    let mut rates = Vec::with_capacity(streams.len());
    for of in streams {
        if !of.is_waiting {
            // It may want more at any time, and is looked at soon after.
            left -= of.rate().min(left.max(0.0));
            rates.push(part.max(RATE_LEAST));
            continue;
        }
        let more = (GROWTH * of.rate() - least).clamp(0.0, left.max(0.0));
        left -= more;
        let soon = (NEXT - least - more).clamp(0.0, next);
        next -= soon;
        let grows = if left > 0.0 { ((GROWTH_MOST - GROWTH) * of.rate()).min(spare) } else { 0.0 };
        spare -= grows;
        rates.push(least + more + soon + grows);
    }
    let mut begins = if has_room { BEGINNING_PART } else { 1.0 } * (left.max(0.0) + next);
    for (rate, of) in rates.iter_mut().zip(streams).filter(|(_, of)| of.is_waiting) {
        let more = begins.min(BEGINNING / of.rtt);
        begins -= more;
        *rate += more;
    }
    // All have begun.
    let more = begins / waiting.max(1) as f64;
    rates.iter_mut().zip(streams).filter(|(_, of)| of.is_waiting).for_each(|(rate, _)| *rate += more);
    rates
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn streams(of: &[(f64, bool)]) -> Vec<Use> {
        of.iter().map(|&(in_flight, is_waiting)| Use { in_flight, rtt: 0.05, is_waiting }).collect()
    }

    #[test]
    fn the_first_gets_what_it_can_use_and_the_last_a_tenth_of_an_even_share() {
        // 2.5 MB/s, of which the first use 0.6 MB/s each.
        let rates = in_order(2_500_000.0, true, &streams(&[(30_000.0, true); 20]));
        assert!(rates[..2].iter().all(|rate| *rate >= 1_200_000.0), "{rates:?}");
        assert!(rates[3..].iter().all(|rate| *rate <= NEXT) && rates[19] == 12_500.0, "{rates:?}");
    }

    #[test]
    fn the_next_begin_where_those_in_front_cannot_use_the_rate() {
        let rates = in_order(2_500_000.0, true, &streams(&[(1_500.0, true); 20]));
        let begun = rates.iter().take_while(|rate| **rate > 200_000.0).count();
        assert!((4..15).contains(&begun) && rates[19] < 100_000.0, "{rates:?}");
    }

    #[test]
    fn a_stream_for_which_nothing_waits_keeps_no_rate_from_others_and_may_begin_at_once() {
        let mut all = streams(&[(0.0, false); 50]);
        all.push(Use { in_flight: 125_000.0, rtt: 0.05, is_waiting: true });
        let rates = in_order(2_500_000.0, true, &all);
        assert!(rates.iter().all(|rate| *rate > 2_000_000.0), "{rates:?}");
    }

    proptest! {
        #[test]
        fn none_starves_and_none_gets_less_for_being_in_front(
            part in 3_000.0..1e9_f64,
            of in prop::collection::vec((0.0..1e6_f64, any::<bool>()), 1..300),
        ) {
            let all = streams(&of);
            let rates = in_order(part, true, &all);
            let waiting = of.iter().filter(|(_, is_waiting)| *is_waiting).count().max(1) as f64;
            let least = (part * LEAST_PART / waiting).max(RATE_LEAST) * 0.999;
            prop_assert!(rates.iter().all(|rate| rate.is_finite() && *rate >= least));
            // Of two that use the same the first has no less.
            let same = streams(&vec![(of[0].0, true); of.len()]);
            let rates = in_order(part, true, &same);
            prop_assert!(rates.windows(2).all(|two| two[0] >= two[1] * 0.999), "{:?}", rates);
        }
    }
}
