use std::collections::VecDeque;

use ekiden_queue::{Queue, Queued, Signals};
use ekiden_units::{BitRate, Bytes, Time};
use proptest::prelude::*;

use crate::{Channel, Direction, Discipline, plain};
use ekiden_units::random::word;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Packet {
    number: usize,
    arrival: u64,
    bytes: u32,
    can_be_marked: bool,
}

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u64 {
        0
    }

    fn mark(&mut self) -> bool {
        self.can_be_marked
    }
}

/// The RFC's pseudocode with its own names, and marking where Linux has it; times in nanoseconds, the square root in floating point.
#[derive(Default)]
struct CodelQueue {
    packets: VecDeque<Packet>,
    mtu: u64,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    dropped: Vec<usize>,
    marked: u64,
}

const TARGET: u64 = 5_000_000;
const INTERVAL: u64 = 100_000_000;

impl CodelQueue {
    fn bytes(&self) -> u64 {
        self.packets.iter().map(|packet| u64::from(packet.bytes)).sum()
    }

    fn dodequeue(&mut self, now: u64) -> (Option<Packet>, bool) {
        let p = self.packets.pop_front();
        let mut ok_to_drop = false;
        match p {
            None => self.first_above_time = 0,
            Some(packet) => {
                let sojourn_time = now - packet.arrival;
                if sojourn_time < TARGET || self.bytes() <= self.mtu {
                    self.first_above_time = 0;
                } else if self.first_above_time == 0 {
                    self.first_above_time = now + INTERVAL;
                } else if now >= self.first_above_time {
                    ok_to_drop = true;
                }
            }
        }
        (p, ok_to_drop)
    }

    fn dequeue(&mut self, now: u64) -> Option<Packet> {
        let law = |t: u64, count: u32| t + (INTERVAL as f64 / f64::from(count).sqrt()) as u64;
        let (mut p, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                if p.is_some_and(|p| p.can_be_marked) {
                    self.marked += 1;
                    self.count += 1;
                    self.drop_next = law(self.drop_next, self.count);
                    return p;
                }
                self.dropped.extend(p.map(|p| p.number));
                (p, ok_to_drop) = self.dodequeue(now);
                if !ok_to_drop {
                    self.dropping = false;
                } else {
                    self.count += 1;
                    self.drop_next = law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            if p.is_some_and(|p| p.can_be_marked) {
                self.marked += 1;
            } else {
                self.dropped.extend(p.map(|p| p.number));
                (p, _) = self.dodequeue(now);
            }
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && (now as i64 - self.drop_next as i64) < 16 * INTERVAL as i64 {
                self.count = delta;
            }
            self.drop_next = law(now, self.count);
            self.lastcount = self.count;
        }
        p
    }
}

/// What comes out and when, what is dropped, and how many packets are marked, event by event.
fn reference(link: &Direction, arrivals: &[Packet]) -> (Vec<(u64, usize)>, Vec<usize>, u64) {
    let mut queue = CodelQueue { mtu: link.mtu.into(), ..CodelQueue::default() };
    let mut out = Vec::new();
    // When the serializer is free, in parts of a nanosecond of which the rate makes one.
    let (part, mut free) = (u128::from(link.rate.0), 0u128);
    let mut arrivals = arrivals.iter().copied().peekable();
    loop {
        let free_ns = (free / part) as u64;
        // If the serializer is free when a packet arrives, it dequeues first.
        let asks = !queue.packets.is_empty() && arrivals.peek().is_none_or(|packet| free_ns <= packet.arrival);
        let now = if asks {
            free_ns
        } else {
            let Some(packet) = arrivals.next() else { return (out, queue.dropped, queue.marked) };
            let waiting = queue.packets.len() as u64;
            let room = match link.queue {
                Queue::Bytes(limit) => queue.bytes() + u64::from(packet.bytes) <= limit.0,
                Queue::Packets(limit) => waiting < limit,
            };
            let idle = free_ns <= packet.arrival;
            if !room && !idle {
                queue.dropped.push(packet.number);
                continue;
            }
            queue.packets.push_back(packet);
            if !idle {
                continue;
            }
            if free_ns < packet.arrival {
                free = u128::from(packet.arrival) * part;
            }
            packet.arrival
        };
        if let Some(packet) = queue.dequeue(now) {
            free += u128::from(packet.bytes) * 8_000_000_000;
            out.push(((free / part) as u64 + link.delay.0, packet.number));
        }
    }
}

fn link(rate: u64, delay: u64, queue: Queue) -> Direction {
    Direction { rate: BitRate(rate), delay: Time(delay), queue, discipline: Discipline::Codel, ..plain::direction() }
}

/// Packets in phases of some load (in percent of the rate), after a pause each. A part of them can be marked.
fn arrivals(rate: u64, phases: &[(u64, u64, u32)], markable_percent: u64, seed: u64) -> Vec<Packet> {
    let (mut now, mut packets) = (0, Vec::new());
    for (load, pause, count) in phases {
        now += pause;
        for _ in 0..*count {
            let number = packets.len();
            let bytes = 40 + (word(seed, number as u64) % 1461) as u32;
            // A packet takes 770 bytes' time on average, and gaps are twice that at most.
            now += word(!seed, number as u64) % (2 * 770 * 800_000_000_000 / rate / load + 1);
            let can_be_marked = word(seed ^ 1 << 63, number as u64) % 100 < markable_percent;
            packets.push(Packet { number, arrival: now, bytes, can_be_marked });
        }
    }
    packets
}

/// What comes out of a channel that is looked at when it says so, and besides whenever a packet arrives if `often`.
fn run(link: &Direction, arrivals: &[Packet], often: bool) -> (Vec<(u64, usize)>, Signals) {
    let (mut channel, mut out) = (Channel::<Packet>::new(link, 1), Vec::new());
    for packet in arrivals {
        while let Some(due) = channel.next_ns().filter(|due| *due <= packet.arrival) {
            out.extend(channel.take(due).map(|packet| (due, packet.number)));
        }
        channel.offer(packet.arrival, *packet);
        if often {
            assert_eq!(channel.take(packet.arrival), None);
        }
    }
    while let Some(due) = channel.next_ns() {
        out.extend(channel.take(due).map(|packet| (due, packet.number)));
    }
    let counts = channel.counts();
    (out, Signals { drops: counts.queue_drops, marks: counts.queue_marks })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn agrees_with_the_pseudocode(
        rate in 100_000u64..200_000_000,
        delay in 0u64..300_000_000,
        queue in prop_oneof![(1_500u64..3_000_000).prop_map(|n| Queue::Bytes(Bytes(n))), (1u64..2_000).prop_map(Queue::Packets)],
        phases in prop::collection::vec((20u64..400, 0u64..2_000_000_000, 1u32..800), 1..8),
        markable_percent in prop_oneof![Just(0u64), 1u64..100, Just(100)],
        seed in any::<u64>(),
    ) {
        let link = link(rate, delay, queue);
        let arrivals = arrivals(rate, &phases, markable_percent, seed);
        let (expected, dropped, marks) = reference(&link, &arrivals);
        let (out, signals) = run(&link, &arrivals, seed % 2 == 0);
        prop_assert_eq!(signals, Signals { drops: dropped.len() as u64, marks });
        prop_assert_eq!(out, expected);
    }
}

#[test]
fn a_standing_queue_is_dropped_from_faster_and_faster_and_from_there_the_next_time() {
    // 120 % of 10 Mbit/s for 10 s, a pause, and again.
    let link = link(10_000_000, 1_000_000, Queue::Packets(10_000));
    let phases = [(120, 0, 20_000), (50, 0, 1_000), (120, 0, 20_000)];
    let packets = arrivals(10_000_000, &phases, 0, 7);
    let (expected, dropped, _) = reference(&link, &packets);
    assert!(dropped.len() > 1_000, "{} drops", dropped.len());
    assert_eq!(run(&link, &packets, false), (expected, Signals { drops: dropped.len() as u64, marks: 0 }));
}

#[test]
fn what_can_be_marked_is_marked_and_all_of_it_is_sent() {
    // 120 % of 10 Mbit/s for 10 s, with room for all.
    let link = link(10_000_000, 1_000_000, Queue::Packets(10_000));
    let (out, signals) = run(&link, &arrivals(10_000_000, &[(120, 0, 20_000)], 100, 7), false);
    assert_eq!((out.len(), signals.drops), (20_000, 0));
    assert!(signals.marks > 500, "{signals:?}");
}

#[test]
fn a_queue_shorter_than_its_target_loses_nothing() {
    let link = link(10_000_000, 0, Queue::Packets(1_000));
    // Four packets of 1500 bytes at once take 4.8 ms.
    let bursts = (0..1_000).flat_map(|n| (0..4).map(move |i| (n * 4 + i, n as u64 * 5_000_000)));
    let arrivals: Vec<_> =
        bursts.map(|(number, arrival)| Packet { number, arrival, bytes: 1500, can_be_marked: false }).collect();
    let (out, drops) = run(&link, &arrivals, false);
    assert_eq!((out.len(), drops), (4_000, Signals::default()));
}
