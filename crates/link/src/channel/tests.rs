use ekiden_queue::{Queue, QueueLength, Queued};
use ekiden_units::{BitRate, Bytes, Fraction, Time};
use proptest::prelude::*;

use super::Channel;
use crate::{Change, Direction, Discipline, Outage, plain};

#[derive(Debug, Clone, Copy)]
struct Packet {
    number: usize,
    arrival: u64,
    bytes: u32,
}

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u64 {
        0
    }
}

fn links() -> impl Strategy<Value = Direction> {
    let queue =
        prop_oneof![(1_500u64..1_000_000).prop_map(|n| Queue::Bytes(Bytes(n))), (1u64..600).prop_map(Queue::Packets)];
    let discipline =
        prop::sample::select(vec![Discipline::DropTail, Discipline::Red, Discipline::Codel, Discipline::FqCodel]);
    let loss = prop_oneof![Just(0), 0u64..500_000_000, Just(1_000_000_000)];
    let jitter = prop_oneof![Just(0), 0u64..50_000_000];
    (10_000u64..1_000_000_000, 0u64..500_000_000, jitter, queue, discipline, loss, 1u32..20).prop_map(
        |(rate, delay, jitter, queue, discipline, loss, loss_burst)| Direction {
            rate: BitRate(rate),
            delay: Time(delay),
            jitter: Time(jitter),
            queue,
            discipline,
            loss: Fraction(loss),
            loss_burst,
            ..plain::direction()
        },
    )
}

/// Lengths, and gaps in tenths of the time that 800 bytes take to send.
fn traffic() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((prop_oneof![Just(0u64), 0u64..12, 0u64..400], 20u32..=1500), 1..1_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn packets_keep_order_and_rate_and_limit_and_none_is_forgotten(link in links(), traffic in traffic(), seed in any::<u64>()) {
        let mut channel = Channel::new(&link, seed);
        let mut out: Vec<(u64, Packet)> = Vec::new();
        let (mut now, offered) = (0, traffic.len() as u64);
        let take = |channel: &mut Channel<Packet>, due: u64, out: &mut Vec<_>| {
            out.extend(channel.take(due).map(|packet| (due, packet)));
        };
        for (number, (gap, bytes)) in traffic.into_iter().enumerate() {
            now += gap * 640_000_000_000 / link.rate.0;
            while let Some(due) = channel.next_ns().filter(|due| *due <= now) {
                take(&mut channel, due, &mut out);
            }
            let planned = channel.next_ns();
            channel.offer(now, Packet { number, arrival: now, bytes });
            // What was planned stays true.
            prop_assert!(planned.is_none() || channel.next_ns() == planned);
        }
        while let Some(due) = channel.next_ns() {
            take(&mut channel, due, &mut out);
        }

        let counts = *channel.counts();
        prop_assert_eq!(counts.packets, out.len() as u64);
        prop_assert_eq!(counts.bytes, out.iter().map(|(_, packet)| u64::from(packet.bytes)).sum::<u64>());
        prop_assert_eq!(counts.packets + counts.queue_drops + counts.random_losses, offered);
        match link.queue {
            Queue::Bytes(limit) => prop_assert!(counts.queue_max_bytes <= limit.0),
            Queue::Packets(limit) => prop_assert!(counts.queue_max_packets <= limit),
        }
        let takes = |bytes: u64| u128::from(bytes) * 8_000_000_000 / u128::from(link.rate.0);
        for (due, packet) in &out {
            prop_assert!(u128::from(*due) >= u128::from(packet.arrival) + takes(packet.bytes.into()) + u128::from(link.delay.0));
        }
        // What is neither sending nor delay is waiting; both are rounded down.
        prop_assert_eq!(counts.sent, counts.packets + counts.random_losses);
        if link.jitter.0 == 0 && counts.random_losses == 0 {
            let passing = |(due, packet): &(u64, Packet)| {
                u128::from(due - packet.arrival - link.delay.0) - takes(packet.bytes.into())
            };
            let waited: u128 = out.iter().map(passing).sum();
            prop_assert!(waited.abs_diff(counts.waited_ns.into()) <= 2 * u128::from(counts.sent));
        }
        for window in out.windows(2) {
            prop_assert!(window[0].1.number < window[1].1.number && window[0].0 <= window[1].0);
        }
        // From any packet to any later one no more has come out than the serializer sends and jitter holds back. Times are
        // rounded down.
        for step in [1, 2, 7, 100] {
            for window in out.windows(step + 1) {
                let bytes = window[1..].iter().map(|(_, packet)| u64::from(packet.bytes)).sum();
                prop_assert!(u128::from(window[step].0 - window[0].0 + link.jitter.0) + 1 >= takes(bytes));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn looking_at_the_queue_shows_every_packet_and_changes_nothing(
        link in links(), traffic in traffic(), seed in any::<u64>(), looks in prop::collection::vec(0u64..4, 1..50),
    ) {
        let (mut alone, mut watched) = (Channel::new(&link, seed), Channel::new(&link, seed));
        let (mut now, mut largest) = (0, 0);
        for (number, (gap, bytes)) in traffic.into_iter().enumerate() {
            let next = now + gap * 640_000_000_000 / link.rate.0;
            // The looks and the deliveries up to the next arrival, in the order of time.
            let look = now + (next - now) * looks[number % looks.len()] / 4;
            let mut looked = false;
            loop {
                let due = alone.next_ns().filter(|due| *due <= next);
                prop_assert_eq!(watched.next_ns().filter(|due| *due <= next), due);
                if !looked && due.is_none_or(|due| look <= due) {
                    looked = true;
                    let waiting = watched.waiting(look);
                    prop_assert_eq!(waiting.packets == 0, waiting.bytes == 0);
                    prop_assert!(waiting.packets * 20 <= waiting.bytes && waiting.bytes <= waiting.packets * 1500);
                    let counts = watched.counts();
                    prop_assert!(counts.packets + counts.queue_drops + waiting.packets <= number as u64);
                    largest = largest.max(waiting.packets);
                    continue;
                }
                let Some(due) = due else { break };
                let [a, b] = [&mut alone, &mut watched].map(|channel: &mut Channel<Packet>| channel.take(due).map(|packet| packet.number));
                prop_assert_eq!(a, b);
            }
            now = next;
            for channel in [&mut alone, &mut watched] {
                channel.offer(now, Packet { number, arrival: now, bytes });
            }
        }
        while let Some(due) = alone.next_ns() {
            prop_assert_eq!(watched.next_ns(), Some(due));
            let [a, b] = [&mut alone, &mut watched].map(|channel: &mut Channel<Packet>| channel.take(due).map(|packet| packet.number));
            prop_assert_eq!(a, b);
        }
        prop_assert_eq!(watched.waiting(u64::MAX), QueueLength::default());
        prop_assert_eq!(alone.counts(), watched.counts());
        prop_assert!(largest <= alone.counts().queue_max_packets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// With changes, outages and packets out of order too, each packet comes out once or is counted, and never early.
    #[test]
    fn no_packet_is_forgotten_whatever_the_schedule_is(
        link in links(), traffic in traffic(), seed in any::<u64>(), part in 0u64..1_000_000_000,
        steps in prop::collection::vec((1u64..1_000_000_000, 10_000u64..1_000_000_000, 0u64..500_000_000), 0..8),
        outages in prop::collection::vec((1u64..1_000_000_000, 1u64..1_000_000_000), 0..8),
    ) {
        let mut at = 0;
        let changes = steps.into_iter().map(|(gap, rate, delay)| {
            at += gap;
            Change { at: Time(at), rate: Some(BitRate(rate)), delay: Some(Time(delay)) }
        }).collect();
        let mut at = 0;
        let outages = outages.into_iter().map(|(gap, lasts)| {
            at += gap + lasts;
            Outage { at: Time(at - lasts), lasts: Time(lasts) }
        }).collect();
        let by = Some(Time::ms(20));
        let link = Direction { reorder: Fraction(part), reorder_by: by, changes, outages, ..link };
        let mut channel = Channel::new(&link, seed);
        let (mut now, mut last, offered) = (0, 0, traffic.len() as u64);
        let mut out = Vec::new();
        for (number, (gap, bytes)) in traffic.into_iter().enumerate() {
            now += gap * 640_000_000_000 / link.rate.0;
            while let Some(due) = channel.next_ns().filter(|due| *due <= now) {
                prop_assert!(due >= last);
                last = due;
                out.extend(channel.take(due).map(|packet| (due, packet)));
            }
            channel.offer(now, Packet { number, arrival: now, bytes });
        }
        while let Some(due) = channel.next_ns() {
            out.extend(channel.take(due).map(|packet| (due, packet)));
        }
        let counts = *channel.counts();
        prop_assert_eq!(counts.packets, out.len() as u64);
        prop_assert_eq!(counts.packets + counts.queue_drops + counts.random_losses + counts.outage_losses, offered);
        for (due, packet) in &out {
            prop_assert!(*due >= packet.arrival + link.least_delay().0);
        }
        out.sort_unstable_by_key(|(_, packet)| packet.number);
        prop_assert!(out.windows(2).all(|pair| pair[0].1.number < pair[1].1.number), "one came twice");
    }
}

#[test]
fn an_arrival_before_the_previous_one_counts_as_simultaneous() {
    for discipline in [Discipline::DropTail, Discipline::Red, Discipline::Codel] {
        let mut channel = Channel::new(&Direction { rate: BitRate(8_000_000), discipline, ..plain::direction() }, 1);
        channel.offer(5_000_000, Packet { number: 0, arrival: 0, bytes: 1000 });
        channel.offer(1_000_000, Packet { number: 1, arrival: 0, bytes: 1000 });
        let due: Vec<_> = std::iter::from_fn(|| {
            let due = channel.next_ns()?;
            channel.take(due).map(|packet| (due, packet.number))
        })
        .collect();
        assert_eq!(due, [(6_000_000, 0), (7_000_000, 1)]);
    }
}
