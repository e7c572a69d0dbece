//! Keeping parallel TCP streams in balance: what a gateway at the entrance of the wide area network decides (Sugawara,
//! Inaba, Hiraki, "Balancing Window Size of Parallel TCP Streams using Gateway", section 3).
//!
//! It is written once, as the C header `include/ekiden/window_balance.h`: integers only, no kernel types, no loops. The
//! header describes the algorithm and the decisions that the paper leaves open. [`StreamGroup`] calls its native build.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod native;

use std::collections::BTreeMap;
use std::time::Duration;

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
    /// Payload in bytes.
    pub length: u32,
    /// The shift of the window scale option; -1 without one. Only read with SYN.
    pub scale: i32,
    /// The window field as it stands in the header.
    pub window: u16,
    /// The header's flags: see [`flags`].
    pub flags: u8,
    /// Which way it goes.
    pub direction: Direction,
}

/// When and how far a group is throttled. The defaults are those of the paper's evaluation; `idle`, which it lacks, is
/// ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BalanceSettings {
    /// How many repetitions of one ACK number throttle the group. At least 1; the paper has 100.
    pub repeats: u32,
    /// The part of its flow to which a stream's window is lowered, from 0 to 1. The paper has 0.8.
    pub part: f64,
    /// The group is released if the streams that throttle it are silent for this long. The default is longer than a
    /// retransmission timeout and the two that follow it, at a round trip of a second.
    pub idle: Duration,
    /// What a stream's flow is. The paper leaves it open.
    pub observes: ObservedFlow,
}

/// What a stream's flow is, of which throttling leaves a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedFlow {
    /// The bytes acknowledged in a round trip: what the path delivers.
    Acknowledged,
    /// The new data sent in a round trip: in slow start twice as much.
    Sent,
}

impl Default for BalanceSettings {
    fn default() -> Self {
        Self { repeats: 100, part: 0.8, idle: Duration::from_secs(10), observes: ObservedFlow::Acknowledged }
    }
}

/// A group of parallel streams, and what is known of each.
#[derive(Debug, Clone)]
pub struct StreamGroup {
    settings: native::Settings,
    state: native::Group,
    streams: BTreeMap<u32, native::Stream>,
}

impl StreamGroup {
    /// A group without streams. Settings out of their range are clamped to it.
    pub fn new(settings: BalanceSettings) -> Self {
        let settings = native::Settings {
            repeats: settings.repeats.max(1),
            part: (settings.part.clamp(0.0, 1.0) * 65_536.0).round() as u32,
            idle_us: u64::try_from(settings.idle.as_micros()).unwrap_or(u64::MAX),
            of_sent: (settings.observes == ObservedFlow::Sent).into(),
        };
        Self { settings, state: native::Group::default(), streams: BTreeMap::new() }
    }

    /// A packet of the stream of this number passes. Returns the window field to write into it, which is smaller than
    /// its own and never 0; `None` if it stays as it is. A SYN begins a new stream of the same number.
    pub fn observe(&mut self, stream: u32, packet: &Packet) -> Option<u16> {
        let state = self.streams.entry(stream).or_default();
        let field = native::observe(&self.settings, &mut self.state, state, stream, packet);
        u16::try_from(field).ok().filter(|field| *field != 0)
    }

    /// The stream that began to throttle the group; `None` if it is not throttled. As of the last packet.
    pub fn throttled_by(&self) -> Option<u32> {
        (self.state.stalled > 0).then_some(self.state.by)
    }

    /// How often the group has been throttled so far.
    pub fn throttlings(&self) -> u32 {
        self.state.throttling
    }

    /// The stream's flow: bytes of the current or last round trip; `None` while unknown.
    pub fn flow(&self, stream: u32) -> Option<u32> {
        self.streams.get(&stream).map(|stream| native::flow(&self.settings, stream)).filter(|flow| *flow != 0)
    }

    /// The stream's round-trip time between gateway and receiver, in microseconds; `None` while unknown.
    pub fn rtt_us(&self, stream: u32) -> Option<u32> {
        self.streams.get(&stream).map(|stream| stream.rtt_us).filter(|rtt_us| *rtt_us != 0)
    }
}
