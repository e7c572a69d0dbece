//! What waits at an end of a tunnel's connection: in one queue, or in one per flow.

use std::collections::VecDeque;

use ekiden_link::{CodelTimes, FlowQueue, QueueLength};
use ekiden_scenario::{Pull, Queue, Tunnel};
use ekiden_units::Time;

use crate::packet::Packet;

/// The queue in front of a connection.
pub(crate) enum Ingress {
    /// Drop tail. Packets leave it while the send buffer has room for them.
    DropTail { limit: Queue, packets: VecDeque<Packet>, bytes: u64 },
    /// FQ-CoDel. Packets leave it while fewer than so many bytes are written and not sent.
    ByFlow { queue: Box<FlowQueue<Packet>>, unsent: u64 },
}

impl Ingress {
    /// For packets of at most `mtu` bytes.
    pub fn new(tunnel: &Tunnel, mtu: u32, salt: u64) -> Self {
        match tunnel.pull {
            None => Self::DropTail { limit: tunnel.queue, packets: VecDeque::new(), bytes: 0 },
            Some(Pull { target, interval, unsent }) => {
                let queue = FlowQueue::new(tunnel.queue, mtu, CodelTimes { target, interval }, salt);
                Self::ByFlow { queue: Box::new(queue), unsent: unsent.0 }
            }
        }
    }

    /// A packet arrives. Returns how many the queue drops for it.
    pub fn push(&mut self, now: Time, packet: Packet) -> u64 {
        match self {
            Self::DropTail { limit, packets, bytes } => {
                let has_room = match limit {
                    Queue::Bytes(limit) => *bytes + u64::from(packet.bytes) <= limit.0,
                    Queue::Packets(limit) => (packets.len() as u64) < *limit,
                };
                if has_room {
                    *bytes += u64::from(packet.bytes);
                    packets.push_back(packet);
                }
                u64::from(!has_room)
            }
            Self::ByFlow { queue, .. } => queue.push(now.0, packet),
        }
    }

    /// The next packet for a connection whose send buffer has this size, and room for this many bytes, and holds this many that were not
    /// sent. `extra` bytes are written before each. Counts in `dropped` what CoDel drops.
    pub fn pop(&mut self, now: Time, sending: Sending, extra: u64, dropped: &mut u64) -> Option<Packet> {
        match self {
            Self::DropTail { packets, bytes, .. } => {
                // A packet larger than the whole buffer is written in parts.
                let fits = |packet: &&Packet| sending.room >= (extra + u64::from(packet.bytes)).min(sending.buffer);
                packets.front().filter(fits)?;
                packets.pop_front().inspect(|packet| *bytes -= u64::from(packet.bytes))
            }
            Self::ByFlow { queue, unsent } if sending.unsent < *unsent && sending.room > 0 => {
                queue.pop(now.0, dropped).map(|(_, packet)| packet)
            }
            Self::ByFlow { .. } => None,
        }
    }

    /// Whether packets leave it only when those before them have been sent.
    pub fn pulls(&self) -> bool {
        matches!(self, Self::ByFlow { .. })
    }

    /// All that waits is lost.
    pub fn clear(&mut self) {
        match self {
            Self::DropTail { packets, bytes, .. } => {
                packets.clear();
                *bytes = 0;
            }
            Self::ByFlow { queue, .. } => queue.clear(),
        }
    }

    pub fn length(&self) -> QueueLength {
        match self {
            Self::DropTail { packets, bytes, .. } => QueueLength { packets: packets.len() as u64, bytes: *bytes },
            Self::ByFlow { queue, .. } => QueueLength { packets: queue.packets() as u64, bytes: queue.bytes() },
        }
    }
}

/// The state of a connection's send buffer, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub buffer: u64,
    pub room: u64,
    /// Written, and not yet sent once.
    pub unsent: u64,
}
