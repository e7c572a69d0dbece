//! What travels over the network: packets, and the numbers by which they name nodes, sockets and sources.

use ekiden_packet::{Ecn, Segment};
use ekiden_queue::Queued;
use ekiden_scenario::Scenario;

/// An IPv4 header.
pub(crate) const IP_HEADER: u32 = 20;

/// A packet on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    /// The number of the node that it goes to.
    pub to: u32,
    /// The number of the socket there, if it is a segment.
    pub socket: u32,
    /// Its length with all headers.
    pub bytes: u32,
    pub body: Body,
}

/// What a packet carries. The compiler keeps the difference in a spare value of the segment, so that it takes no room.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    Segment(Segment),
    /// Of the background source of this number.
    Datagram {
        source: u32,
    },
    /// The packet of this number of a ping, or the answer to it.
    Echo {
        ping: u32,
        number: u32,
        is_reply: bool,
    },
}

const _: () = assert!(size_of::<Body>() == size_of::<Segment>());

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u64 {
        match self.body {
            Body::Segment(_) => self.socket.into(),
            Body::Datagram { source } => 1 << 32 | u64::from(source),
            Body::Echo { ping, is_reply, .. } => 2 << 32 | u64::from(ping) << 1 | u64::from(is_reply),
        }
    }

    fn mark(&mut self) -> bool {
        match &mut self.body {
            Body::Segment(segment) if segment.ecn != Ecn::NotEct => {
                segment.ecn = Ecn::Ce;
                true
            }
            _ => false,
        }
    }
}

impl Packet {
    /// A number that all packets between two sockets have, in either direction, and all of a source of background.
    pub fn conversation(&self) -> u64 {
        match self.body {
            // Both ends of a connection share the half of their numbers.
            Body::Segment(_) => u64::from(self.socket / 2),
            Body::Datagram { source } => 1 << 32 | u64::from(source),
            Body::Echo { ping, .. } => 2 << 32 | u64::from(ping),
        }
    }
}

/// The number of a node: its place in the scenario, in which every name has been checked.
pub(crate) fn node_number(scenario: &Scenario, name: &str) -> u32 {
    scenario.nodes.get_index_of(name).unwrap_or_default() as u32
}
