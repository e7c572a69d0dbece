//! The programs in the kernel, and beside them the native build, which sees the same packets.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_gateway::kernel::{Gateway, Group, Settings};
use ekiden_window_balance::frame::{NotRead, Passing, parse};
use ekiden_window_balance::{BalanceSettings, Direction, Policy, StreamGroup, flags};

use crate::frames::{Ends, Shape, changed, scale, timestamps};

/// Payload of a segment.
pub const SEGMENT: u32 = 1_000;
/// The shift of the receivers' windows.
pub const SCALE: u8 = 2;

pub struct Both {
    pub gateway: Gateway,
    pub native: StreamGroup,
    numbers: BTreeMap<Ends, u32>,
    pub now_us: u64,
    /// Frames that passed, windows that were lowered.
    pub passed: u64,
    pub rewritten: u64,
}

/// Streams take part from their first packet on, and on a path without delay.
pub fn at_once() -> BalanceSettings {
    BalanceSettings { shortest_rtt: Duration::ZERO, ..BalanceSettings::default() }
}

/// The paper's policy, with few repetitions.
pub fn paper() -> BalanceSettings {
    BalanceSettings { policy: Policy::Paper, repeats: 3, ..at_once() }
}

pub fn settings(balance: BalanceSettings) -> Settings {
    Settings { groups: vec![Group { balance, ..Group::default() }], streams4: 20_000, streams6: 20_000 }
}

impl Both {
    pub fn new(balance: BalanceSettings) -> Self {
        let gateway = Gateway::load_with_own_clock(&settings(balance)).expect("the kernel takes the programs");
        gateway.keep_always().expect("it keeps");
        let native = StreamGroup::new(balance);
        Self { gateway, native, numbers: BTreeMap::new(), now_us: 1_000_000, passed: 0, rewritten: 0 }
    }

    /// A frame passes both; what became of it. All but window and checksum must be as before, and what is written what the native
    /// build decides.
    pub fn pass(&mut self, direction: Direction, frame: &[u8], segment: u32) -> Vec<u8> {
        self.gateway.set_clock_us(self.now_us).expect("the clock is set");
        let run = self.gateway.run(direction, frame, segment, 1).expect("it runs");
        assert_eq!(run.returned, -1, "the next program decides");
        self.passed += 1;
        let expected = self.decide(direction, frame, segment);
        self.rewritten += u64::from(expected != frame);
        assert!(run.frame == expected, "{frame:02x?}\nbecame\n{:02x?}\nbut should be\n{expected:02x?}", run.frame);
        expected
    }

    /// What the native build makes of it.
    fn decide(&mut self, direction: Direction, frame: &[u8], segment: u32) -> Vec<u8> {
        let passing = Passing { time_us: self.now_us, direction, segment };
        let Ok(read) = parse(frame, passing) else { return frame.to_vec() };
        let ends = match direction {
            Direction::Data => Ends { sender: read.source, receiver: read.destination },
            Direction::Acks => Ends { sender: read.destination, receiver: read.source },
        };
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(ends).or_insert(next);
        match self.native.observe(number, &read.packet) {
            Some(field) => changed(frame, (read.window_at, read.checksum_at), field),
            None => frame.to_vec(),
        }
    }

    pub fn number(&self, ends: Ends) -> u32 {
        self.numbers[&ends]
    }

    pub fn shape(&mut self, direction: Direction, shape: &Shape) -> Vec<u8> {
        self.pass(direction, &shape.frame(), 0)
    }

    /// Both SYNs of a stream whose first bytes are number 1 in each direction.
    pub fn open(&mut self, ends: Ends) {
        let syn = Shape { seq: 0, ack: 0, flags: flags::SYN, options: scale(7), ..ends.shape(Direction::Data) };
        self.shape(Direction::Data, &syn);
        self.now_us += 50_000;
        let both = flags::SYN | flags::ACK;
        let syn = Shape { seq: 0, flags: both, options: scale(SCALE), ..ends.shape(Direction::Acks) };
        self.shape(Direction::Acks, &syn);
        self.shape(Direction::Data, &ends.shape(Direction::Data));
    }

    /// Data from this offset on, which is sent with timestamps as most hosts do.
    pub fn data(&mut self, ends: Ends, offset: u32) {
        let shape =
            Shape { seq: 1 + offset, options: timestamps(), payload: SEGMENT as usize, ..ends.shape(Direction::Data) };
        self.shape(Direction::Data, &shape);
    }

    pub fn ack(&mut self, ends: Ends, offset: u32) -> Vec<u8> {
        let shape = Shape { ack: 1 + offset, options: timestamps(), ..ends.shape(Direction::Acks) };
        self.shape(Direction::Acks, &shape)
    }

    /// A stream whose windows are lowered from now on: of 20 segments in flight in each round trip one was lost. Returns the offset
    /// up to which all is acknowledged.
    pub fn throttled(&mut self, ends: Ends) -> u32 {
        let acked = self.run(ends);
        let (_, group) = self.gateway.groups().expect("they can be read")[0];
        assert_eq!((group.throttlings, group.stalled), (1, 1), "the group is throttled");
        acked
    }

    /// The same, whatever there was before.
    pub fn run(&mut self, ends: Ends) -> u32 {
        self.open(ends);
        let (mut sent, mut acked) = (0, 0);
        for _ in 0..20 {
            self.data(ends, sent);
            sent += SEGMENT;
        }
        for _ in 0..60 {
            self.now_us += 5_000;
            acked += SEGMENT;
            self.ack(ends, acked);
            self.data(ends, sent);
            sent += SEGMENT;
        }
        for _ in 0..4 {
            self.now_us += 1_000;
            self.ack(ends, acked);
        }
        acked
    }
}

/// Whether the frame is one that is looked at.
pub fn is_read(direction: Direction, frame: &[u8]) -> Result<(), NotRead> {
    parse(frame, Passing { time_us: 0, direction, segment: 0 }).map(drop)
}
