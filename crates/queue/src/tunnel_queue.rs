//! The queue in front of a tunnel's connection, simulated or real: one queue, or one for each flow.

use std::collections::VecDeque;

use ekiden_units::Time;

use crate::codel::CodelTimes;
use crate::flow_queue::FlowQueue;
use crate::{Pull, Queue, QueueLength, Queued, Signals};

/// The delay, as a percentage of the interval, from which on a slow start overshoots. One that does not overshoot may make a
/// queue of half of what is in flight, and the interval is at least a round trip of the connections inside.
const OVERSHOOT_PERCENT: u64 = 30;

/// The queue at one end of one connection.
#[derive(Debug, Clone)]
pub struct TunnelQueue<P> {
    limit: Queue,
    waiting: Waiting<P>,
}

#[derive(Debug, Clone)]
enum Waiting<P> {
    DropTail { packets: VecDeque<P>, bytes: u64 },
    ByFlow(Box<FlowQueue<P>>),
}

impl<P: Queued> TunnelQueue<P> {
    /// FQ-CoDel with the times of `pull`, for packets of at most `mtu` bytes, or drop tail without. Which flows share a queue
    /// depends on `salt`.
    pub fn new(limit: Queue, pull: Option<Pull>, mtu: u32, salt: u64) -> Self {
        let waiting = match pull {
            None => Waiting::DropTail { packets: VecDeque::new(), bytes: 0 },
            Some(Pull { target, interval, .. }) => {
                let overshoot = Some(Time(interval.0 / 100 * OVERSHOOT_PERCENT));
                Waiting::ByFlow(Box::new(FlowQueue::new(limit, mtu, CodelTimes { target, interval, overshoot }, salt)))
            }
        };
        Self { limit, waiting }
    }

    /// A packet arrives. Returns how many are dropped so that the queue stays within its limit.
    pub fn push(&mut self, now_ns: u64, packet: P) -> u64 {
        match &mut self.waiting {
            Waiting::DropTail { packets, bytes } => {
                let has_room = self.limit.has_room(packets.len(), *bytes, packet.bytes());
                if has_room {
                    *bytes += u64::from(packet.bytes());
                    packets.push_back(packet);
                }
                u64::from(!has_room)
            }
            Waiting::ByFlow(flows) => flows.push(now_ns, packet),
        }
    }

    /// The length of the next packet. `None` if none waits, and with FQ-CoDel, which decides when the packet is taken.
    pub fn next_bytes(&self) -> Option<u32> {
        match &self.waiting {
            Waiting::DropTail { packets, .. } => packets.front().map(Queued::bytes),
            Waiting::ByFlow(_) => None,
        }
    }

    /// The next packet. Counts in `signals` what CoDel drops and marks.
    pub fn pop(&mut self, now_ns: u64, signals: &mut Signals) -> Option<P> {
        match &mut self.waiting {
            Waiting::DropTail { packets, bytes } => {
                packets.pop_front().inspect(|packet| *bytes -= u64::from(packet.bytes()))
            }
            Waiting::ByFlow(flows) => flows.pop(now_ns, signals).map(|(_, packet)| packet),
        }
    }

    /// All that waits is lost.
    pub fn clear(&mut self) {
        match &mut self.waiting {
            Waiting::DropTail { packets, bytes } => {
                packets.clear();
                *bytes = 0;
            }
            Waiting::ByFlow(flows) => flows.clear(),
        }
    }

    /// What waits.
    pub fn length(&self) -> QueueLength {
        match &self.waiting {
            Waiting::DropTail { packets, bytes } => QueueLength { packets: packets.len() as u64, bytes: *bytes },
            Waiting::ByFlow(flows) => QueueLength { packets: flows.packets() as u64, bytes: flows.bytes() },
        }
    }
}
