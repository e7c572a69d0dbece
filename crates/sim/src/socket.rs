//! Sockets: the ends of connections, and the programs that use them.

use ekiden_tcp::Connection;
use ekiden_units::Time;

use crate::stack::Stack;
use crate::tunnel::Mouth;

/// One end of a connection, on a node.
pub(crate) struct Socket {
    /// The node that it is on.
    pub node: u32,
    /// The other end of the connection: its node and its place among the sockets.
    pub peer_node: u32,
    pub peer: u32,
    pub stack: Stack,
    /// `None` until it is opened, or a SYN arrives.
    pub connection: Option<Connection>,
    /// The earliest alarm that is planned.
    pub alarm: Option<Time>,
    pub program: Program,
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
        /// Whether the other is opened when this one is connected.
        opens: bool,
    },
    /// An end of a tunnel.
    Tunnel(Mouth),
}

impl Program {
    /// The flow that it serves; a tunnel's end serves none.
    pub fn flow(&self) -> Option<u32> {
        match *self {
            Self::Source { flow, .. } | Self::Sink { flow, .. } | Self::Relay { flow, .. } => Some(flow),
            Self::Tunnel(_) => None,
        }
    }
}
