//! One direction of a link that decides on a packet's arrival when it comes out, or that it is dropped or lost.
//!
//! The line is a first-in-first-out queue, a serializer of fixed rate, and a delay. Drop tail and RED decide about a packet
//! when it arrives, so its fate is known then. Nothing here waits or reads a clock. Times are nanoseconds of any one clock.

use std::collections::VecDeque;

use ekiden_queue::{Queue, QueueLength};

use crate::loss::Loss;
use crate::policer::Policer;
use crate::red::Red;
use crate::serializer::{Due, Serializer};
use crate::{Direction, Discipline};

/// One direction of a link, with drop tail or RED.
///
/// CoDel decides when a packet leaves the queue, so a line cannot model it and applies the queue's limit only;
/// [`Channel`](crate::Channel) models all disciplines.
///
/// Invariants: packets come out in the order of arrival, but for those that are reordered; the serializer sends one packet at a time, and is idle only
/// when none waits; the packets waiting (arrived, and not begun to be sent) never exceed the queue's limit.
#[derive(Debug, Clone)]
pub struct Line {
    serializer: Serializer,
    policer: Option<Policer>,
    queue: Queue,
    pub(crate) red: Option<Box<Red>>,
    loss: Loss,
    last_arrival_ns: u64,
    /// Packets that have not begun to be sent: when they begin, and their length.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
    /// How long the last packet that was sent waits in the queue.
    waited_ns: u64,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It comes out at the far end at this time.
    Arrives {
        /// Nanoseconds.
        due_ns: u64,
    },
    /// The policer has no tokens for it.
    Policed,
    /// The queue has no room for it, or its discipline chose it.
    Dropped,
    /// It is sent, and lost behind the serializer.
    Lost,
    /// It is sent in an outage.
    Outage,
}

impl Line {
    /// A line with the properties of `direction`, all that is random drawn from `seed`.
    pub fn new(direction: &Direction, seed: u64) -> Self {
        let serializer = Serializer::new(direction, seed);
        let red = match direction.discipline {
            Discipline::Red => {
                Some(Box::new(Red::new(direction.queue, serializer.serialization_ns(direction.mtu), seed)))
            }
            Discipline::DropTail | Discipline::Codel | Discipline::FqCodel => None,
        };
        Self {
            serializer,
            policer: Policer::new(direction),
            queue: direction.queue,
            red,
            loss: Loss::new(direction, seed),
            last_arrival_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waited_ns: 0,
        }
    }

    /// A packet of `bytes` arrives. An arrival before the previous one counts as simultaneous with it.
    pub fn offer(&mut self, arrival_ns: u64, bytes: u32) -> Fate {
        let arrival_ns = arrival_ns.max(self.last_arrival_ns);
        self.last_arrival_ns = arrival_ns;
        self.catch_up(arrival_ns);
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(arrival_ns, bytes)) {
            return Fate::Policed;
        }
        let idle_since_ns = self.serializer.idle_until(arrival_ns);
        let begins_at_once = self.serializer.free_ns() == arrival_ns;
        let has_room = begins_at_once || self.queue.has_room(self.waiting.len(), self.waiting_bytes, bytes);
        if let Some(red) = &mut self.red {
            let idle_ns = idle_since_ns.map(|since_ns| arrival_ns - since_ns);
            let waiting = match self.queue {
                Queue::Bytes(_) => self.waiting_bytes,
                Queue::Packets(_) => self.waiting.len() as u64,
            };
            if red.drops(waiting, idle_ns, has_room) {
                return Fate::Dropped;
            }
        }
        if !has_room {
            return Fate::Dropped;
        }
        if !begins_at_once {
            self.waiting.push_back((self.serializer.free_ns(), bytes));
            self.waiting_bytes += u64::from(bytes);
        }
        self.waited_ns = self.serializer.free_ns() - arrival_ns;
        let Due { due_ns, is_out, .. } = self.serializer.send(bytes);
        // A packet is lost after it was sent: it takes its time in the serializer.
        match self.loss.is_next_lost() {
            _ if is_out => Fate::Outage,
            true => Fate::Lost,
            false => Fate::Arrives { due_ns },
        }
    }

    /// Changes and outages count from now on; before, there are none.
    pub fn begin(&mut self, now_ns: u64) {
        self.serializer.begin(now_ns);
    }

    /// What waits at `now_ns`, which is no earlier than the last arrival, and no later than the next.
    pub fn waiting(&mut self, now_ns: u64) -> QueueLength {
        self.catch_up(now_ns);
        QueueLength { packets: self.waiting_packets(), bytes: self.waiting_bytes }
    }

    /// Takes the packets out of the queue that the serializer began to send by `now_ns`.
    fn catch_up(&mut self, now_ns: u64) {
        while let Some(&(_, bytes)) = self.waiting.front().filter(|(start_ns, _)| *start_ns <= now_ns) {
            self.waiting_bytes -= u64::from(bytes);
            self.waiting.pop_front();
        }
    }

    /// Bytes that waited after the last arrival.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// How long the last packet that was sent waits in the queue, in nanoseconds.
    pub fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    /// Packets that waited after the last arrival.
    pub fn waiting_packets(&self) -> u64 {
        self.waiting.len() as u64
    }
}

#[cfg(test)]
mod tests;
