//! Whether a peer is there and takes this node: asked without disturbing a tunnel that runs.

use std::io;
use std::time::Duration;

use ekiden_net::socket::TcpOptions;
use tokio::runtime::Builder;

use super::dial::{self, Greeted};
use crate::config::{Config, Peer};
use crate::frame::Hello;

/// What a peer has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// The MTU of its device.
    pub mtu: u16,
    /// It has dropped packets of this node, since their source addresses are not in its `allowed`.
    pub has_dropped: bool,
    /// Its build; empty if it does not say.
    pub build: String,
    /// From the question to the answer, over the whole way to the peer.
    pub round_trip: Duration,
}

/// Connects to the peer `name`, which has an address, lets both sides prove who they are, asks it for its MTU, and ends the connection.
/// No packets are carried. Not to be called within an event loop.
///
/// # Errors
/// Why the peer cannot be reached, or refuses this node.
pub fn probe(config: &Config, name: &str, peer: &Peer) -> io::Result<Probed> {
    // The congestion control may not be in the kernel yet, and nothing is carried.
    let config = Config { tcp: TcpOptions::default(), ..config.clone() };
    // The last number, so that a peer with fewer connections refuses it.
    let question = Hello::question(peer.classes.connections().saturating_sub(1));
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let Greeted { connection, theirs, took } =
            dial::ask(&config, (name, peer), question).await.map_err(io::Error::other)?;
        connection.end_cleanly();
        peer.segments.settled().await;
        Ok(Probed { mtu: theirs.mtu, has_dropped: theirs.has_dropped, build: theirs.build, round_trip: took })
    })
}
