use ekiden_queue::Queue;
use ekiden_units::{BitRate, Bytes, Fraction, Time};
use proptest::prelude::*;

use super::{Fate, Line, QueueLength};
use crate::{Direction, plain};

fn link(rate: u64, delay: u64, queue: Queue, loss: u64) -> Direction {
    Direction { rate: BitRate(rate), delay: Time(delay), queue, loss: Fraction(loss), ..plain::direction() }
}

/// Gaps between arrivals and lengths of packets.
fn traffic() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((0u64..3_000_000, 20u32..1500), 1..300)
}

fn queue() -> impl Strategy<Value = Queue> {
    prop_oneof![(0u64..100_000).prop_map(|n| Queue::Bytes(Bytes(n))), (0u64..60).prop_map(Queue::Packets)]
}

proptest! {
    #[test]
    fn agrees_with_a_queue_simulated_in_exact_fractions(
        rate in 1_000u64..10_000_000_000, delay in 0u64..1_000_000_000, queue in queue(), traffic in traffic(),
    ) {
        let mut line = Line::new(&link(rate, delay, queue, 0), 1);
        // Times in parts of 1 / rate nanoseconds, so that nothing is ever rounded.
        let part = u128::from(rate);
        let (mut now, mut free) = (0u64, 0u128);
        let mut starts: Vec<(u128, u32)> = Vec::new();
        for (gap, bytes) in traffic {
            // Looking at the queue between two arrivals shows what waits, and changes nothing.
            let look = now + gap / 2;
            let waiting: Vec<_> = starts.iter().filter(|(start, _)| start / part > u128::from(look)).collect();
            let waiting_bytes: u64 = waiting.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
            prop_assert_eq!(line.waiting(look), QueueLength { packets: waiting.len() as u64, bytes: waiting_bytes });
            now += gap;
            let arrival = u128::from(now) * part;
            let waiting: Vec<_> = starts.iter().filter(|(start, _)| start / part > u128::from(now)).collect();
            let waiting_bytes: u64 = waiting.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
            let idle = free / part <= u128::from(now);
            let room = match queue {
                Queue::Bytes(limit) => waiting_bytes + u64::from(bytes) <= limit.0,
                Queue::Packets(limit) => (waiting.len() as u64) < limit,
            };
            let fate = line.offer(now, bytes);
            if idle || room {
                let start = free.max(arrival);
                starts.push((start, bytes));
                free = start + u128::from(bytes) * 8_000_000_000;
                prop_assert_eq!(fate, Fate::Arrives { due_ns: (free / part) as u64 + delay });
            } else {
                prop_assert_eq!(fate, Fate::Dropped);
            }
            match queue {
                Queue::Bytes(limit) => prop_assert!(line.waiting_bytes() <= limit.0),
                Queue::Packets(limit) => prop_assert!(line.waiting_packets() <= limit),
            }
        }
    }

    #[test]
    fn keeps_order_whatever_the_clock_does(queue in queue(), traffic in prop::collection::vec((0u64..1_000_000_000, 20u32..1500), 1..300)) {
        let mut line = Line::new(&link(10_000_000, 5_000_000, queue, 0), 1);
        let mut last = 0;
        for (arrival, bytes) in traffic {
            if let Fate::Arrives { due_ns } = line.offer(arrival, bytes) {
                prop_assert!(due_ns >= last);
                last = due_ns;
            }
        }
    }
}

#[test]
fn a_saturated_line_carries_its_rate_exactly() {
    // 1500 bytes at 7 Mbit/s are not a whole number of nanoseconds.
    let mut line = Line::new(&link(7_000_000, 0, Queue::Packets(u64::MAX), 0), 1);
    let last = (0..700_000).map(|_| line.offer(0, 1500)).last();
    assert_eq!(last, Some(Fate::Arrives { due_ns: 1_200_000_000_000 }));
}

#[test]
fn an_idle_line_adds_transmission_and_delay_only() {
    let mut line = Line::new(&link(8_000_000, 12_500_000, Queue::Bytes(Bytes(0)), 0), 1);
    assert_eq!(line.offer(1_000_000, 1000), Fate::Arrives { due_ns: 1_000_000 + 1_000_000 + 12_500_000 });
    assert_eq!(line.offer(1_500_000, 1000), Fate::Dropped);
    assert_eq!(line.offer(2_000_000, 1000), Fate::Arrives { due_ns: 2_000_000 + 1_000_000 + 12_500_000 });
}

#[test]
fn jitter_delays_each_packet_by_up_to_itself_and_keeps_their_order() {
    const JITTER_NS: u64 = 3_000_000;
    let due = |gap_ns: u64, jitter_ns: u64, seed: u64| -> Vec<u64> {
        let link = Direction { jitter: Time(jitter_ns), ..link(1_000_000_000, 5_000_000, Queue::Packets(u64::MAX), 0) };
        let mut line = Line::new(&link, seed);
        let offer = |n| match line.offer(n * gap_ns, 1500) {
            Fate::Arrives { due_ns } => due_ns,
            fate => panic!("{fate:?}"),
        };
        (0..10_000).map(offer).collect()
    };
    // Far apart: each as late as it falls.
    let late: Vec<_> =
        due(10_000_000, JITTER_NS, 1).iter().zip(due(10_000_000, 0, 1)).map(|(with, without)| with - without).collect();
    assert!(late.iter().all(|late| *late <= JITTER_NS));
    let mean_ns = late.iter().sum::<u64>() / 10_000;
    assert!((1_450_000..1_550_000).contains(&mean_ns), "{mean_ns}");
    assert!(late.iter().any(|late| *late < JITTER_NS / 100) && late.iter().any(|late| *late > JITTER_NS / 100 * 99));
    // Close together: none overtakes.
    let close = due(20_000, JITTER_NS, 1);
    assert!(close.is_sorted());
    assert!(close.iter().zip(due(20_000, 0, 1)).all(|(with, without)| (without..=without + JITTER_NS).contains(with)));
    assert_eq!(close, due(20_000, JITTER_NS, 1));
    assert_ne!(close, due(20_000, JITTER_NS, 2));
}

#[test]
fn loses_the_said_part_the_same_way_for_the_same_seed() {
    let lost = |seed| -> Vec<bool> {
        let mut line = Line::new(&link(1_000_000_000, 0, Queue::Packets(u64::MAX), 10_000_000), seed);
        (0..100_000).map(|_| line.offer(0, 1500) == Fate::Lost).collect()
    };
    assert_eq!(lost(1), lost(1));
    assert_ne!(lost(1), lost(2));
    let count = lost(1).iter().filter(|lost| **lost).count();
    assert!((900..1100).contains(&count), "1 % of 100,000 is not {count}");
}

#[test]
fn absurd_values_neither_panic_nor_wrap() {
    let mut line = Line::new(&link(1, u64::MAX, Queue::Bytes(Bytes(u64::MAX)), 0), 1);
    for _ in 0..10 {
        assert_eq!(line.offer(u64::MAX - 1, u32::MAX), Fate::Arrives { due_ns: u64::MAX });
    }
}
