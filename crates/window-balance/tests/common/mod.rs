//! A group of streams as the gateway sees it pass.

use std::time::Duration;

use ekiden_window_balance::{BalanceSettings, Block, Direction, Packet, Policy, StreamGroup, flags};

/// Payload of a data segment.
pub const SEGMENT: u32 = 1_000;
/// Round trip between gateway and receiver.
pub const RTT_US: u64 = 100_000;
/// The window field in every ACK.
pub const WINDOW: u16 = 60_000;
/// The scale of the receivers' windows.
pub const SCALE: i32 = 3;

/// Streams take part from their first packet on.
pub fn at_once() -> BalanceSettings {
    BalanceSettings { shortest_rtt: Duration::ZERO, ..BalanceSettings::default() }
}

/// As the paper does.
pub fn paper() -> BalanceSettings {
    BalanceSettings { policy: Policy::Paper, ..at_once() }
}

/// What passes, and what the gateway made of it.
pub struct Gateway {
    pub group: StreamGroup,
    pub now_us: u64,
}

/// One stream, in bytes from its beginning.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub number: u32,
    /// Sequence number before the SYN.
    pub first: u32,
    pub sent: u64,
    pub acked: u64,
}

impl Stream {
    pub fn new(number: u32) -> Self {
        Self { number, first: 4_294_960_000 + number, sent: 0, acked: 0 }
    }

    pub fn number_of(&self, offset: u64) -> u32 {
        self.first.wrapping_add(1).wrapping_add(offset as u32)
    }
}

impl Gateway {
    pub fn new() -> Self {
        Self::with(paper())
    }

    pub fn with(settings: BalanceSettings) -> Self {
        Self { group: StreamGroup::new(settings), now_us: 1_000_000 }
    }

    /// The stream whose sender opens the connection, with these window scale options.
    pub fn open(&mut self, number: u32, sender: i32, receiver: i32) -> Stream {
        self.open_as(Stream::new(number), sender, receiver)
    }

    /// The same, of a stream with these sequence numbers.
    pub fn open_as(&mut self, stream: Stream, sender: i32, receiver: i32) -> Stream {
        let syn = Packet { flags: flags::SYN, scale: sender, ..self.data_packet(&stream, 0) };
        self.observe(&stream, Packet { seq: stream.first, ..syn });
        self.now_us += RTT_US;
        let syn = Packet { seq: 0, flags: flags::SYN | flags::ACK, scale: receiver, ..self.ack_packet(&stream, 0) };
        assert_eq!(self.observe(&stream, syn), None);
        stream
    }

    /// A stream with `window` segments in flight, as in the middle of a transfer: for three round trips each ACK has let
    /// the next segment go.
    pub fn running(&mut self, number: u32, window: u32) -> Stream {
        let mut stream = self.open(number, SCALE, SCALE);
        self.run(&mut stream, window);
        stream
    }

    pub fn run(&mut self, stream: &mut Stream, window: u32) {
        for _ in 0..window {
            self.send(stream);
        }
        self.clock(stream, window, 3 * window);
    }

    /// So many ACKs, each of which lets a segment go.
    pub fn clock(&mut self, stream: &mut Stream, window: u32, acks: u32) {
        for _ in 0..acks {
            self.now_us += RTT_US / u64::from(window);
            self.ack(stream, 1);
            self.send(stream);
        }
    }

    pub fn send(&mut self, stream: &mut Stream) {
        let packet = self.data_packet(stream, stream.sent);
        stream.sent += u64::from(SEGMENT);
        assert_eq!(self.observe(stream, packet), None);
    }

    pub fn resend(&mut self, stream: &Stream, offset: u64) {
        assert_eq!(self.observe(stream, self.data_packet(stream, offset)), None);
    }

    pub fn ack(&mut self, stream: &mut Stream, segments: u32) -> Option<u16> {
        stream.acked += u64::from(segments * SEGMENT);
        self.duplicate(stream)
    }

    /// The ACK of what was acknowledged last.
    pub fn duplicate(&mut self, stream: &Stream) -> Option<u16> {
        self.observe(stream, self.ack_packet(stream, stream.acked))
    }

    /// So many of them; what became of the last.
    pub fn duplicates(&mut self, stream: &Stream, count: u32) -> Option<u16> {
        (0..count).map(|_| self.duplicate(stream)).last().flatten()
    }

    /// An ACK of what was acknowledged last, with these parts of what came behind it, in bytes from the beginning.
    pub fn sack(&mut self, stream: &Stream, blocks: &[(u64, u64)]) -> Option<u16> {
        let mut packet = self.ack_packet(stream, stream.acked);
        packet.blocks = blocks.len() as u32;
        for (block, (start, end)) in packet.block.iter_mut().zip(blocks) {
            *block = Block { start: stream.number_of(*start), end: stream.number_of(*end) };
        }
        self.observe(stream, packet)
    }

    pub fn data_packet(&self, stream: &Stream, offset: u64) -> Packet {
        Packet {
            time_us: self.now_us,
            seq: stream.number_of(offset),
            ack: 1,
            length: SEGMENT,
            segment: SEGMENT,
            scale: -1,
            window: 500,
            flags: flags::ACK,
            direction: Direction::Data,
            blocks: 0,
            block: [Block::default(); 4],
        }
    }

    pub fn ack_packet(&self, stream: &Stream, offset: u64) -> Packet {
        Packet {
            time_us: self.now_us,
            seq: 1,
            ack: stream.number_of(offset),
            length: 0,
            segment: 0,
            scale: -1,
            window: WINDOW,
            flags: flags::ACK,
            direction: Direction::Acks,
            blocks: 0,
            block: [Block::default(); 4],
        }
    }

    /// A window field that is written is smaller than the packet's, and never 0.
    pub fn observe(&mut self, stream: &Stream, packet: Packet) -> Option<u16> {
        let packet = match packet.flags & flags::SYN {
            0 => packet,
            _ => Packet { length: 0, ..packet },
        };
        let field = self.group.observe(stream.number, &packet);
        if let Some(field) = field {
            assert!(field > 0 && field < packet.window && packet.direction == Direction::Acks, "{field}: {packet:?}");
            assert!(packet.flags & flags::ACK != 0 && packet.flags & (flags::SYN | flags::RST) == 0, "{packet:?}");
        }
        field
    }
}

/// The window field of a flow of so many bytes per round trip, throttled to 0.8 of it.
pub fn throttled(flow: u32, scale: i32) -> u16 {
    let field = (u64::from(flow) * 52_429 / 65_536) >> scale;
    u16::try_from(field.max(u64::from(2 * SEGMENT).div_ceil(1 << scale))).unwrap()
}
