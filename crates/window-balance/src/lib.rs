//! Keeping parallel TCP streams in balance: what a gateway at the entrance of the wide area network decides (Sugawara,
//! Inaba, Hiraki, "Balancing Window Size of Parallel TCP Streams using Gateway", section 3).
//!
//! It is written once, as the C header `include/ekiden/window_balance.h` and those beside it: integers only, no kernel types. The
//! header describes the algorithm and the decisions that the paper leaves open. [`StreamGroup`] calls its native build.
//! `include/ekiden/frame.h` reads packets from the wire for it, and [`frame`] calls its native build.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod frame;
mod native;
mod settings;
mod state;

use std::collections::BTreeMap;
use std::time::Duration;

pub use state::{GROUP_BYTES, GroupState, STREAM_BYTES, StreamState};

/// Bits of the TCP header's flags.
pub mod flags {
    /// The sender of the packet has nothing more to send.
    pub const FIN: u8 = 0x01;
    /// The packet opens a connection.
    pub const SYN: u8 = 0x02;
    /// The connection is broken off.
    pub const RST: u8 = 0x04;
    /// The ACK number is valid.
    pub const ACK: u8 = 0x10;
}

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// From the sender of the stream into the wide area network.
    Data = 0,
    /// Back from its receiver.
    Acks = 1,
}

/// A packet of one of a group's streams (`struct ekb_packet`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Packet {
    /// When it passes, in microseconds of any clock that does not step back.
    pub time_us: u64,
    /// Sequence number.
    pub seq: u32,
    /// ACK number.
    pub ack: u32,
    /// Payload in bytes: of one segment, or of several that offloads have put together.
    pub length: u32,
    /// Payload in bytes of each segment but the last.
    pub segment: u32,
    /// The shift of the window scale option; -1 without one. Only read with SYN.
    pub scale: i32,
    /// The window field as it stands in the header.
    pub window: u16,
    /// The header's flags: see [`flags`].
    pub flags: u8,
    /// Which way it goes.
    pub direction: Direction,
    /// The number of blocks.
    pub blocks: u32,
    /// The SACK blocks (RFC 2018), in their order.
    pub block: [Block; 4],
}

/// Data that has arrived behind a gap: from `start` up to, but without, `end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    /// The first sequence number.
    pub start: u32,
    /// The sequence number after the last.
    pub end: u32,
}

/// When a group is throttled, and what limits its windows then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// The paper's: from `repeats` repetitions of an ACK number until it advances, windows are `part` of the flow before.
    Paper,
    /// When a slow start has overshot, windows are what the path delivers in the least round-trip time, and follow it from there on.
    #[default]
    Delivered,
}

/// When and how far a group is throttled. Those of the paper's policy have the values of its evaluation by default; `hold`, which it
/// lacks, is ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BalanceSettings {
    /// The policy.
    pub policy: Policy,
    /// How many repetitions of one ACK number throttle the group, each for a segment that has arrived behind a gap. At least 1; the
    /// paper has 100. With [`Policy::Delivered`] only of receivers without SACK.
    pub repeats: u32,
    /// The part of its flow to which a stream's window is lowered, from 0 to 1. The paper has 0.8. Only with its policy, as
    /// `observes`.
    pub part: f64,
    /// The group is released if the streams that throttle it have no repetition for this long, at most 71 minutes. The default is
    /// longer than a retransmission timeout and the two that follow it, at a round trip of a second.
    pub hold: Duration,
    /// What a stream's flow is. The paper leaves it open.
    pub observes: ObservedFlow,
    /// With [`Policy::Delivered`], the segments whose lack throttles the group. At least 1.
    pub missing: u32,
    /// The part by which a limit grows in a round trip while the queue is short, and shrinks while it is long. Only with
    /// [`Policy::Delivered`].
    pub step: f64,
    /// The excess over the least round-trip time, as a part of it, up to which the queue is short; from twice as much on the
    /// queue is long. Only with [`Policy::Delivered`].
    pub slack: f64,
    /// Streams whose least round trip between gateway and receiver is shorter, or not yet known, are left alone and throttle
    /// no group: such a path holds less than hosts need that run a scheduler's turn late. At most 71 minutes.
    pub shortest_rtt: Duration,
    /// Whether no window takes back what the sender was told before (RFC 9293, section 3.8.6). The paper does not say.
    pub keeps_edge: bool,
    /// Whether windows are left as they are, for a caller that applies the limits by other means.
    pub watches: bool,
}

/// A rate: a number of bytes in a number of microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The bytes.
    pub bytes: u32,
    /// The time.
    pub in_us: u32,
}

/// What a stream's flow is; throttling leaves a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedFlow {
    /// The bytes acknowledged in a round trip: what the path delivers.
    Acknowledged,
    /// The new data sent in a round trip: in slow start twice as much.
    Sent,
}

impl Default for BalanceSettings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            repeats: 100,
            part: 0.8,
            hold: Duration::from_secs(10),
            observes: ObservedFlow::Acknowledged,
            missing: 10,
            step: 1.0 / 16.0,
            slack: 1.0 / 8.0,
            shortest_rtt: Duration::from_millis(10),
            keeps_edge: false,
            watches: false,
        }
    }
}

/// A group of parallel streams, and what is known of each.
#[derive(Debug, Clone)]
pub struct StreamGroup {
    settings: native::Settings,
    state: native::Group,
    streams: BTreeMap<u32, native::Stream>,
    /// Of the last packet.
    now_us: u64,
}

impl StreamGroup {
    /// A group without streams. Settings out of their range are clamped to it.
    pub fn new(settings: BalanceSettings) -> Self {
        let settings = settings.native();
        Self { settings, state: native::Group::default(), streams: BTreeMap::new(), now_us: 0 }
    }

    /// A packet of the stream of this number passes. Returns the window field to write into it, which is smaller than
    /// its own and never 0; `None` if it stays as it is. A SYN begins a new stream of the same number.
    pub fn observe(&mut self, stream: u32, packet: &Packet) -> Option<u16> {
        self.now_us = packet.time_us;
        let state = self.streams.entry(stream).or_default();
        let field = native::observe(&self.settings, &mut self.state, state, stream, packet);
        u16::try_from(field).ok().filter(|field| *field != 0)
    }

    /// The stream that began to throttle the group; `None` if it is not throttled. As of the last packet. With [`Policy::Delivered`]
    /// a throttling has no end that all streams share: always `None`.
    pub fn throttled_by(&self) -> Option<u32> {
        (self.state.stalled() > 0).then_some(self.state.by)
    }

    /// The stream that began the last throttling; `None` before the first.
    pub fn last_throttled_by(&self) -> Option<u32> {
        (self.state.throttling() > 0).then_some(self.state.by)
    }

    /// The number of the last throttling. 0 before the first; the 65,536th is 1 again.
    pub fn throttlings(&self) -> u16 {
        self.state.throttling()
    }

    /// Whether the stream's handshake is over.
    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(native::Stream::is_open)
    }

    /// The stream's flow: bytes of the current or last round trip; `None` while unknown.
    pub fn flow(&self, stream: u32) -> Option<u32> {
        self.streams
            .get(&stream)
            .map(|stream| native::flow(&self.settings, stream, self.now_us))
            .filter(|flow| *flow != 0)
    }

    /// The bytes that the stream's windows are limited to, or were while the group was throttled; `None` without a limit.
    pub fn limit(&self, stream: u32) -> Option<u32> {
        self.streams.get(&stream).map(|stream| stream.limit).filter(|limit| *limit != 0)
    }

    /// The rate that the stream's limit, of two segments at least, makes with its least round-trip time; `None` without a limit.
    pub fn pace(&self, stream: u32) -> Option<Pace> {
        let stream = self.streams.get(&stream).filter(|stream| stream.limit != 0)?;
        Some(Pace { bytes: stream.limit.max(2 * u32::from(stream.segment)), in_us: stream.least_us })
    }

    /// The stream's round-trip time between gateway and receiver, in microseconds; `None` while unknown.
    pub fn rtt_us(&self, stream: u32) -> Option<u32> {
        self.streams.get(&stream).map(|stream| stream.rtt_us).filter(|rtt_us| *rtt_us != 0)
    }
}
