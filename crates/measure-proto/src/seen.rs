//! What an end has seen of the streams of a load, and which end that is.

use ekiden_record::Way;

use crate::message::StreamEnd;
use crate::row::Row;

/// Which end of a path this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that asked: it sends forth and receives back.
    Near,
    /// The server.
    Far,
}

impl Side {
    /// Whether this end sends in a direction.
    pub fn sends(self, way: Way) -> bool {
        (self == Self::Near) == (way == Way::Forth)
    }
}

/// What an end has seen of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSeen {
    /// The direction of its data.
    pub way: Way,
    /// Its number.
    pub stream: u32,
    /// In all.
    pub end: StreamEnd,
    /// Over time.
    pub rows: Vec<Row>,
}

impl LoadSeen {
    /// When the stream was over at this end, in microseconds since the load's start there.
    pub fn end_us(&self) -> u64 {
        self.end.first_us.saturating_add(self.end.duration_us)
    }
}
