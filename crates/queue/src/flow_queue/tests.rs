use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MTU: u32 = 1_500;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Packet {
    number: usize,
    flow: u64,
    bytes: u32,
    can_be_marked: bool,
}

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u64 {
        self.flow
    }

    fn mark(&mut self) -> bool {
        self.can_be_marked
    }
}

fn queue(most: u64) -> FlowQueue<Packet> {
    FlowQueue::new(Queue::Packets(most), MTU, CodelTimes::default(), 1)
}

/// What comes out when all of these have arrived at once.
fn order(packets: &[(u64, u32)], take: usize) -> Vec<u64> {
    let mut queue = queue(10_000);
    for (number, &(flow, bytes)) in packets.iter().enumerate() {
        queue.push(0, Packet { number, flow, bytes, can_be_marked: false });
    }
    (0..take).filter_map(|_| queue.pop(0, &mut Signals::default())).map(|(_, packet)| packet.flow).collect()
}

#[test]
fn flows_have_equal_bytes_whatever_their_packets() {
    // One flow of full packets, one of a third: three of the second for one of the first.
    let packets: Vec<(u64, u32)> = [vec![(1, 1500); 100], vec![(2, 500); 300]].concat();
    let first = order(&packets, 200);
    let of = |flow| first.iter().filter(|other| **other == flow).count();
    assert_eq!((of(1), of(2)), (50, 150));
}

#[test]
fn super_packets_have_no_more_bytes_than_small_ones() {
    // One flow of super-packets of 64 KB, two of packets that fit the MTU: the debt of a super-packet is 43 turns of the others.
    let packets: Vec<(u64, u32)> = [vec![(1, 64_500); 20], vec![(2, 1500); 900], vec![(3, 60); 22_000]].concat();
    let mut queue = queue(100_000);
    for (number, &(flow, bytes)) in packets.iter().enumerate() {
        queue.push(0, Packet { number, flow, bytes, can_be_marked: false });
    }
    let mut bytes = [0u32; 4];
    while bytes[1..].iter().sum::<u32>() < 3_000_000 {
        let (_, packet) = queue.pop(0, &mut Signals::default()).unwrap();
        bytes[packet.flow as usize] += packet.bytes;
        let (least, most) = (bytes[1..].iter().min().unwrap(), bytes[1..].iter().max().unwrap());
        assert!(most - least <= 64_500 + 2 * MTU, "{bytes:?}");
    }
    // A flow that begins to wait behind them all is served next but for the packet that has its turn.
    queue.push(0, Packet { number: 0, flow: 4, bytes: 60, can_be_marked: false });
    assert!((0..2).any(|_| queue.pop(0, &mut Signals::default()).unwrap().1.flow == 4));
}

#[test]
fn a_lone_flow_of_super_packets_does_not_escape_its_debt_by_being_empty_at_times() {
    // It has one packet waiting at a time, the other a backlog: both have the same bytes nevertheless.
    let mut queue = queue(100_000);
    for number in 0..3_000 {
        queue.push(0, Packet { number, flow: 2, bytes: 1500, can_be_marked: false });
    }
    let (mut bytes, mut waits) = ([0u32; 3], false);
    while bytes[2] < 2_000_000 {
        if !waits {
            queue.push(0, Packet { number: 0, flow: 1, bytes: 64_500, can_be_marked: false });
            waits = true;
        }
        let (_, packet) = queue.pop(0, &mut Signals::default()).unwrap();
        waits &= packet.flow != 1;
        bytes[packet.flow as usize] += packet.bytes;
    }
    assert!(bytes[1].abs_diff(bytes[2]) <= 2 * 64_500, "{bytes:?}");
}

#[test]
fn a_packet_of_a_flow_that_has_none_waiting_comes_before_the_backlog() {
    let mut queue = queue(10_000);
    for number in 0..100 {
        queue.push(0, Packet { number, flow: 1, bytes: 1500, can_be_marked: false });
    }
    let turn = |queue: &mut FlowQueue<Packet>| queue.pop(0, &mut Signals::default()).unwrap().1.flow;
    // The backlog's first turn is as that of a new flow.
    assert_eq!([turn(&mut queue), turn(&mut queue)], [1, 1]);
    queue.push(0, Packet { number: 100, flow: 2, bytes: 100, can_be_marked: false });
    assert_eq!([turn(&mut queue), turn(&mut queue)], [2, 1]);
    // It is no longer new: from now on it has its turns like the other.
    queue.push(0, Packet { number: 101, flow: 2, bytes: 1500, can_be_marked: false });
    queue.push(0, Packet { number: 102, flow: 2, bytes: 1500, can_be_marked: false });
    let next: Vec<u64> = (0..4).map(|_| turn(&mut queue)).collect();
    assert_eq!(next.iter().filter(|flow| **flow == 2).count(), 2, "{next:?}");
}

#[test]
fn what_is_too_much_is_taken_from_the_head_of_the_longest_flow_half_of_it_at_a_time() {
    let mut queue = queue(10);
    for number in 0..10 {
        queue.push(0, Packet { number, flow: 1, bytes: 1500, can_be_marked: false });
    }
    assert_eq!(queue.push(0, Packet { number: 10, flow: 2, bytes: 1500, can_be_marked: false }), 5);
    assert_eq!((queue.packets(), queue.bytes()), (6, 9_000));
    // The head went: it has waited longest, and its loss is seen first.
    assert_eq!(queue.pop(0, &mut Signals::default()).unwrap().1.number, 5);
}

#[test]
fn no_more_than_a_batch_is_dropped_at_a_time() {
    let mut queue = queue(1_000);
    let drops = (0..1_001).map(|number| queue.push(0, Packet { number, flow: 1, bytes: 1500, can_be_marked: false }));
    assert_eq!(drops.sum::<u64>(), 64);
}

#[test]
fn many_flows_do_not_keep_two_packets_each_waiting() {
    // 10 Mbit/s, and 32 flows in turn that keep 64 packets waiting: 77 ms, which CoDel does not let stand although no flow has
    // much more than one packet behind its head.
    let (mut queue, mut signals, mut flow) = (queue(1_000), Signals::default(), 0);
    for step in 0..5_000u64 {
        let now = step * 1_200_000;
        while queue.packets() < 64 {
            flow = (flow + 1) % 32;
            queue.push(now, Packet { number: 0, flow, bytes: 1500, can_be_marked: false });
        }
        queue.pop(now, &mut signals).unwrap();
    }
    assert!(signals.drops > 500, "{signals:?}");
}

#[test]
fn codel_drops_of_the_flow_that_fills_the_queue_and_not_of_the_one_that_does_not() {
    // 10 Mbit/s: 1.2 ms a packet. One flow sends a tenth more than its half, the other 50 packets a second.
    let mut queue = queue(10_000);
    let (mut sent, mut arrived, mut lost) = ([0; 2], [0; 2], Signals::default());
    for step in 0..20_000u64 {
        let now = step * 1_200_000;
        let fast = 1 + u64::from(step % 10 == 0);
        for _ in 0..fast {
            arrived[0] += 1;
            queue.push(now, Packet { number: 0, flow: 1, bytes: 1500, can_be_marked: false });
        }
        if step % 17 == 0 {
            arrived[1] += 1;
            queue.push(now, Packet { number: 0, flow: 2, bytes: 100, can_be_marked: false });
        }
        if let Some((arrival, packet)) = queue.pop(now, &mut lost) {
            sent[packet.flow as usize - 1] += 1;
            assert!(packet.flow == 1 || now - arrival <= 2 * 1_200_000, "{} ns", now - arrival);
        }
    }
    assert!(lost.drops > 1_000 && arrived[1] == sent[1], "{lost:?}, {arrived:?}, {sent:?}");
}

proptest! {
    #[test]
    fn nothing_is_lost_uncounted_and_every_flow_stays_in_order(
        packets in prop::collection::vec((0u64..6, 1u32..=MTU, 0u64..20, 0u8..4, any::<bool>()), 1..400),
    ) {
        let mut queue = queue(20);
        let (mut now, mut codel, mut limit_drops, mut out) = (0, Signals::default(), 0, Vec::new());
        for (number, &(flow, bytes, wait_ms, pops, can_be_marked)) in packets.iter().enumerate() {
            now += wait_ms * 1_000_000;
            limit_drops += queue.push(now, Packet { number, flow, bytes, can_be_marked });
            for _ in 0..pops {
                out.extend(queue.pop(now, &mut codel).map(|(_, packet)| packet));
            }
            prop_assert!(queue.packets() <= 20);
        }
        while let Some((_, packet)) = queue.pop(now, &mut codel) {
            out.push(packet);
        }
        prop_assert_eq!((queue.packets(), queue.bytes()), (0, 0));
        prop_assert_eq!(out.len() as u64 + codel.drops + limit_drops, packets.len() as u64);
        // A packet is marked once at most, when it comes out.
        prop_assert!(codel.marks <= out.iter().filter(|packet| packet.can_be_marked).count() as u64);
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for packet in out {
            if let Some(before) = last.insert(packet.flow, packet.number) {
                prop_assert!(before < packet.number);
            }
        }
    }
}
