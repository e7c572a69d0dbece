//! Whether a peer is the node that the configuration says: found out by shaking hands with it, as a node does.

use std::io;

use ekiden_relay_proto::Failure;
use ekiden_transport::OwnKeyRefusedError;
use ekiden_transport::segments::Segments;
use tokio::runtime::Builder;

use crate::config::{Config, Peer, Tcp};
use crate::exit::names::Resolver;
use crate::exit::spare::{self, Spare};
use crate::peer::connect_with;

/// Why a peer cannot be used: one line that names both nodes, and both fingerprints if the keys do not fit.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The configuration has no such peer.
    #[error("there is no [peer.{0}]")]
    NoPeer(String),
    /// It cannot be reached, or this node does not take its key.
    #[error("{0}")]
    Refused(Failure),
    /// It does not take this node's key.
    #[error("{0}")]
    OwnKey(Failure),
    /// The event loop could not be made.
    #[error("cannot try a connection: {0}")]
    Failed(#[from] io::Error),
}

/// Connects to the peer called `name`, lets both sides prove who they are, and ends the connection. No stream is opened. Returns the
/// longest segments that pass, in bytes, if the path drops longer ones and says nothing. It takes at most `limits.connect`,
/// `limits.handshake` and some seconds together.
pub fn probe(config: &Config, name: &str) -> Result<Option<u16>, ProbeError> {
    let peer = config.peers.get(name).ok_or_else(|| ProbeError::NoPeer(name.into()))?;
    // Its congestion control may not be in the kernel yet, and nothing is carried.
    let peer = Peer { tcp: Tcp::default(), ..peer.clone() };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (names, spare) = (Resolver::of_system(), Spare::new(spare::kept()));
        let segments = Segments::default();
        let connected = connect_with(config, &names, &spare, &segments, (name, &peer), None).await;
        let connected = connected.map_err(|failure| {
            let is_own = failure.text.ends_with(&OwnKeyRefusedError.to_string());
            if is_own { ProbeError::OwnKey(failure) } else { ProbeError::Refused(failure) }
        });
        connected?.end_cleanly();
        segments.settled().await;
        Ok(segments.limit())
    })
}
