//! What holds for any packets.

use std::collections::BTreeMap;

use crate::common::{Gateway, SEGMENT, Stream, WINDOW};
use ekiden_window_balance::{BalanceSettings, Block, Direction, Packet, Policy, flags};
use proptest::prelude::*;

/// Something that happens to a stream.
#[derive(Debug, Clone, Copy)]
enum Event {
    Send(u8),
    Resend,
    /// The ACK number advances by so many segments, if so many are outstanding.
    Ack(u8),
    Repeat(u8),
    Reset,
    Finish,
    Open,
    Wait(u32),
}

fn events() -> impl Strategy<Value = Vec<(u32, Event)>> {
    let event = prop_oneof![
        4 => (1_u8..30).prop_map(Event::Send),
        1 => Just(Event::Resend),
        4 => (1_u8..12).prop_map(Event::Ack),
        3 => (1_u8..9).prop_map(Event::Repeat),
        1 => Just(Event::Reset),
        1 => Just(Event::Finish),
        2 => Just(Event::Open),
        2 => (0_u32..600_000).prop_map(Event::Wait),
    ];
    prop::collection::vec((0_u32..4, event), 1..300)
}

/// What should be so, told without sequence numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Expected {
    open: bool,
    repeats: u32,
    stalled: bool,
    limit: Option<u32>,
}

const REPEATS: u32 = 5;
const IDLE_US: u64 = 1_000_000;

/// A group, and beside it what should be so.
struct Model {
    gateway: Gateway,
    streams: BTreeMap<u32, (Stream, Expected)>,
    throttled: bool,
    heard_us: u64,
    fields: Vec<Option<u16>>,
}

impl Model {
    fn new(first: u32) -> Self {
        let settings = BalanceSettings {
            repeats: REPEATS,
            hold: std::time::Duration::from_micros(IDLE_US),
            ..crate::common::paper()
        };
        let streams = (0..4).map(|number| (number, (Stream { first, ..Stream::new(number) }, Expected::default())));
        Self {
            gateway: Gateway::with(settings),
            streams: streams.collect(),
            throttled: false,
            heard_us: 0,
            fields: Vec::new(),
        }
    }

    /// Those that stand still and were silent for too long are given up.
    fn expire(&mut self) {
        if self.throttled && self.gateway.now_us >= self.heard_us + IDLE_US {
            self.streams.values_mut().for_each(|(_, expected)| expected.stalled = false);
            self.throttled = false;
        }
    }

    /// With a packet of this stream: the group is throttled as long as any stream stands still.
    fn settle(&mut self, number: u32, expected: Expected) {
        self.streams.entry(number).and_modify(|(_, old)| *old = expected);
        let stalled = self.streams.values().any(|(_, expected)| expected.stalled);
        if stalled && !self.throttled {
            for (number, (_, expected)) in &mut self.streams {
                expected.limit =
                    self.gateway.group.flow(*number).map(|flow| (u64::from(flow) * 52_429 / 65_536) as u32);
            }
        }
        self.throttled = stalled;
    }

    /// Another packet of it, of which nothing is to be expected.
    fn pass(&mut self, number: u32) {
        self.expire();
        self.settle(number, self.streams[&number].1);
    }

    fn happens(&mut self, number: u32, event: Event) {
        let (mut stream, expected) = self.streams[&number];
        match event {
            Event::Wait(time_us) => self.gateway.now_us += u64::from(time_us),
            Event::Open => {
                self.pass(number);
                self.settle(number, Expected { open: true, ..Expected::default() });
                let first = stream.first.wrapping_add(77_777_777);
                stream = Stream { number, first, sent: 0, acked: 0 };
                let syn = Packet { flags: flags::SYN, scale: 2, ..self.gateway.data_packet(&stream, 0) };
                self.gateway.observe(&stream, Packet { seq: first, ..syn });
                let syn = Packet { flags: flags::SYN | flags::ACK, scale: 2, ..self.gateway.ack_packet(&stream, 0) };
                self.gateway.observe(&stream, Packet { seq: 0, ..syn });
            }
            _ if !expected.open => {}
            Event::Send(count) => {
                for _ in 0..count {
                    if stream.sent - stream.acked > u64::from(WINDOW) {
                        break;
                    }
                    self.pass(number);
                    self.gateway.send(&mut stream);
                }
            }
            Event::Resend if stream.sent > stream.acked => {
                self.pass(number);
                self.gateway.resend(&stream, stream.acked);
            }
            Event::Resend => {}
            Event::Ack(count) => {
                if stream.sent >= stream.acked + u64::from(count) * u64::from(SEGMENT) {
                    self.acknowledge(&mut stream, count.into());
                }
            }
            Event::Repeat(count) => {
                for _ in 0..count {
                    self.acknowledge(&mut stream, 0);
                }
            }
            Event::Reset => {
                self.expire();
                self.settle(number, Expected::default());
                let packet = Packet { flags: flags::RST, ..self.gateway.data_packet(&stream, stream.sent) };
                self.gateway.observe(&stream, packet);
            }
            Event::Finish => {
                self.pass(number);
                let fin = flags::FIN | flags::ACK;
                let packet = Packet { flags: fin, length: 0, ..self.gateway.data_packet(&stream, stream.sent) };
                self.gateway.observe(&stream, packet);
                self.settle(number, Expected::default());
                let field = self.gateway.observe(&stream, self.gateway.ack_packet(&stream, stream.sent + 1));
                assert_eq!(field, None, "the stream is over");
            }
        }
        self.streams.entry(number).and_modify(|(old, _)| *old = stream);
        assert_eq!(self.gateway.group.throttled_by().is_some(), self.throttled, "{:?}", self.streams);
    }

    /// An ACK passes: the ACK number advances by so many segments, or is repeated.
    fn acknowledge(&mut self, stream: &mut Stream, segments: u32) {
        self.expire();
        let mut expected = self.streams[&stream.number].1;
        if segments > 0 {
            (expected.repeats, expected.stalled) = (0, false);
        } else if stream.sent > stream.acked {
            expected.repeats += 1;
            expected.stalled = expected.repeats >= REPEATS;
            if expected.stalled {
                self.heard_us = self.gateway.now_us;
            }
        }
        self.settle(stream.number, expected);
        let field = self.gateway.ack(stream, segments);
        let limit = self.streams[&stream.number].1.limit.map(|limit| limit.max(2 * SEGMENT) >> 2);
        let limit = limit.filter(|limit| self.throttled && *limit < WINDOW.into());
        assert_eq!(field.map(u32::from), limit, "of {}: {expected:?}", stream.number);
        self.fields.push(field);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    /// The group is throttled while a stream stands still and never else; each stream is then held to its flow before. It
    /// does not matter where sequence numbers begin and wrap.
    #[test]
    fn throttled_while_a_stream_stands_still(events in events(), first in any::<u32>()) {
        let mut fields = Vec::new();
        for first in [first, 0, u32::MAX - 5_000, (1 << 31) - 5_000] {
            let mut model = Model::new(first);
            for &(number, event) in &events {
                model.happens(number, event);
            }
            fields.push(model.fields);
        }
        prop_assert!(fields.windows(2).all(|pair| pair[0] == pair[1]));
    }

    /// Whatever passes behind the handshake, no window is raised or set to 0, or brought below two segments, or is changed otherwise
    /// than in an ACK.
    #[test]
    fn windows_are_never_raised(
        packets in prop::collection::vec((0_u32..3, packets()), 1..400),
        (few, scale, keeps_edge, is_paper) in (0_u32..4, -1_i32..16, any::<bool>(), any::<bool>()),
    ) {
        let policy = if is_paper { Policy::Paper } else { Policy::Delivered };
        let settings = BalanceSettings { policy, repeats: few, missing: few, keeps_edge, ..crate::common::at_once() };
        let mut gateway = Gateway::with(settings);
        let streams = [0, 1, 2].map(|number| gateway.open(number, scale, scale));
        for (number, packet) in packets {
            let stream = &streams[number as usize];
            let shift = |number: u32| number.wrapping_add(stream.first);
            let (seq, ack) = match packet.direction {
                Direction::Data => (shift(packet.seq), packet.ack),
                Direction::Acks => (packet.seq, shift(packet.ack)),
            };
            let block = packet.block.map(|block| Block { start: shift(block.start), end: shift(block.end) });
            let packet = Packet { seq, ack, block, ..packet };
            if let Some(field) = gateway.group.observe(number, &packet) {
                prop_assert!(packet.direction == Direction::Acks && packet.flags & flags::ACK != 0);
                prop_assert!(packet.flags & (flags::SYN | flags::RST) == 0);
                prop_assert!(field > 0 && field < packet.window);
                prop_assert!(u32::from(field) << scale.clamp(0, 14) >= 1_000, "{field}");
            }
        }
    }
}

/// A bare ACK behind bytes that were not seen says that there are some, and not how long segments are.
#[test]
fn a_stream_of_which_no_data_was_seen_keeps_its_window() {
    let settings = BalanceSettings { policy: Policy::Paper, repeats: 0, missing: 0, ..crate::common::at_once() };
    let mut gateway = Gateway::with(settings);
    let first = gateway.open(0, 3, 3).first;
    let block = Block { start: first.wrapping_sub(1_000), end: first.wrapping_add(1_000) };
    let packet = |direction, seq, ack, window, blocks| Packet {
        time_us: 0,
        seq,
        ack,
        length: 0,
        segment: 0,
        scale: -1,
        window,
        flags: flags::ACK,
        direction,
        blocks,
        block: [block; 4],
    };
    for packet in [
        packet(Direction::Data, first.wrapping_add(500), u32::MAX - 999, 0, 0),
        packet(Direction::Data, first.wrapping_add(1_500), u32::MAX - 999, 0, 0),
        packet(Direction::Acks, u32::MAX - 999, first.wrapping_add(500), 0, 0),
        packet(Direction::Acks, u32::MAX - 999, first.wrapping_add(500), 50, 1),
    ] {
        assert_eq!(gateway.group.observe(0, &packet), None);
    }
}

/// Packets of a few sequence numbers around 0, so that they meet, each of segments of 500 bytes.
fn packets() -> impl Strategy<Value = Packet> {
    let number = || prop_oneof![8 => (0_u32..8).prop_map(|at| (at * 500).wrapping_sub(1_000)), 1 => any::<u32>()];
    let flags = prop_oneof![20 => Just(flags::ACK), 1 => Just(flags::FIN | flags::ACK), 1 => any::<u8>().prop_map(|bits| bits & !flags::SYN)];
    let length = prop_oneof![3 => Just(0_u32), 3 => Just(500), 1 => 0_u32..70_000];
    let time = prop_oneof![9 => 0_u64..1_000_000, 1 => any::<u64>()];
    let block = (number(), number()).prop_map(|(start, end)| Block { start, end });
    let rest = (prop_oneof![any::<u16>(), 0_u16..4], any::<bool>(), 0_u32..6, prop::array::uniform4(block));
    (number(), number(), flags, length, time, rest).prop_map(
        |(seq, ack, flags, length, time_us, (window, back, blocks, block))| {
            let direction = if back { Direction::Acks } else { Direction::Data };
            let segment = if length > 0 { 500 } else { 0 };
            Packet { time_us, seq, ack, length, segment, scale: -1, window, flags, direction, blocks, block }
        },
    )
}
