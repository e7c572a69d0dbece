//! What a series holds: samples of senders and of queues. The columns of the files are listed here.

use std::sync::Arc;

/// A row of a series, and the columns that it has in files.
pub trait Row: Sized {
    /// What the series is called, also in the names of its files.
    const SERIES: &'static str;
    /// The columns in their order: the name, whether it holds text instead of whole numbers, and whether a value can be absent.
    const COLUMNS: &'static [(&'static str, bool, bool)];

    /// When it was sampled, since the start of the run.
    fn at_us(&self) -> u64;

    /// Hands out the value of each column, in their order.
    fn cells<'a>(&'a self, put: impl FnMut(Cell<'a>));

    /// A row of these values; `None` if one is missing.
    fn of(values: &mut impl Values) -> Option<Self>;
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'a> {
    /// A whole number.
    Number(u64),
    /// A name.
    Name(&'a Arc<str>),
    /// None: the value is absent.
    Absent,
}

/// Gives the values of a row that was read, column after column.
pub trait Values {
    /// The value of the next column; `None` if it is absent, or no number.
    fn number(&mut self) -> Option<u64>;

    /// The value of the next column; `None` if it is absent, or no name.
    fn name(&mut self) -> Option<Arc<str>>;

    /// As [`Values::number`]; `None` also if it is too great.
    fn short(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }
}

/// A sender's state at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Since the start of the run.
    pub at_us: u64,
    /// The flow's name.
    pub flow: Arc<str>,
    /// The connection of the flow, counted from 0.
    pub connection: u32,
    /// Payload that has arrived at the receiver.
    pub received_bytes: u64,
    /// Payload that the sender's peer (the first proxy, if any) has acknowledged.
    pub acked_bytes: u64,
    /// Congestion window.
    pub cwnd_segments: u32,
    /// Slow start threshold; absent while none is set.
    pub ssthresh_segments: Option<u32>,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// The window that the peer advertises.
    pub window_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u64,
    /// Least round-trip time so far.
    pub rtt_min_us: u64,
    /// Segments sent again so far.
    pub retransmits: u64,
    /// Recent rate of delivery.
    pub delivery_bit_s: u64,
}

impl Row for Sample {
    const SERIES: &'static str = "samples";
    const COLUMNS: &'static [(&'static str, bool, bool)] = &[
        ("at_us", false, false),
        ("flow", true, false),
        ("connection", false, false),
        ("received_bytes", false, false),
        ("acked_bytes", false, false),
        ("cwnd_segments", false, false),
        ("ssthresh_segments", false, true),
        ("unacked_segments", false, false),
        ("window_bytes", false, false),
        ("rtt_us", false, false),
        ("rtt_min_us", false, false),
        ("retransmits", false, false),
        ("delivery_bit_s", false, false),
    ];

    fn at_us(&self) -> u64 {
        self.at_us
    }

    fn cells<'a>(&'a self, mut put: impl FnMut(Cell<'a>)) {
        put(Cell::Number(self.at_us));
        put(Cell::Name(&self.flow));
        put(Cell::Number(self.connection.into()));
        put(Cell::Number(self.received_bytes));
        put(Cell::Number(self.acked_bytes));
        put(Cell::Number(self.cwnd_segments.into()));
        put(number(self.ssthresh_segments));
        put(Cell::Number(self.unacked_segments.into()));
        put(Cell::Number(self.window_bytes));
        put(Cell::Number(self.rtt_us));
        put(Cell::Number(self.rtt_min_us));
        put(Cell::Number(self.retransmits));
        put(Cell::Number(self.delivery_bit_s));
    }

    fn of(values: &mut impl Values) -> Option<Self> {
        Some(Self {
            at_us: values.number()?,
            flow: values.name()?,
            connection: values.short()?,
            received_bytes: values.number()?,
            acked_bytes: values.number()?,
            cwnd_segments: values.short()?,
            ssthresh_segments: values.short(),
            unacked_segments: values.short()?,
            window_bytes: values.number()?,
            rtt_us: values.number()?,
            rtt_min_us: values.number()?,
            retransmits: values.number()?,
            delivery_bit_s: values.number()?,
        })
    }
}

/// A sample of a queue: its length, and its drops so far.
///
/// A queue has a new sample only when it has changed since its last. Before its first, it is empty and has dropped
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSample {
    /// Since the start of the run.
    pub at_us: u64,
    /// The link that it is the queue of; absent if it is a tunnel's.
    pub link: Option<Arc<str>>,
    /// The tunnel that it is the queue of; absent if it is a link's.
    pub tunnel: Option<Arc<str>>,
    /// The connection of the tunnel, counted from 0; absent if it is a link's.
    pub connection: Option<u32>,
    /// The end at which packets enter.
    pub from: Arc<str>,
    /// Packets that wait; the one that is being sent is not among them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the queue has dropped so far.
    pub drops: u64,
}

impl QueueSample {
    /// Whether both are of the same queue.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        (&self.link, &self.tunnel, self.connection, &self.from)
            == (&other.link, &other.tunnel, other.connection, &other.from)
    }

    /// What it says of the queue.
    pub(crate) fn state(&self) -> [u64; 3] {
        [self.packets, self.bytes, self.drops]
    }
}

impl Row for QueueSample {
    const SERIES: &'static str = "queues";
    const COLUMNS: &'static [(&'static str, bool, bool)] = &[
        ("at_us", false, false),
        ("link", true, true),
        ("tunnel", true, true),
        ("connection", false, true),
        ("from", true, false),
        ("packets", false, false),
        ("bytes", false, false),
        ("drops", false, false),
    ];

    fn at_us(&self) -> u64 {
        self.at_us
    }

    fn cells<'a>(&'a self, mut put: impl FnMut(Cell<'a>)) {
        put(Cell::Number(self.at_us));
        put(self.link.as_ref().map_or(Cell::Absent, Cell::Name));
        put(self.tunnel.as_ref().map_or(Cell::Absent, Cell::Name));
        put(number(self.connection));
        put(Cell::Name(&self.from));
        put(Cell::Number(self.packets));
        put(Cell::Number(self.bytes));
        put(Cell::Number(self.drops));
    }

    fn of(values: &mut impl Values) -> Option<Self> {
        Some(Self {
            at_us: values.number()?,
            link: values.name(),
            tunnel: values.name(),
            connection: values.short(),
            from: values.name()?,
            packets: values.number()?,
            bytes: values.number()?,
            drops: values.number()?,
        })
    }
}

fn number(value: Option<u32>) -> Cell<'static> {
    value.map_or(Cell::Absent, |value| Cell::Number(value.into()))
}
