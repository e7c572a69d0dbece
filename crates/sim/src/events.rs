//! The event queue, by time. Events of the same time happen in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ekiden_units::Time;

/// An event. Numbers are indices into the simulation's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The first packet under way on a line is due.
    Delivery(u32),
    /// A socket's timer may have run out.
    Alarm(u32),
    /// A socket opens its connection.
    Open(u32),
    /// A flow's time is over: its source of this number stops.
    Stop(u32),
    /// A datagram of the background leaves its source of this number.
    Datagram(u32),
    /// The state of the senders is to be noted.
    Sample,
}

/// The clock and the queue of events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    planned: u64,
    happened: u64,
}

impl Events {
    pub fn plan(&mut self, at: Time, event: Event) {
        debug_assert!(at >= self.now, "the past cannot be planned");
        self.planned += 1;
        self.queue.push(Reverse((at, self.planned, event)));
    }

    /// Goes on to the next event.
    pub fn next(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.queue.pop()?;
        self.now = at;
        self.happened += 1;
        Some(event)
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// How many events have happened.
    pub fn happened(&self) -> u64 {
        self.happened
    }
}
