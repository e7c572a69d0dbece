//! The tables of streams, groups, the keeper's word, and events.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ekiden_gateway::kernel::{EventKind, Found, Gateway, GatewayError, Group, Idle, KEPT, Settings};
use ekiden_window_balance::{Direction, flags};
use libtest_mimic::Failed;

use crate::both::{Both, SEGMENT, paper, settings};
use crate::frames::{Ends, Shape, scale};

/// How many lose their places in a whole sweep.
fn swept(gateway: &Gateway, idle: Idle) -> Result<u64, GatewayError> {
    gateway.sweep(idle).sum()
}

fn syn(ends: Ends) -> Vec<u8> {
    Shape { flags: flags::SYN, seq: 0, options: scale(3), ..ends.shape(Direction::Data) }.frame()
}

pub fn without_its_keeper_packets_pass_untouched() -> Result<(), Failed> {
    let mut both = Both::new(paper());
    let ends = Ends::ipv4(5000);
    let acked = both.throttled(ends);
    let shape = Shape { ack: 1 + acked, ..ends.shape(Direction::Acks) };
    let frame = shape.frame();
    assert_ne!(both.shape(Direction::Acks, &shape), frame, "it is kept");
    let counters = both.gateway.counters()?;
    both.gateway.rest()?;
    assert_eq!(both.gateway.run(Direction::Acks, &frame, 0, 1)?.frame, frame, "the keeper has taken its word back");
    both.gateway.run(Direction::Data, &syn(Ends::ipv4(5001)), 0, 1)?;
    assert_eq!(both.gateway.streams()?.len(), 1, "no stream begins");
    assert_eq!(both.gateway.counters()?.unkept, 2);
    assert_eq!(both.gateway.counters()?.tracked, counters.tracked);
    both.gateway.renew()?;
    assert_ne!(both.shape(Direction::Acks, &shape), frame, "it is kept again");
    sleep(KEPT + Duration::from_millis(50));
    assert_eq!(both.gateway.run(Direction::Acks, &frame, 0, 1)?.frame, frame, "its word is too old");
    Ok(())
}

pub fn a_full_table_leaves_new_streams_alone() -> Result<(), Failed> {
    let gateway = Gateway::load(&Settings { streams4: 8, streams6: 1, ..settings(paper()) })?;
    gateway.keep_always()?;
    for port in 1..=11 {
        let frame = syn(Ends::ipv4(port));
        assert_eq!(gateway.run(Direction::Data, &frame, 0, 1)?.frame, frame);
    }
    let counters = gateway.counters()?;
    assert_eq!((counters.begun, counters.full, gateway.streams()?.len()), (8, 3, 8));
    assert_eq!(gateway.counted_streams()?, 8);
    // Those that are there go on, and have not made place.
    let mut ports: Vec<u16> = gateway.streams()?.iter().map(|stream| stream.sender.port()).collect();
    ports.sort_unstable();
    assert_eq!(ports, (1..=8).collect::<Vec<_>>());
    // That of IPv6 is another.
    for port in 1..=2 {
        gateway.run(Direction::Data, &syn(Ends::ipv6(port)), 0, 1)?;
    }
    assert_eq!((gateway.counters()?.full, gateway.streams()?.len()), (4, 9));
    // The sweeper makes place: none of them has a SYN-ACK.
    let mut sweep = gateway.sweep(Idle::default());
    assert_eq!(sweep.by_ref().sum::<Result<u64, _>>()?, 0);
    assert_eq!(sweep.found(), Found { ipv4: 8, ipv6: 1 });
    sleep(Duration::from_millis(2200));
    let now = Idle { opening: Duration::ZERO, ..Idle::default() };
    assert_eq!(swept(&gateway, now)?, 9);
    gateway.run(Direction::Data, &syn(Ends::ipv4(99)), 0, 1)?;
    assert_eq!(gateway.streams()?.len(), 1);
    Ok(())
}

pub fn open_streams_keep_their_places_for_longer() -> Result<(), Failed> {
    let mut both = Both::new(paper());
    both.open(Ends::ipv4(1));
    both.open(Ends::ipv6(2));
    sleep(Duration::from_millis(2200));
    let streams = both.gateway.streams()?;
    assert!(streams.iter().all(|stream| (1..=4).contains(&stream.idle.as_secs())), "{streams:?}");
    assert_eq!(swept(&both.gateway, Idle { opening: Duration::ZERO, ..Idle::default() })?, 0);
    // One has a packet in the meantime.
    both.data(Ends::ipv6(2), 0);
    assert_eq!(swept(&both.gateway, Idle { open: Duration::from_millis(1100), ..Idle::default() })?, 1);
    assert_eq!(both.gateway.streams()?[0].sender, Ends::ipv6(2).sender);
    Ok(())
}

pub fn streams_come_to_the_most_specific_group() -> Result<(), Failed> {
    let group = |source: &str, destination: &str| Group {
        sources: source.split(' ').map(|net| net.parse().expect("a network")).collect(),
        destinations: destination.split(' ').map(|net| net.parse().expect("a network")).collect(),
        ..Group::default()
    };
    let groups = vec![
        group("10.0.0.0/8 fd00::/16", "0.0.0.0/0 ::/0"),
        group("10.1.0.0/16", "0.0.0.0/0"),
        Group { source_ports: 100..=199, ..group("10.1.0.0/16", "192.0.2.0/24") },
        Group { destination_ports: 443..=443, ..group("fd00::/16", "fd00:0:0:2::/64") },
    ];
    let gateway = Gateway::load(&Settings { groups, streams4: 100, streams6: 100 })?;
    for (sender, receiver, expected) in [
        ("10.2.0.1:150", "192.0.2.9:80", Some(0)),
        ("10.1.0.1:99", "192.0.2.9:80", Some(1)),
        ("10.1.0.1:100", "192.0.2.9:80", Some(2)),
        ("10.1.0.1:199", "192.0.2.9:80", Some(2)),
        ("10.1.0.1:150", "192.0.3.9:80", Some(1)),
        ("11.0.0.1:150", "192.0.2.9:80", None),
        ("192.0.2.9:150", "10.1.0.1:80", None),
        ("[fd00::1]:150", "[fd00:0:0:2::1]:443", Some(3)),
        ("[fd00::1]:150", "[fd00:0:0:2::1]:444", Some(0)),
        ("[fd01::1]:150", "[fd00:0:0:2::1]:443", None),
    ] {
        let ends = Ends { sender: sender.parse()?, receiver: receiver.parse()? };
        // The receiver may open the connection as well.
        for direction in [Direction::Data, Direction::Acks] {
            let syn = Shape { flags: flags::SYN, ..ends.shape(direction) };
            gateway.run(direction, &syn.frame(), 0, 1)?;
            let streams = gateway.streams()?;
            let found = streams.iter().find(|stream| stream.sender == ends.sender && stream.receiver == ends.receiver);
            assert_eq!(found.map(|stream| stream.group), expected, "{sender} to {receiver}");
            swept(&gateway, Idle { opening: Duration::ZERO, ..Idle::default() })?;
        }
    }
    let none = Gateway::load(&Settings { groups: Vec::new(), ..Settings::default() });
    assert!(matches!(none, Err(GatewayError::GroupCount(0))));
    let twice = Gateway::load(&Settings { groups: vec![Group::default(); 2], ..Settings::default() });
    assert!(matches!(twice, Err(GatewayError::Overlap(0, 1))));
    Ok(())
}

pub fn the_most_groups_are_told_apart() -> Result<(), Failed> {
    let group = |index: u8| Group {
        sources: vec![format!("10.{index}.0.0/16").parse().expect("a network")],
        destinations: vec!["192.0.2.0/24".parse().expect("a network")],
        ..Group::default()
    };
    let gateway = Gateway::load(&Settings { groups: (0..64).map(group).collect(), ..Settings::default() })?;
    for index in [0, 1, 31, 32, 62, 63] {
        let ends = Ends { sender: ([10, index, 3, 4], 5).into(), ..Ends::ipv4(1) };
        gateway.run(Direction::Data, &syn(ends), 0, 1)?;
        let streams = gateway.streams()?;
        let stream = streams.iter().find(|stream| stream.sender == ends.sender).ok_or("it has a place")?;
        assert_eq!(stream.group, usize::from(index));
    }
    Ok(())
}

pub fn streams_without_a_handshake_are_left_alone_or_assumed() -> Result<(), Failed> {
    let ends = Ends::ipv4(5002);
    let gateway = Gateway::load(&settings(paper()))?;
    let ack = Shape { ack: 1000, ..ends.shape(Direction::Acks) };
    gateway.run(Direction::Acks, &ack.frame(), 0, 1)?;
    assert!(gateway.streams()?.is_empty());
    // A SYN that is not answered.
    gateway.run(Direction::Data, &syn(ends), 0, 1)?;
    gateway.run(Direction::Acks, &ack.frame(), 0, 1)?;
    assert_eq!(gateway.counters()?.without_handshake, 1);
    let mut assuming = settings(paper());
    assuming.groups[0].assumed_scale = Some(2);
    let gateway = Gateway::load(&assuming)?;
    gateway.run(Direction::Data, &Shape { payload: 10, ..ends.shape(Direction::Data) }.frame(), 0, 1)?;
    assert!(gateway.streams()?.is_empty(), "it is known from an ACK on");
    let mut number = 1000;
    for _ in 0..4 {
        gateway.run(Direction::Acks, &Shape { ack: number, ..ends.shape(Direction::Acks) }.frame(), 0, 1)?;
        for _ in 0..10 {
            let data = Shape { seq: number, payload: SEGMENT as usize, ..ends.shape(Direction::Data) };
            gateway.run(Direction::Data, &data.frame(), 0, 1)?;
            number += SEGMENT;
        }
    }
    let stream = gateway.streams()?[0];
    assert!(stream.state.is_open && stream.state.scale == 2 && stream.state.flow.is_some(), "{stream:?}");
    let mut repeat = Shape { ack: number - 10 * SEGMENT, ..ends.shape(Direction::Acks) };
    for _ in 0..4 {
        gateway.run(Direction::Acks, &repeat.frame(), 0, 1)?;
    }
    repeat.window = 50_000;
    assert_ne!(gateway.run(Direction::Acks, &repeat.frame(), 0, 1)?.frame, repeat.frame(), "its window is lowered");
    Ok(())
}

pub fn round_trips_are_measured_by_the_kernels_clock() -> Result<(), Failed> {
    let gateway = Gateway::load(&settings(paper()))?;
    let ends = Ends::ipv4(5004);
    gateway.run(Direction::Data, &syn(ends), 0, 1)?;
    let answer = Shape { flags: flags::SYN | flags::ACK, seq: 0, options: scale(3), ..ends.shape(Direction::Acks) };
    gateway.run(Direction::Acks, &answer.frame(), 0, 1)?;
    let mut least = u32::MAX;
    for round in 0..5 {
        let number = 1 + round * 2 * SEGMENT;
        let data = |seq| Shape { seq, payload: SEGMENT as usize, ..ends.shape(Direction::Data) }.frame();
        let start = Instant::now();
        gateway.run(Direction::Data, &data(number), 0, 1)?;
        // Of this one the exact time does not matter.
        gateway.run(Direction::Data, &data(number + SEGMENT), 0, 1)?;
        sleep(Duration::from_micros(7_300));
        gateway.run(
            Direction::Acks,
            &Shape { ack: number + 2 * SEGMENT, ..ends.shape(Direction::Acks) }.frame(),
            0,
            1,
        )?;
        let longest = start.elapsed().as_micros() as u32;
        let rtt_us = gateway.streams()?[0].state.rtt_us.ok_or("it is known")?;
        assert!((7_300..=longest).contains(&rtt_us), "{rtt_us} of {longest}");
        // A sixty-fourth of the way up: paths become longer.
        least = if rtt_us < least { rtt_us } else { least + (rtt_us - least) / 64 };
        assert_eq!(gateway.streams()?[0].state.least_us, Some(least));
    }
    Ok(())
}

pub fn events_tell_what_happens() -> Result<(), Failed> {
    let mut both = Both::new(paper());
    let mut events = both.gateway.events()?;
    let ends = Ends::ipv6(5003);
    let acked = both.throttled(ends);
    both.now_us += 1000;
    both.ack(ends, acked + SEGMENT);
    let reset = Shape { flags: flags::RST, seq: 1 + acked + 10 * SEGMENT, ..ends.shape(Direction::Data) };
    both.shape(Direction::Data, &reset);
    let told = events.poll(Duration::from_millis(500))?;
    let kinds: Vec<EventKind> = told.iter().map(|event| event.kind).collect();
    let expected = [EventKind::Begun, EventKind::Congestion, EventKind::Limited, EventKind::Released, EventKind::Ended];
    assert_eq!(kinds, expected);
    assert!(
        told.iter().all(|event| event.sender == ends.sender && event.receiver == ends.receiver && event.group == 0)
    );
    // 0.8 of 20 segments in flight, and what was the round trip.
    assert_eq!(told[2].limit, Some(20 * SEGMENT * 52_429 / 65_536));
    assert_eq!((told[2].throttling, told[2].rtt_us), (1, Some(100_000)));
    assert!(events.poll(Duration::ZERO)?.is_empty());
    // Until the buffer is full.
    for port in 1..100 {
        for _ in 0..20 {
            both.open(Ends::ipv4(port));
            both.shape(
                Direction::Data,
                &Shape { flags: flags::RST, seq: 1, ..Ends::ipv4(port).shape(Direction::Data) },
            );
        }
    }
    let lost = both.gateway.counters()?.lost;
    assert!(lost > 0);
    assert_eq!(events.poll(Duration::ZERO)?.len() as u64 + lost, 2 * 99 * 20);
    Ok(())
}

pub fn a_hundred_thousand_streams_fit_in_16_mib() -> Result<(), Failed> {
    let gateway = Gateway::load(&Settings { streams4: 100_000, streams6: 100_000, ..settings(paper()) })?;
    let (ipv4, ipv6) = gateway.memory()?;
    println!("100,000 streams: {ipv4} bytes of IPv4, {ipv6} of IPv6");
    assert!(ipv4 <= 16 << 20, "{ipv4} bytes");
    let huge = Gateway::load(&Settings { streams4: u32::MAX, ..settings(paper()) });
    assert!(matches!(huge, Err(GatewayError::Memory { .. })), "{huge:?}");
    // Reading and sweeping many.
    gateway.keep_always()?;
    for index in 0..60_000_u32 {
        let sender = ([10, (index >> 16) as u8, (index >> 8) as u8, index as u8], 77).into();
        gateway.run(Direction::Data, &syn(Ends { sender, ..Ends::ipv4(1) }), 0, 1)?;
    }
    assert_eq!(gateway.counted_streams()?, 60_000);
    let streams = gateway.streams()?;
    let different: std::collections::HashSet<_> = streams.iter().map(|stream| stream.sender).collect();
    assert_eq!((streams.len(), different.len()), (60_000, 60_000));
    sleep(Duration::from_millis(2200));
    // In slices that are short, for no packet passes on a processor that is in one.
    let slices: Result<Vec<u64>, _> = gateway.sweep(Idle { opening: Duration::ZERO, ..Idle::default() }).collect();
    let slices = slices?;
    assert!(slices.len() > 10 && slices.iter().all(|swept| *swept <= 4096), "{slices:?}");
    assert_eq!(slices.iter().sum::<u64>(), 60_000);
    assert_eq!((gateway.counted_streams()?, gateway.streams()?.len()), (0, 0));
    Ok(())
}
