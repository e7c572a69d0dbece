//! One direction of a link as pure arithmetic: when a packet comes out, or that it does not.
//!
//! The line is a first-in-first-out queue before a wire of fixed rate, followed by a fixed delay. Nothing here waits or
//! reads a clock: a packet's fate is settled when it arrives. Times are nanoseconds of any one clock.

use std::collections::VecDeque;

use ekiden_scenario::{Link, Queue};
use ekiden_units::Fraction;

use crate::random::Random;

/// One direction of a link.
///
/// Invariants: packets come out in the order of arrival; the wire carries one packet at a time and rests only when none
/// waits; the packets waiting (arrived, and not begun to be sent) never exceed the queue's limit.
#[derive(Debug, Clone)]
pub struct Line {
    rate_bit_s: u64,
    delay_ns: u64,
    queue: Queue,
    loss: Fraction,
    random: Random,
    /// When the wire is free: `free_ns` and `free_part` parts of a nanosecond, of which `rate_bit_s` make one.
    free_ns: u64,
    free_part: u64,
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
    /// The queue has no room for it.
    Dropped,
    /// It is sent, and lost on the way.
    Lost,
}

impl Line {
    /// A line with the properties of `link`, its random losses drawn from `seed`.
    pub fn new(link: &Link, seed: u64) -> Self {
        Self {
            rate_bit_s: link.rate.0.max(1),
            delay_ns: link.delay.0,
            queue: link.queue,
            loss: link.loss,
            random: Random::new(seed),
            free_ns: 0,
            free_part: 0,
            last_arrival_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// A packet of `bytes` arrives. An arrival before the previous one counts as simultaneous with it.
    pub fn offer(&mut self, arrival_ns: u64, bytes: u32) -> Fate {
        let arrival_ns = arrival_ns.max(self.last_arrival_ns);
        self.last_arrival_ns = arrival_ns;
        while let Some(&(_, waited)) = self.waiting.front().filter(|(start_ns, _)| *start_ns <= arrival_ns) {
            self.waiting_bytes -= u64::from(waited);
            self.waiting.pop_front();
        }
        if self.free_ns < arrival_ns {
            (self.free_ns, self.free_part) = (arrival_ns, 0);
        }
        let begins_at_once = self.free_ns == arrival_ns;
        if !begins_at_once {
            if !self.has_room(bytes) {
                return Fate::Dropped;
            }
            self.waiting.push_back((self.free_ns, bytes));
            self.waiting_bytes += u64::from(bytes);
        }
        self.send(bytes);
        // The loss happens on the wire: a lost packet has taken its time on it.
        if self.random.is_below(self.loss) {
            return Fate::Lost;
        }
        Fate::Arrives { due_ns: self.free_ns.saturating_add(self.delay_ns) }
    }

    /// Bytes that waited after the last arrival.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Packets that waited after the last arrival.
    pub fn waiting_packets(&self) -> u64 {
        self.waiting.len() as u64
    }

    fn has_room(&self, bytes: u32) -> bool {
        match self.queue {
            Queue::Bytes(limit) => self.waiting_bytes + u64::from(bytes) <= limit.0,
            Queue::Packets(limit) => (self.waiting.len() as u64) < limit,
        }
    }

    /// Keeps the wire busy for as long as the packet takes, exactly: the remainder is carried over.
    fn send(&mut self, bytes: u32) {
        let rate = u128::from(self.rate_bit_s);
        let parts = u128::from(bytes) * 8 * 1_000_000_000 + u128::from(self.free_part);
        self.free_ns = self.free_ns.saturating_add(u64::try_from(parts / rate).unwrap_or(u64::MAX));
        self.free_part = (parts % rate) as u64;
    }
}

#[cfg(test)]
mod tests;
