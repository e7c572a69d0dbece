use ekiden_queue::Queue;
use ekiden_units::{BitRate, Bytes, Fraction};
use proptest::prelude::*;

use super::{POINT, Red, decayed, spread};
use crate::{Direction, Discipline, Fate, Line, plain};
use ekiden_units::random::word;

/// Figure 2 of the paper in floating point, with the gentle variant.
struct Reference {
    min_th: f64,
    max_th: f64,
    average: f64,
    count: f64,
}

impl Reference {
    fn new(limit: f64) -> Self {
        Self { min_th: limit / 12.0, max_th: limit / 4.0, average: 0.0, count: -1.0 }
    }

    /// The probability with which the packet that arrives now is dropped.
    fn arrival(&mut self, waiting: f64, idle: Option<i32>) -> f64 {
        let weight = 1.0 / 512.0;
        match idle {
            None => self.average = (1.0 - weight) * self.average + weight * waiting,
            Some(packets) => self.average *= (1.0f64 - weight).powi(packets),
        }
        let p_b = if self.average < self.min_th {
            self.count = -1.0;
            return 0.0;
        } else if self.average < self.max_th {
            0.1 * (self.average - self.min_th) / (self.max_th - self.min_th)
        } else {
            (0.1 + 0.9 * (self.average - self.max_th) / self.max_th).min(1.0)
        };
        self.count += 1.0;
        if self.count * p_b < 1.0 { (p_b / (1.0 - self.count * p_b)).min(1.0) } else { 1.0 }
    }

    fn drop(&mut self) {
        if self.count >= 0.0 {
            self.count = 0.0;
        }
    }
}

fn link(rate: u64, queue: Queue) -> Direction {
    Direction { rate: BitRate(rate), queue, discipline: Discipline::Red, ..plain::direction() }
}

fn limit() -> impl Strategy<Value = Queue> {
    prop_oneof![(1_500u64..3_000_000).prop_map(|n| Queue::Bytes(Bytes(n))), (1u64..2_000).prop_map(Queue::Packets)]
}

/// Gaps between arrivals in parts of a packet's time, so that load comes and goes with the phases; and pauses between them.
fn phases() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
    prop::collection::vec((50u64..200, 0u64..3_000_000_000, 1u32..600), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn average_and_probability_are_those_of_floating_point(
        rate in 1_000_000u64..10_000_000_000, queue in limit(), phases in phases(), seed in any::<u64>(),
    ) {
        let mut line = Line::new(&link(rate, queue), seed);
        let limit = match queue { Queue::Bytes(bytes) => bytes.0, Queue::Packets(packets) => packets } as f64;
        let mut reference = Reference::new(limit);
        // What was sent: when it began, and its length.
        let (mut sent, mut free): (Vec<(u64, u32)>, u64) = (Vec::new(), 0);
        let packet_ns = 12_000_000_000_000 / rate;
        let (mut now, mut number) = (0, 0);
        let (mut expected, mut variance, mut drops) = (0.0, 0.0, 0.0);
        for (load, pause, packets) in phases {
            now += pause % (packet_ns * 3_000);
            for _ in 0..packets {
                number += 1;
                // 770 bytes on average.
                now += word(seed, number) % (packet_ns * 103 / load + 1);
                let bytes = 40 + (word(!seed, number) % 1461) as u32;
                let waiting: Vec<u32> = sent.iter().filter(|(start, _)| *start > now).map(|(_, bytes)| *bytes).collect();
                let waits = match queue {
                    Queue::Bytes(_) => waiting.iter().map(|bytes| f64::from(*bytes)).sum(),
                    Queue::Packets(_) => waiting.len() as f64,
                };
                let idle = (free < now).then(|| ((now - free) / packet_ns) as i32);
                let p = reference.arrival(waits, idle);
                let size = match queue { Queue::Bytes(_) => f64::from(bytes), Queue::Packets(_) => 1.0 };
                let full = waits + size > limit && free > now;
                // An idle time counts once, even if the packet that ends it is dropped.
                free = free.max(now);
                let fate = line.offer(now, bytes);
                let average = line.red.as_ref().unwrap().average as f64 / f64::from(1 << POINT);
                // Each step rounds by less than one part of 2²⁰ of the unit, and the weight forgets all but 512 steps.
                let tolerance = 512.0 / f64::from(1 << POINT) + reference.average * 1e-6;
                prop_assert!((average - reference.average).abs() <= tolerance, "{} {}", average, reference.average);
                if full {
                    prop_assert_eq!(fate, Fate::Dropped);
                } else {
                    expected += p;
                    variance += p * (1.0 - p);
                    drops += f64::from(u8::from(fate == Fate::Dropped));
                    prop_assert!(p > 0.0 || fate != Fate::Dropped || reference.average > reference.min_th * 0.999);
                }
                match fate {
                    Fate::Dropped => reference.drop(),
                    _ => {
                        sent.push((free, bytes));
                        let Fate::Arrives { due_ns } = fate else { unreachable!() };
                        free = due_ns;
                    }
                }
            }
        }
        // Drops less their probabilities are a martingale; six standard deviations, and one drop for those that round.
        prop_assert!((drops - expected).abs() <= 6.0 * f64::sqrt(variance) + 1.0, "{} drops, not {}", drops, expected);
    }

    #[test]
    fn idle_time_counts_as_packets_that_found_the_queue_empty(average in 0u64..1 << 60, packets in 0u64..20_000) {
        let exact = average as f64 * (511.0f64 / 512.0).powi(packets as i32);
        let difference = (decayed(average, packets) as f64 - exact).abs();
        // The factor is exact to some parts of 2³².
        prop_assert!(difference <= 1.0 + average as f64 * 64.0 / 4e9, "{} {}", difference, exact);
    }

    #[test]
    fn nothing_panics_whatever_the_values(
        limit in any::<u64>(), packet_ns in any::<u64>(), arrivals in prop::collection::vec(any::<(u64, Option<u64>, bool)>(), 1..50),
    ) {
        let mut red = Red::new(Queue::Packets(limit), packet_ns, 1);
        for (waiting, idle, room) in arrivals {
            let drops = red.drops(waiting, idle, room);
            prop_assert!(room || drops);
        }
    }
}

#[test]
fn between_two_drops_all_numbers_of_packets_are_equally_likely() {
    // With p = 1/10: each of 1 to 10 packets in a tenth of the cases.
    let p = Fraction(100_000_000);
    let mut still = 1.0;
    for count in 0..10 {
        let dropped = still * spread(p, count).as_f64();
        assert!((dropped - 0.1).abs() < 1e-6, "{count}: {dropped}");
        still -= dropped;
    }
    assert_eq!(spread(p, 10), Fraction::ONE);
    assert_eq!(spread(Fraction::ONE, 0), Fraction::ONE);
    assert_eq!(spread(Fraction(0), 1000), Fraction(0));
}

#[test]
fn a_queue_that_stays_long_is_dropped_more_and_more_and_then_wholly() {
    let mut red = Red::new(Queue::Packets(120), 1, 1);
    let mut part = |waiting| {
        (0..20_000).for_each(|_| {
            red.drops(waiting, None, true);
        });
        (0..20_000).filter(|_| red.drops(waiting, None, true)).count() as f64 / 20_000.0
    };
    // Below min_th.
    assert_eq!(part(9), 0.0);
    // Midway to max_th, p_b is 1/20. The first packet after a drop counts already, so 1 to 19 are equally likely: 10.
    let midway = part(20);
    assert!((midway - 0.1).abs() < 0.01, "{midway}");
    // A sixth of the way from max_th to twice that, p_b is 1/4: 1 to 3 are equally likely.
    let steep = part(35);
    assert!((steep - 0.5).abs() < 0.01, "{steep}");
    // From p_b = 1/2 on, the first is dropped.
    assert_eq!(part(45), 1.0);
    assert_eq!(part(61), 1.0);
}
