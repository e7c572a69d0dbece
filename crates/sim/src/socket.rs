//! One end of a connection, and the program that uses it.

use std::sync::Arc;

use ekiden_congestion::PathMemory;
use ekiden_packet::{Segment, Seq};
use ekiden_tcp::{Connection, TcpInfo};
use ekiden_units::Time;
use ekiden_units::random::Random;

use crate::pacer::Pacer;
use crate::packet::{Body, IP_HEADER, Packet};
use crate::stack::Stack;

/// One end of a connection, on a node.
pub(crate) struct Socket {
    /// The node that it is on.
    pub node: u32,
    /// The other end of the connection: its node and its number among the sockets.
    pub peer_node: u32,
    pub peer: u32,
    /// All connections between two nodes share theirs.
    pub stack: Arc<Stack>,
    /// What its node knows of the path to the other.
    pub path: PathMemory,
    /// The initial sequence number.
    pub first_seq: Seq,
    /// `None` until it is opened, or a SYN arrives; and when it is released and closed.
    pub connection: Option<Box<Connection>>,
    /// Nobody looks at it any more: its connection is kept until it is closed.
    pub is_released: bool,
    /// How long its program takes to run each time that it was woken.
    pub wakes: Random,
    /// Its program was woken, and runs later.
    pub is_to_run: bool,
    /// The earliest alarm that is planned.
    pub alarm: Option<Time>,
    pub program: Program,
    /// Of a tunnel's end that is paced.
    pub pacer: Option<Box<Pacer>>,
}

/// What uses a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    /// Sends a flow's data.
    Source {
        flow: u32,
        /// Bytes not yet written; `None`: as much as goes, until it is stopped.
        left: Option<u64>,
    },
    /// Receives them.
    Sink { flow: u32, received: u64, is_done: bool },
    /// A proxy: what arrives here leaves through the other socket, and the other way round.
    Relay {
        flow: u32,
        other: u32,
        /// What follows when this one is connected.
        once: Once,
    },
    /// A node of an overlay at which a stream enters, while its path is chosen and opened: what arrives waits.
    Entry { flow: u32, is_placed: bool },
    /// The same, at the first leg of the path that is tried.
    Opening { flow: u32 },
    /// Of a path that has failed.
    Abandoned,
    /// An end of a tunnel.
    Tunnel(TunnelEnd),
}

/// What follows, once, when a proxy's socket is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Once {
    Nothing,
    /// The other socket opens its connection.
    Opens,
    /// A stream that entered the overlay at this socket has reached its destination.
    Tells(u32),
}

/// Which end of which tunnel's connection a socket is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TunnelEnd {
    /// The tunnel's place in the scenario.
    pub tunnel: u32,
    /// The connection's place in the tunnel.
    pub connection: u32,
    /// 0 or 1, as in the tunnel's `ends`.
    pub end: u8,
}

impl Program {
    /// The flow that it serves, if one.
    pub fn flow(&self) -> Option<u32> {
        match *self {
            Self::Source { flow, .. }
            | Self::Sink { flow, .. }
            | Self::Relay { flow, .. }
            | Self::Entry { flow, .. }
            | Self::Opening { flow } => Some(flow),
            Self::Tunnel(_) | Self::Abandoned => None,
        }
    }
}

impl Socket {
    /// Opens the connection. Returns whether it was not open.
    pub fn open(&mut self, ports: (u16, u16)) -> bool {
        let is_new = self.connection.is_none();
        if is_new {
            let control = self.stack.control(&self.path);
            let connection = Connection::connect(&self.stack.settings, control, ports, self.first_seq);
            self.connection = Some(Box::new(connection));
        }
        is_new
    }

    /// A segment arrives. The first one, if it is a SYN, opens the connection.
    pub fn receive(&mut self, now: Time, segment: &Segment) {
        match &mut self.connection {
            Some(connection) => {
                connection.on_segment(now, segment);
            }
            None if self.is_released => {}
            None => {
                let control = self.stack.control(&self.path);
                let connection = Connection::accept(&self.stack.settings, control, segment, self.first_seq, now);
                self.connection = connection.map(Box::new);
            }
        }
    }

    /// An alarm goes off. Returns whether it is the earliest one that was planned; others have been replaced.
    pub fn on_alarm(&mut self, now: Time) -> bool {
        let counts = self.alarm == Some(now);
        if counts {
            self.alarm = None;
            if let Some(connection) = &mut self.connection {
                connection.on_time(now);
            }
        }
        counts
    }

    /// Its program is woken. When it runs; `None` if that is planned already.
    #[inline]
    pub fn runs_at(&mut self, now: Time) -> Option<Time> {
        let within = self.stack.wakes_within;
        if within == Time(0) {
            return Some(now);
        }
        if self.is_to_run {
            return None;
        }
        self.is_to_run = true;
        // Not at once in any case, for what was woken at the same time sees the same.
        Some(now + Time(self.wakes.up_to(within.0).max(1)))
    }

    /// The program has nothing more to send than what it has written.
    pub fn stop(&mut self) {
        if let Program::Source { left, .. } = &mut self.program {
            *left = Some(0);
        }
    }

    /// Resets the connection, if there is one that has not failed. Returns whether there was.
    pub fn abort(&mut self) -> bool {
        let connection = self.connection.as_mut().filter(|connection| connection.failure().is_none());
        connection.map(|connection| connection.abort()).is_some()
    }

    /// The next packet that is to be sent now.
    pub fn poll_packet(&mut self, now: Time) -> Option<Packet> {
        if self.pacer.as_mut().is_some_and(|pacer| !pacer.may_send(now)) {
            return None;
        }
        let connection = self.connection.as_mut()?;
        let segment = connection.poll_transmit(now)?.segment;
        if let Some(pacer) = &mut self.pacer {
            pacer.sent(now, segment.payload, &connection.info());
        }
        let bytes = IP_HEADER + segment.header_bytes() + segment.payload;
        Some(Packet { to: self.peer_node, socket: self.peer, bytes, body: Body::Segment(segment) })
    }

    /// When an alarm must be planned. `None` if none is needed, or an early enough one is planned already. To be called when
    /// all packets have been sent.
    pub fn poll_alarm(&mut self, now: Time) -> Option<Time> {
        let held = self.pacer.as_ref().and_then(|pacer| pacer.free_at());
        // A timer that has run out while a segment is held waits for it.
        let at = held.or(self.connection.as_ref()?.timeout())?.max(now);
        let is_earlier = self.alarm.is_none_or(|planned| at < planned);
        is_earlier.then(|| *self.alarm.insert(at))
    }

    /// The state of the connection, if there is one.
    pub fn info(&self) -> Option<TcpInfo> {
        self.connection.as_deref().map(Connection::info)
    }
}
