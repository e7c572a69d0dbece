//! The limit of a queue, and how it is written in a file.

use std::fmt;

use ekiden_units::Bytes;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The limit of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Counted in bytes of IP packets.
    Bytes(Bytes),
    /// Counted in packets.
    Packets(u64),
}

impl Queue {
    /// Whether a queue of this length has room for a packet of `bytes`.
    pub fn has_room(self, waiting_packets: usize, waiting_bytes: u64, bytes: u32) -> bool {
        self.holds(waiting_packets + 1, waiting_bytes + u64::from(bytes))
    }

    /// Whether a queue of this number of packets and bytes is within the limit.
    pub fn holds(self, packets: usize, bytes: u64) -> bool {
        match self {
            Self::Bytes(limit) => bytes <= limit.0,
            Self::Packets(limit) => packets as u64 <= limit,
        }
    }
}

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) => bytes.serialize(serializer),
            Self::Packets(packets) => serializer.collect_str(&format_args!("{packets} packets")),
        }
    }
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText)
    }
}

/// Parses a queue's limit, and describes the expected form if the text is something else.
struct FromText;

impl Visitor<'_> for FromText {
    type Value = Queue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes, such as \"100KB\" or \"50 packets\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Queue, E> {
        let packets = text.trim().strip_suffix("packets").or_else(|| text.trim().strip_suffix("packet"));
        let queue = match packets {
            Some(number) => number.trim().parse().ok().map(Queue::Packets),
            None => text.parse().ok().map(Queue::Bytes),
        };
        queue.ok_or_else(|| E::custom(format!("'{text}' is not a queue limit, such as 100KB or \"50 packets\"")))
    }
}
