use ekiden_queue::{Queue, Queued};
use ekiden_units::{BitRate, Bytes, Time};
use proptest::prelude::*;

use crate::{Channel, Direction, Discipline, Fate, Line, Policer as Limits, plain};

#[derive(Debug, Clone, Copy)]
struct Packet(u32);

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        self.0
    }

    fn flow(&self) -> u64 {
        0
    }
}

fn link(rate: u64, burst: u64, discipline: Discipline) -> Direction {
    Direction {
        rate: BitRate(10_000_000_000),
        delay: Time::ms(1),
        queue: Queue::Packets(10_000_000),
        discipline,
        policer: Some(Limits { rate: BitRate(rate), burst: Bytes(burst) }),
        ..plain::direction()
    }
}

#[test]
fn a_burst_passes_and_then_the_rate() {
    // 12 Mbit/s: a packet of 1500 bytes in each millisecond.
    let mut line = Line::new(&link(12_000_000, 15_000, Discipline::DropTail), 1);
    let mut passed = |now_ns: u64| line.offer(now_ns, 1500) != Fate::Policed;
    assert_eq!((0..20).filter(|_| passed(0)).count(), 10);
    assert!(!passed(999_999) && passed(1_000_000) && !passed(1_000_001));
    // A second of silence fills the bucket, and no more.
    assert_eq!((0..20).filter(|_| passed(1_001_000_000)).count(), 10);
}

proptest! {
    /// In every interval no more bytes pass than the rate allows and the burst on top, and none is dropped that could have passed.
    #[test]
    fn what_passes_keeps_to_rate_and_burst(
        rate in 1_000u64..10_000_000_000, burst in 1500u64..100_000,
        traffic in prop::collection::vec((0u64..3_000_000, 20u32..1500), 1..200),
    ) {
        let mut line = Line::new(&link(rate, burst, Discipline::DropTail), 1);
        let mut passed: Vec<(u64, u32)> = Vec::new();
        let mut now = 0;
        // Whether the packets since each earlier one, and `bytes` more, are within the bucket that was full then at most.
        let allowed = |passed: &[(u64, u32)], now: u64, bytes: u32| {
            let mut sum = u128::from(bytes);
            passed.iter().rev().all(|(at, earlier)| {
                sum += u128::from(*earlier);
                sum * 8_000_000_000 <= u128::from(burst) * 8_000_000_000 + u128::from(now - at) * u128::from(rate)
            }) && u64::from(bytes) <= burst
        };
        for (gap, bytes) in traffic {
            now += gap;
            let passes = line.offer(now, bytes) != Fate::Policed;
            prop_assert_eq!(passes, allowed(&passed, now, bytes));
            if passes {
                passed.push((now, bytes));
            }
        }
    }
}

#[test]
fn every_discipline_has_it_and_it_is_counted() {
    for discipline in [Discipline::DropTail, Discipline::Red, Discipline::Codel, Discipline::FqCodel] {
        let mut channel = Channel::new(&link(12_000_000, 15_000, discipline), 1);
        (0..20).for_each(|_| channel.offer(0, Packet(1500)));
        while let Some(next_ns) = channel.next_ns() {
            channel.take(next_ns);
        }
        let counts = channel.counts();
        assert_eq!((counts.packets, counts.policer_drops, counts.queue_drops), (10, 10, 0), "{discipline:?}");
    }
}
