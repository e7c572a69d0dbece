//! What an end has seen of a stream at one time: a list of numbers, which gets longer at its end only.

use std::fmt;

use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A sender or a receiver at one time. Sent as a list of its numbers in their order; further ones are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(into = "Numbers")]
pub struct Row {
    /// When, in microseconds of the end's own clock since the load's start there.
    pub at_us: u64,
    /// Payload taken from the program and given to it: written by a sender, received by a receiver.
    pub program_bytes: u64,
    /// Payload acknowledged to a sender; received in order by a receiver's kernel.
    pub kernel_bytes: u64,
    /// Payload sent for the first time. 0 at a receiver.
    pub sent_bytes: u64,
    /// Segments sent again; at a receiver those that came out of order.
    pub retransmits: u32,
    /// Segments delivered; at a receiver those that have come, twice counted where they came twice.
    pub delivered: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow start threshold in segments.
    pub ssthresh: u32,
    /// Segments not acknowledged.
    pub unacked: u32,
    /// Segments of these that count as lost.
    pub lost: u32,
    /// Smoothed round trip in microseconds.
    pub rtt_us: u32,
    /// Least round trip in microseconds.
    pub rtt_min_us: u32,
    /// The window that the peer advertises.
    pub window: u32,
    /// Bytes written and not sent.
    pub unsent: u32,
    /// Recent rate of delivery in bytes per second.
    pub delivery_bytes_s: u64,
    /// Time with data under way, in microseconds.
    pub busy_us: u64,
    /// Time of it in which the peer's window was the limit.
    pub window_limited_us: u64,
    /// Time of it in which the send buffer was.
    pub buffer_limited_us: u64,
    /// Whether the send buffer takes nothing more.
    pub is_buffer_full: bool,
}

/// How many numbers a row has.
const NUMBERS: usize = 19;
type Numbers = [u64; NUMBERS];

impl From<Row> for Numbers {
    fn from(row: Row) -> Self {
        [
            row.at_us,
            row.program_bytes,
            row.kernel_bytes,
            row.sent_bytes,
            row.retransmits.into(),
            row.delivered.into(),
            row.cwnd.into(),
            row.ssthresh.into(),
            row.unacked.into(),
            row.lost.into(),
            row.rtt_us.into(),
            row.rtt_min_us.into(),
            row.window.into(),
            row.unsent.into(),
            row.delivery_bytes_s,
            row.busy_us,
            row.window_limited_us,
            row.buffer_limited_us,
            row.is_buffer_full.into(),
        ]
    }
}

impl From<Numbers> for Row {
    /// What is too great for its place, as no kernel says it, becomes the greatest.
    fn from(numbers: Numbers) -> Self {
        let short = |at: usize| u32::try_from(numbers[at]).unwrap_or(u32::MAX);
        Self {
            at_us: numbers[0],
            program_bytes: numbers[1],
            kernel_bytes: numbers[2],
            sent_bytes: numbers[3],
            retransmits: short(4),
            delivered: short(5),
            cwnd: short(6),
            ssthresh: short(7),
            unacked: short(8),
            lost: short(9),
            rtt_us: short(10),
            rtt_min_us: short(11),
            window: short(12),
            unsent: short(13),
            delivery_bytes_s: numbers[14],
            busy_us: numbers[15],
            window_limited_us: numbers[16],
            buffer_limited_us: numbers[17],
            is_buffer_full: numbers[18] != 0,
        }
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Reader).map(Self::from)
    }
}

/// Reads a row's numbers.
struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Numbers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at least {NUMBERS} numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Numbers, A::Error> {
        let mut numbers = [0; NUMBERS];
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = list.next_element()?.ok_or_else(|| A::Error::invalid_length(at, &self))?;
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(numbers)
    }
}
