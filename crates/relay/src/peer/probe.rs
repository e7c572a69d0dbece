//! Whether a peer is the node that the configuration says: found out by shaking hands with it, as a node does.

use std::io;

use ekiden_relay_proto::Failure;
use ekiden_relay_proto::leg::{About, FrameKind};
use ekiden_transport::frames::{invalid, read_frame};
use ekiden_transport::segments::Segments;
use ekiden_transport::{Connection, OwnKeyRefusedError};
use tokio::runtime::Builder;
use tokio::time::timeout;

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

/// What a peer is like that takes this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// The longest segments that pass, in bytes, if the path drops longer ones and says nothing.
    pub segments_most: Option<u16>,
    /// Its build; `None` if it does not say.
    pub build: Option<String>,
}

/// Connects to the peer called `name`, lets both sides prove who they are, asks what it is, and ends the connection. No stream is opened.
/// It takes at most `limits.connect`, twice `limits.handshake` and some seconds together.
///
/// # Errors
/// See [`ProbeError`].
pub fn probe(config: &Config, name: &str) -> Result<Probed, ProbeError> {
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
        let connection = connected?;
        let build = timeout(config.limits.handshake, build(&connection)).await.ok().and_then(Result::ok);
        connection.end_cleanly();
        segments.settled().await;
        Ok(Probed { segments_most: segments.limit(), build: build.filter(|build| !build.is_empty()) })
    })
}

/// Asks a node for its build.
async fn build(connection: &Connection) -> io::Result<String> {
    connection.send_all(&About { asks: true, ..About::own() }.encode()).await?;
    match read_frame(connection).await? {
        (FrameKind::About, body) => About::decode(&body).map(|about| about.build).map_err(invalid),
        (other, _) => Err(invalid(format_args!("{other:?} where About was due"))),
    }
}
