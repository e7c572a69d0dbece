//! A link as arithmetic: what the lab's emulator does in real time and the simulator in virtual time.
//!
//! [`Line`] is one direction of a link that decides a packet's fate on arrival. [`Channel`] holds the packets too, which
//! CoDel needs. Nothing here waits or reads a clock.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod channel;
mod codel;
mod codel_line;
mod counts;
mod length;
mod line;
mod loss;
mod queue_length;
pub mod random;
mod red;
mod serializer;

pub use channel::Channel;
pub use counts::Counts;
pub use length::PacketLength;
pub use line::{Fate, Line};
pub use queue_length::QueueLength;

use ekiden_scenario::{Link, Queue};
use ekiden_units::{Bytes, Time};

/// How long the full queue of a direction takes to drain, of packets as large as the link carries.
pub fn queue_drain(link: &Link) -> Time {
    link.rate.time_for(match link.queue {
        Queue::Bytes(bytes) => bytes,
        Queue::Packets(packets) => Bytes(packets.saturating_mul(link.mtu.into())),
    })
}

/// Whether a queue of this length has room for a packet of `bytes`.
fn has_room(limit: Queue, waiting_packets: usize, waiting_bytes: u64, bytes: u32) -> bool {
    match limit {
        Queue::Bytes(limit) => waiting_bytes + u64::from(bytes) <= limit.0,
        Queue::Packets(limit) => (waiting_packets as u64) < limit,
    }
}
