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
    /// A socket's program runs, because something has happened to the socket.
    Run(u32),
    /// A socket opens its connection.
    Open(u32),
    /// The time of a flow that drains is over: the source with this number stops.
    Stop(u32),
    /// The time of the flow with this number is over, and the flow ends with it.
    Cut(u32),
    /// The background source with this number sends a datagram.
    Datagram(u32),
    /// A gateway releases a packet for the socket with this number.
    Release(u32),
    /// The ping with this number sends a packet.
    Ping(u32),
    /// The state of the senders is to be recorded.
    Sample,
    /// The nodes of the overlay glance at their connections.
    Glance,
    /// Proxies look at the legs that their streams share.
    Share,
    /// The message with this number between nodes of the overlay arrives, or turns out to be lost.
    Message(u32),
    /// A node of the overlay has waited for the connection of this socket.
    Waited(u32),
    /// The path that was tried for the stream that entered at this socket has failed.
    PathFailed(u32),
    /// The stream that entered at this socket has reached its destination.
    Reached(u32),
}

/// Events by time, and by the order in which they were planned.
type Queue = BinaryHeap<Reverse<(Time, u64, Event)>>;

/// The clock and the queue of events.
///
/// The events of single sockets have a queue of their own: there is one for each of perhaps 100,000 sockets. Most events are
/// others, and are then sorted among few.
#[derive(Debug, Default)]
pub(crate) struct Events {
    now: Time,
    of_sockets: Queue,
    others: Queue,
    planned: u64,
    happened: u64,
}

impl Events {
    pub fn plan(&mut self, at: Time, event: Event) {
        debug_assert!(at >= self.now, "the past cannot be planned");
        self.planned += 1;
        let queue = match event {
            Event::Alarm(_) | Event::Run(_) | Event::Open(_) | Event::Stop(_) => &mut self.of_sockets,
            Event::Delivery(_)
            | Event::Cut(_)
            | Event::Datagram(_)
            | Event::Release(_)
            | Event::Ping(_)
            | Event::Sample
            | Event::Glance
            | Event::Share
            | Event::Message(_)
            | Event::Waited(_)
            | Event::PathFailed(_)
            | Event::Reached(_) => &mut self.others,
        };
        queue.push(Reverse((at, self.planned, event)));
    }

    /// Goes on to the next event.
    pub fn next(&mut self) -> Option<Event> {
        // Reversed, so that the greater one is the earlier, and anything is greater than nothing.
        let is_of_socket = self.of_sockets.peek() > self.others.peek();
        let queue = if is_of_socket { &mut self.of_sockets } else { &mut self.others };
        let Reverse((at, _, event)) = queue.pop()?;
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
