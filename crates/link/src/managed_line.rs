//! One direction of a link whose queue decides about a packet when it leaves: CoDel, for all packets together or per flow.
//!
//! What happens in the queue follows from the arrivals so far, so the line computes it only when it is called, for all the
//! time since the last call. What comes out, and when, does not depend on how often it is called.

use std::collections::VecDeque;

use ekiden_queue::{Codel, CodelTimes, Fifo, FlowQueue, Queue, QueueLength, Queued, Signals};

use crate::loss::Loss;
use crate::policer::Policer;
use crate::serializer::{Due, Serializer};
use crate::{Counts, Direction, Discipline, put};
use ekiden_units::random::derive;

/// A line with CoDel, and the packets on it.
///
/// Invariants: those of [`Line`](crate::Line); and while packets wait in the queue, at least one is under way.
#[derive(Debug, Clone)]
pub(crate) struct ManagedLine<P> {
    serializer: Serializer,
    policer: Option<Policer>,
    queue: Queue,
    loss: Loss,
    last_arrival_ns: u64,
    waiting: Waiting<P>,
    /// Packets that were sent, each with the time at which it comes out. A lost packet has an entry too, with `None`: at
    /// that time the caller calls again, and the packets that wait behind it are sent.
    under_way: VecDeque<(u64, Option<P>)>,
    counts: Counts,
}

/// The packets that wait, and what decides about them.
#[derive(Debug, Clone)]
enum Waiting<P> {
    Together(Codel, Fifo<P>),
    ByFlow(Box<FlowQueue<P>>),
}

impl<P: Queued> Waiting<P> {
    fn packets(&self) -> usize {
        match self {
            Self::Together(_, packets) => packets.packets(),
            Self::ByFlow(flows) => flows.packets(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Together(_, packets) => packets.bytes(),
            Self::ByFlow(flows) => flows.bytes(),
        }
    }

    /// A packet arrives. Returns how many are dropped so that the queue stays within `limit`: this one, or the first of the
    /// longest flow.
    fn push(&mut self, limit: Queue, arrival_ns: u64, packet: P) -> u64 {
        match self {
            Self::ByFlow(flows) => flows.push(arrival_ns, packet),
            Self::Together(_, packets) if limit.has_room(packets.packets(), packets.bytes(), packet.bytes()) => {
                packets.push(arrival_ns, packet);
                0
            }
            Self::Together(..) => 1,
        }
    }

    /// The packet to send next and when it arrived. Counts in `signals` what CoDel drops and marks.
    fn pop(&mut self, now_ns: u64, signals: &mut Signals) -> Option<(u64, P)> {
        match self {
            Self::Together(codel, packets) => {
                let before = codel.signals();
                let head = codel.dequeue(now_ns, packets, 0);
                *signals += codel.signals().since(before);
                head
            }
            Self::ByFlow(flows) => flows.pop(now_ns, signals),
        }
    }
}

impl<P: Queued> ManagedLine<P> {
    /// A line with the properties of `direction`, all that is random drawn from `seed`.
    pub fn new(direction: &Direction, seed: u64) -> Self {
        let mut serializer = Serializer::new(direction, seed);
        serializer.begin(0);
        Self {
            serializer,
            policer: Policer::new(direction),
            queue: direction.queue,
            loss: Loss::new(direction, seed),
            last_arrival_ns: 0,
            waiting: match direction.discipline {
                Discipline::FqCodel => {
                    let salt = derive(seed, "flows", 0);
                    Waiting::ByFlow(Box::new(FlowQueue::new(
                        direction.queue,
                        direction.mtu,
                        CodelTimes::default(),
                        salt,
                    )))
                }
                _ => Waiting::Together(Codel::new(direction.mtu, CodelTimes::default()), Fifo::default()),
            },
            under_way: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub fn offer(&mut self, arrival_ns: u64, packet: P) {
        let arrival_ns = arrival_ns.max(self.last_arrival_ns);
        self.last_arrival_ns = arrival_ns;
        let bytes = packet.bytes();
        self.catch_up(arrival_ns);
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(arrival_ns, bytes)) {
            self.counts.policer_drops += 1;
        } else {
            self.queue(arrival_ns, packet);
        }
        self.counts.arrived(bytes, self.waiting.packets() as u64, self.waiting.bytes());
    }

    /// Everything up to `arrival_ns` has happened: nothing waits if the serializer is free.
    fn queue(&mut self, arrival_ns: u64, packet: P) {
        self.serializer.idle_until(arrival_ns);
        self.counts.queue_drops += self.waiting.push(self.queue, arrival_ns, packet);
        if self.serializer.free_ns() == arrival_ns {
            self.send(arrival_ns);
        }
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.under_way.front().map(|(due_ns, _)| *due_ns)
    }

    pub fn take(&mut self, now_ns: u64) -> Option<P> {
        let &(due_ns, _) = self.under_way.front()?;
        if due_ns > now_ns {
            return None;
        }
        // If packets wait, the next one was begun when this one had been sent: so one is under way again.
        self.catch_up(self.serializer.end_ns(due_ns));
        let (_, packet) = self.under_way.pop_front()?;
        packet.inspect(|packet| self.counts.delivered(packet.bytes()))
    }

    pub fn waiting(&mut self, now_ns: u64) -> QueueLength {
        self.catch_up(now_ns);
        QueueLength { packets: self.waiting.packets() as u64, bytes: self.waiting.bytes() }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sends all packets that the serializer could begin to send by `now_ns`.
    fn catch_up(&mut self, now_ns: u64) {
        while self.waiting.packets() > 0 && self.serializer.free_ns() <= now_ns {
            self.send(self.serializer.free_ns());
        }
    }

    /// Sends the next packet. The serializer is free at `now_ns`, and at least one packet waits.
    fn send(&mut self, now_ns: u64) {
        let mut signals = Signals::default();
        let next = self.waiting.pop(now_ns, &mut signals);
        self.counts.signalled(signals);
        let Some((arrival_ns, packet)) = next else { return };
        self.counts.sent(now_ns.saturating_sub(arrival_ns));
        let Due { in_order_ns, due_ns, is_out } = self.serializer.send(packet.bytes());
        // A packet is lost after it was sent: it takes its time in the serializer.
        let is_lost = self.loss.is_next_lost() && !is_out;
        self.counts.random_losses += u64::from(is_lost);
        self.counts.outage_losses += u64::from(is_out);
        // When a late packet would have come out, the caller calls too.
        if due_ns > in_order_ns {
            put(&mut self.under_way, in_order_ns, None);
        }
        put(&mut self.under_way, due_ns, (!is_lost && !is_out).then_some(packet));
    }
}

#[cfg(test)]
mod tests;
