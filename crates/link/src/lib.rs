//! A link as arithmetic: what the lab's emulator does in real time and the simulator in virtual time.
//!
//! [`Line`] is one direction of a link that decides a packet's fate on arrival. [`Channel`] holds the packets too, which
//! CoDel needs. Nothing here waits or reads a clock.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod channel;
mod counts;
mod direction;
mod line;
mod loss;
mod managed_line;
#[cfg(test)]
mod plain;
mod policer;
mod red;
mod reorder;
mod serializer;

pub use channel::Channel;
pub use counts::Counts;
pub use direction::{Change, Direction, Discipline, Outage, Policer};
pub use line::{Fate, Line};
pub use reorder::put;

use ekiden_queue::Queue;
use ekiden_units::{Bytes, Time};

/// How long the full queue of a direction takes to drain, of packets as large as the link carries.
pub fn queue_drain(direction: &Direction) -> Time {
    direction.rate.time_for(match direction.queue {
        Queue::Bytes(bytes) => bytes,
        Queue::Packets(packets) => Bytes(packets.saturating_mul(direction.mtu.into())),
    })
}
