//! One direction of a link, with any queue discipline, and the packets on it.

use std::collections::VecDeque;

use ekiden_queue::{QueueLength, Queued};

use crate::managed_line::ManagedLine;
use crate::{Counts, Direction, Discipline, Fate, Line, put};

/// One direction of a link, and the packets on it.
///
/// The caller offers packets, and takes them out at the time that [`Channel::next_ns`] says. Offering a packet does not
/// change that time, except from `None`, or to an earlier one where packets are reordered; [`Channel::take`] does.
///
/// Times are nanoseconds from the start of the run. Packets of a flow come out in the order of arrival; those of all too, except under `fq_codel`; reordered ones excepted.
#[derive(Debug, Clone)]
pub struct Channel<P>(Model<P>);

#[derive(Debug, Clone)]
enum Model<P> {
    /// A packet's fate is known on arrival.
    Settled { line: Line, under_way: VecDeque<(u64, P)>, counts: Counts },
    /// A packet's fate is known when it leaves the queue.
    Managed(ManagedLine<P>),
}

impl<P: Queued> Channel<P> {
    /// A channel with the properties of `direction`, all that is random drawn from `seed`.
    pub fn new(direction: &Direction, seed: u64) -> Self {
        Self(match direction.discipline {
            Discipline::DropTail | Discipline::Red => {
                let mut line = Line::new(direction, seed);
                line.begin(0);
                Model::Settled { line, under_way: VecDeque::new(), counts: Counts::default() }
            }
            Discipline::Codel | Discipline::FqCodel => Model::Managed(ManagedLine::new(direction, seed)),
        })
    }

    /// A packet arrives, at the time of the previous one or later; an earlier arrival counts as simultaneous with it.
    #[inline]
    pub fn offer(&mut self, arrival_ns: u64, packet: P) {
        match &mut self.0 {
            Model::Settled { line, under_way, counts } => {
                let bytes = packet.bytes();
                let fate = line.offer(arrival_ns, bytes);
                counts.offered(bytes, fate, line);
                if let Fate::Arrives { due_ns } = fate {
                    put(under_way, due_ns, packet);
                }
            }
            Model::Managed(line) => line.offer(arrival_ns, packet),
        }
    }

    /// When to take from the channel next; `None` while nothing is under way.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        match &self.0 {
            Model::Settled { under_way, .. } => under_way.front().map(|(due_ns, _)| *due_ns),
            Model::Managed(line) => line.next_ns(),
        }
    }

    /// The first packet that is due by `now_ns`, if any: at the time of [`Channel::next_ns`] there can be none, because it
    /// was lost on the way.
    ///
    /// All that arrived up to `now_ns` less the delay of the link must have been offered.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<P> {
        match &mut self.0 {
            Model::Settled { under_way, counts, .. } => {
                under_way.front().filter(|(due_ns, _)| *due_ns <= now_ns)?;
                let (_, packet) = under_way.pop_front()?;
                counts.delivered(packet.bytes());
                Some(packet)
            }
            Model::Managed(line) => line.take(now_ns),
        }
    }

    /// What waits for the line at `now_ns`, which is no earlier than the last arrival, and no later than the next.
    pub fn waiting(&mut self, now_ns: u64) -> QueueLength {
        match &mut self.0 {
            Model::Settled { line, .. } => line.waiting(now_ns),
            Model::Managed(line) => line.waiting(now_ns),
        }
    }

    /// What it has done so far.
    pub fn counts(&self) -> &Counts {
        match &self.0 {
            Model::Settled { counts, .. } => counts,
            Model::Managed(line) => line.counts(),
        }
    }
}

#[cfg(test)]
mod tests;
