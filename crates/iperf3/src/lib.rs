//! A client of plain iperf3 servers: their control protocol, loads in either direction, and what the receiver says that it received.
//!
//! TCP only. What is said with the server is in `message.rs`, without I/O; `control.rs` says it, `stream.rs` moves the data, and
//! `course.rs` has the course of a measurement.

mod control;
mod course;
mod error;
#[doc(hidden)]
pub mod message;
mod stream;
mod who;

use std::net::SocketAddr;
use std::time::Duration;

use ekiden_record::Sample;
use ekiden_units::Bytes;

use ekiden_diagnosis::jitter::Lateness;
use ekiden_diagnosis::limit::Shares;

pub use control::is_there;
pub use course::run;
pub use error::{Error, Phase};

/// The port of iperf3 servers.
pub const PORT: u16 = 5201;
/// The most streams of one direction, as iperf3 has it.
pub const STREAMS_MOST: u32 = 128;
/// The largest block, in bytes, as iperf3 has it.
pub const BLOCK_MOST: u32 = 1 << 20;
/// The longest measurement and the longest omitted time, as iperf3 has them.
pub const TIME_MOST: Duration = Duration::from_secs(86_400);
/// The longest omitted time, as iperf3 has it.
pub const OMIT_MOST: Duration = Duration::from_secs(600);

/// What is to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The server: `HOST`, `HOST:PORT`, `[IPV6]:PORT`. Without a port, [`PORT`].
    pub server: String,
    /// Connections in each direction that is measured.
    pub streams: u32,
    /// Which way data goes.
    pub direction: LoadDirection,
    /// When the measurement ends.
    pub until: Until,
    /// Limit on the payload of a direction: a measurement by time ends early when it is reached.
    pub bytes_most: Option<Bytes>,
    /// A SOCKS5 listener without password, `HOST:PORT`, that all connections go through. What TCP says of itself is then of the
    /// connections to the listener.
    pub via: Option<String>,
    /// The time at the beginning that does not count, because of slow start; in whole seconds. It precedes the duration; not with
    /// [`Until::Bytes`].
    pub omit: Duration,
    /// Bytes that are handed to the kernel at once, on both ends.
    pub block_bytes: u32,
    /// Congestion control of both ends, by the kernel's name.
    pub congestion: Option<String>,
    /// Send and receive buffer of both ends. The kernel doubles it for its own bookkeeping, and stops tuning it by itself.
    pub window: Option<Bytes>,
    /// The time between two samples.
    pub sample_every: Duration,
    /// Timeout of a silent server, and of a transfer by bytes that makes no progress.
    pub patience: Duration,
}

impl Settings {
    /// One stream to `server` for ten seconds.
    pub fn new(server: &str) -> Self {
        Self {
            server: server.into(),
            streams: 1,
            direction: LoadDirection::Send,
            until: Until::Time(Duration::from_secs(10)),
            bytes_most: None,
            via: None,
            omit: Duration::ZERO,
            block_bytes: 128 << 10,
            congestion: None,
            window: None,
            sample_every: Duration::from_millis(20),
            patience: Duration::from_secs(15),
        }
    }

    /// The most payload that a measurement moves, over all streams and directions; `None` where it depends on the path alone.
    pub fn announced_bytes(&self) -> Option<u64> {
        let ways = if self.direction == LoadDirection::Both { 2 } else { 1 };
        match self.until {
            Until::Bytes(bytes) => Some(bytes.0.saturating_mul(ways)),
            Until::Time(_) => self.bytes_most.map(|bytes| bytes.0.saturating_mul(ways)),
        }
    }
}

/// Which way data goes, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadDirection {
    /// From here to the server.
    Send,
    /// From the server to here (`iperf3 --reverse`).
    Receive,
    /// Both at once (`iperf3 --bidir`).
    Both,
}

/// When a measurement ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// When, in each direction, all its streams together have moved this much payload.
    Bytes(Bytes),
}

/// What is told while a measurement goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The server has taken the request, and the streams are there.
    Begun {
        /// The server's address; with `via` that of the SOCKS5 listener.
        server: SocketAddr,
        /// The largest segment that the first stream sends, in bytes of payload.
        mss_bytes: u32,
    },
    /// All streams were sampled.
    Sampled {
        /// Time since data may flow, in microseconds.
        at_us: u64,
        /// One for each stream. `received_bytes` is what has arrived at the receiver: on streams towards the server, what its kernel has
        /// acknowledged. The flow is `send` or `receive`.
        samples: &'a [Sample],
        /// Which part of the measurement is done, 0 to 1.
        done: f64,
    },
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The server's address; with `via` that of the SOCKS5 listener.
    pub server: SocketAddr,
    /// The congestion control that the server says its sockets have had; absent if it does not say.
    pub server_congestion: Option<String>,
    /// The congestion control of our sockets.
    pub congestion: String,
    /// One entry per stream: those towards the server first.
    pub streams: Vec<StreamOutcome>,
    /// How late samples were, each of all streams; `None` without one.
    pub late: Option<Lateness>,
}

/// What one stream has carried. The omitted beginning does not count.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamOutcome {
    /// Whether data went from here to the server.
    pub is_sent: bool,
    /// Its number among the streams of its direction, from 0.
    pub connection: u32,
    /// Payload that the sender has handed to its kernel, in bytes: by its own account.
    pub sent_bytes: u64,
    /// Payload that the receiver's program has received, in bytes: by its own account.
    pub received_bytes: u64,
    /// The receiver's time, in microseconds. Of a transfer by bytes to the server: ours, up to the last acknowledgement.
    pub duration_us: u64,
    /// `received_bytes` over `duration_us`.
    pub received_bit_s: u64,
    /// Segments that the sender sent again; absent if a server does not count them.
    pub retransmits: Option<u64>,
    /// Least round-trip time that our end has seen, in microseconds; absent if it has measured none.
    pub rtt_min_us: Option<u64>,
    /// Largest of our end's smoothed round-trip times, in microseconds.
    pub rtt_max_us: Option<u64>,
    /// What limited the sender; absent where the server is the sender.
    pub shares: Option<Shares>,
}

impl Outcome {
    /// The throughput at the receivers of one direction, all streams together, in bit/s; `None` if nothing went that way.
    pub fn received_bit_s(&self, is_sent: bool) -> Option<u64> {
        let streams = || self.streams.iter().filter(|stream| stream.is_sent == is_sent);
        streams().next()?;
        Some(streams().map(|stream| stream.received_bit_s).fold(0, u64::saturating_add))
    }
}
