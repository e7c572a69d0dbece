//! One connection against segments made by hand.

use ekiden_packet::{Ecn, Flags, Options, SackBlock, Segment, Seq, Timestamps};
use ekiden_tcp::{Accepted, Connection, TcpSettings};
use ekiden_units::Time;

use super::reno;

pub const SYN: Flags = Flags { syn: true, fin: false, rst: false, psh: false, ece: false, cwr: false };
pub const FIN: Flags = Flags { syn: false, fin: true, rst: false, psh: false, ece: false, cwr: false };
pub const RST: Flags = Flags { syn: false, fin: false, rst: true, psh: false, ece: false, cwr: false };
pub const NONE: Flags = Flags { syn: false, fin: false, rst: false, psh: false, ece: false, cwr: false };

/// A connection under test, and where its hand-made peer stands. Positions count both ends' sequence numbers from their
/// SYNs.
pub struct Bench {
    pub end: Connection,
    pub now: Time,
    ours: Seq,
    theirs: Seq,
    /// Data of the peer, its SYN included, that it has sent.
    pub peer_next: u32,
    pub window: u16,
    /// What the peer's timestamps say; `None` without the option.
    pub timestamp: Option<u32>,
    echo: u32,
    /// Whether its segments were marked on the way.
    pub is_marked: bool,
}

/// Settings under which a full segment has 1000 bytes of payload and nothing is held back.
pub fn plain(settings: TcpSettings) -> TcpSettings {
    TcpSettings { mss: 1000, timestamps: false, nagle: false, ack_every: 1, quick_acks: 0, ..settings }
}

impl Bench {
    /// A connection in SYN-SENT whose SYN was sent. `first` are both initial sequence numbers, its own before.
    pub fn opening(settings: &TcpSettings, first: [u32; 2]) -> Self {
        let end = Connection::connect(settings, reno(), (1, 2), Seq(first[0]));
        let mut bench = Self {
            end,
            now: Time::secs(1),
            ours: Seq(first[0]),
            theirs: Seq(first[1]),
            peer_next: 0,
            window: u16::MAX,
            timestamp: settings.timestamps.then_some(1000),
            echo: 0,
            is_marked: false,
        };
        let syn = bench.sent();
        assert_eq!(syn.len(), 1);
        assert_eq!(syn[0].flags, Flags { ece: settings.ecn, cwr: settings.ecn, ..SYN });
        bench
    }

    /// A connection in ESTABLISHED, 100 ms after its SYN. The peer's window is `window`, not scaled.
    pub fn established_with(settings: &TcpSettings, first: [u32; 2], window: u16) -> Self {
        let mut bench = Self::opening(settings, first);
        bench.window = window;
        bench.now = bench.now + Time::ms(100);
        let answer = Flags { ece: settings.ecn, ..SYN };
        bench.segment(0, Some(1), answer, 0, Options { window_scale: None, ..bench.syn_options() });
        bench.peer_next = 1;
        let ack = bench.sent();
        assert_eq!((ack.len(), ack[0].flags, ack[0].ack), (1, NONE, Some(bench.theirs + 1)));
        bench
    }

    pub fn established(settings: &TcpSettings) -> Self {
        Self::established_with(settings, [0, 0], u16::MAX)
    }

    pub fn syn_options(&self) -> Options {
        Options { mss: Some(1000), sack_permitted: true, ..Options::default() }
    }

    /// A segment of the peer arrives.
    pub fn segment(&mut self, at: u32, ack: Option<u32>, flags: Flags, payload: u32, options: Options) -> Accepted {
        let timestamps = self.timestamp.map(|value| Timestamps { value, echo: self.echo });
        let segment = Segment {
            source: 2,
            destination: 1,
            seq: self.theirs + at,
            ack: ack.map(|ack| self.ours + ack),
            flags,
            window: self.window,
            options: Options { timestamps, ..options },
            payload,
            ecn: if self.is_marked { Ecn::Ce } else { Ecn::NotEct },
        };
        self.end.on_segment(self.now, &segment)
    }

    /// An acknowledgement of everything before `ack`, with blocks.
    pub fn ack(&mut self, ack: u32, blocks: &[(u32, u32)]) {
        let sack =
            blocks.iter().map(|(start, end)| SackBlock { start: self.ours + *start, end: self.ours + *end }).collect();
        self.segment(self.peer_next, Some(ack), NONE, 0, Options { sack, ..Options::default() });
    }

    /// Data of the peer arrives, with everything acknowledged that it could be.
    pub fn data(&mut self, at: u32, ack: u32, payload: u32, flags: Flags) -> Accepted {
        let accepted = self.segment(at, Some(ack), flags, payload, Options::default());
        self.peer_next = self.peer_next.max(at + payload + u32::from(flags.fin));
        accepted
    }

    /// All that the connection sends now.
    pub fn sent(&mut self) -> Vec<Segment> {
        let segments: Vec<_> =
            std::iter::from_fn(|| self.end.poll_transmit(self.now)).map(|sent| sent.segment).collect();
        if let Some(timestamps) = segments.iter().rev().find_map(|segment| segment.options.timestamps) {
            self.echo = timestamps.value;
        }
        segments
    }

    /// The positions at which the connection now sends payload or a FIN, and how much.
    pub fn data_sent(&mut self) -> Vec<(u32, u32)> {
        let ours = self.ours;
        let segments = self.sent().into_iter().filter(|segment| segment.sequence_len() > 0);
        segments.map(|segment| (segment.seq.0.wrapping_sub(ours.0), segment.sequence_len())).collect()
    }

    /// The same in full segments of 1000 bytes, the first being 1.
    pub fn full_sent(&mut self) -> Vec<u32> {
        let sent = self.data_sent().into_iter();
        sent.map(|(at, length)| {
            assert_eq!((at % 1000, length), (1, 1000));
            at / 1000 + 1
        })
        .collect()
    }

    /// Goes on to the connection's next timer, which runs out. Returns how long that took.
    pub fn wait(&mut self) -> Time {
        let at = self.end.timeout().expect("a timer runs");
        let waited = at.since(self.now);
        self.now = self.now.max(at);
        self.end.on_time(self.now);
        waited
    }

    pub fn pass(&mut self, time: Time) {
        self.now = self.now + time;
    }
}

/// Where full segment `number` of 1000 bytes begins, the first being 1.
pub fn at(number: u32) -> u32 {
    (number - 1) * 1000 + 1
}
