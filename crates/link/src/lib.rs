//! A link as arithmetic: what the lab's emulator does in real time and the simulator in virtual time.
//!
//! [`Line`] is one direction of a link that decides a packet's fate on arrival. [`Channel`] holds the packets too, which
//! CoDel needs. Nothing here waits or reads a clock.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod channel;
mod codel;
mod counts;
mod flow_queue;
mod line;
mod link_packet;
mod loss;
mod managed_line;
mod pacing;
#[cfg(test)]
mod plain;
mod policer;
mod queue_length;
mod red;
mod reorder;
mod serializer;
mod sharing;
mod tunnel_queue;

pub use channel::Channel;
pub use counts::{Counts, Signals};
pub use line::{Fate, Line};
pub use link_packet::LinkPacket;
pub use pacing::{LOOKING, Pacing, Seen, Siblings};
pub use queue_length::QueueLength;
pub use reorder::put;
pub use sharing::{Service, Sharing, StreamSeen};
pub use tunnel_queue::TunnelQueue;

use ekiden_scenario::{Direction, Queue};
use ekiden_units::{Bytes, Time};

/// How long the full queue of a direction takes to drain, of packets as large as the link carries.
pub fn queue_drain(direction: &Direction) -> Time {
    direction.rate.time_for(match direction.queue {
        Queue::Bytes(bytes) => bytes,
        Queue::Packets(packets) => Bytes(packets.saturating_mul(direction.mtu.into())),
    })
}

/// Whether a queue of this length has room for a packet of `bytes`.
fn has_room(limit: Queue, waiting_packets: usize, waiting_bytes: u64, bytes: u32) -> bool {
    is_within(limit, waiting_packets + 1, waiting_bytes + u64::from(bytes))
}

/// Whether a queue's length is within its limit.
fn is_within(limit: Queue, packets: usize, bytes: u64) -> bool {
    match limit {
        Queue::Bytes(limit) => bytes <= limit.0,
        Queue::Packets(limit) => packets as u64 <= limit,
    }
}
