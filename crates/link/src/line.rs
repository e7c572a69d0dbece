//! One direction of a link whose packets' fate is settled when they arrive: when one comes out, or that it does not.
//!
//! The line is a first-in-first-out queue before a wire of fixed rate, followed by a delay. Drop tail and RED decide
//! about a packet when it arrives, so all is known then. Nothing here waits or reads a clock. Times are nanoseconds of any
//! one clock.

use std::collections::VecDeque;

use ekiden_scenario::{Discipline, Link, Queue};

use crate::loss::Loss;
use crate::red::Red;
use crate::wire::Wire;
use crate::{Waiting, has_room};

/// One direction of a link, with drop tail or RED.
///
/// Of CoDel, which decides when packets leave the queue, a line knows the limit only: [`Channel`](crate::Channel) has it
/// all.
///
/// Invariants: packets come out in the order of arrival; the wire carries one packet at a time and rests only when none
/// waits; the packets waiting (arrived, and not begun to be sent) never exceed the queue's limit.
#[derive(Debug, Clone)]
pub struct Line {
    wire: Wire,
    queue: Queue,
    pub(crate) red: Option<Box<Red>>,
    loss: Loss,
    last_arrival_ns: u64,
    /// Packets that have not begun to be sent: when they begin, and their length.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It comes out at the far end at this time.
    Arrives {
        /// Nanoseconds.
        due_ns: u64,
    },
    /// The queue has no room for it, or its discipline chose it.
    Dropped,
    /// It is sent, and lost on the way.
    Lost,
}

impl Line {
    /// A line with the properties of `link`, all that is random drawn from `seed`.
    pub fn new(link: &Link, seed: u64) -> Self {
        let wire = Wire::new(link, seed);
        let red = match link.discipline {
            Discipline::Red => Some(Box::new(Red::new(link.queue, wire.takes_ns(link.mtu), seed))),
            Discipline::DropTail | Discipline::Codel => None,
        };
        Self {
            wire,
            queue: link.queue,
            red,
            loss: Loss::new(link, seed),
            last_arrival_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// A packet of `bytes` arrives. An arrival before the previous one counts as simultaneous with it.
    pub fn offer(&mut self, arrival_ns: u64, bytes: u32) -> Fate {
        let arrival_ns = arrival_ns.max(self.last_arrival_ns);
        self.last_arrival_ns = arrival_ns;
        self.begin(arrival_ns);
        let rested_since_ns = self.wire.rest_until(arrival_ns);
        let begins_at_once = self.wire.free_ns() == arrival_ns;
        let has_room = begins_at_once || has_room(self.queue, self.waiting.len(), self.waiting_bytes, bytes);
        if let Some(red) = &mut self.red {
            let rested_ns = rested_since_ns.map(|since_ns| arrival_ns - since_ns);
            let waiting = match self.queue {
                Queue::Bytes(_) => self.waiting_bytes,
                Queue::Packets(_) => self.waiting.len() as u64,
            };
            if red.drops(waiting, rested_ns, has_room) {
                return Fate::Dropped;
            }
        }
        if !has_room {
            return Fate::Dropped;
        }
        if !begins_at_once {
            self.waiting.push_back((self.wire.free_ns(), bytes));
            self.waiting_bytes += u64::from(bytes);
        }
        let due_ns = self.wire.send(bytes);
        // The loss happens on the wire: a lost packet has taken its time on it.
        if self.loss.strikes() { Fate::Lost } else { Fate::Arrives { due_ns } }
    }

    /// What waits at `now_ns`, which is no earlier than the last arrival, and no later than the next.
    pub fn waiting(&mut self, now_ns: u64) -> Waiting {
        self.begin(now_ns);
        Waiting { packets: self.waiting_packets(), bytes: self.waiting_bytes }
    }

    /// Those that have begun to be sent by `now_ns` wait no longer.
    fn begin(&mut self, now_ns: u64) {
        while let Some(&(_, bytes)) = self.waiting.front().filter(|(start_ns, _)| *start_ns <= now_ns) {
            self.waiting_bytes -= u64::from(bytes);
            self.waiting.pop_front();
        }
    }

    /// Bytes that waited after the last arrival.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Packets that waited after the last arrival.
    pub fn waiting_packets(&self) -> u64 {
        self.waiting.len() as u64
    }
}

#[cfg(test)]
mod tests;
