//! Dialling another node: connecting, and proving to each other who is there.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ekiden_net::socket::TcpOptions;
use ekiden_relay_proto::leg::About;
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::segments::{Dialled, Proof, Segments, Unproven};
use ekiden_units::Bytes;
use tokio::time::{sleep, timeout};

use super::unfit;
use crate::config::{Config, Peer, Tcp};
use crate::exit::dial::Dial;
use crate::exit::names::Resolver;
use crate::exit::spare::{Asker, Spare};
use crate::shared::Node;

/// The delay before a node is dialled once more if nobody listened there: a process that takes over from another begins to
/// listen within milliseconds of the other's end ([`ekiden_net::patience`]).
const TAKEOVER: Duration = Duration::from_millis(100);

/// The initial receive window of a leg, where the kernel's is 64 KiB. It covers one round trip of most lines, so the sender
/// can use at once what it knows of the path.
const FIRST_WINDOW: usize = 1 << 20;
/// The windows that legs have without having needed them may take this fraction of `limits.memory` in all: one in `WINDOWS`.
const WINDOWS: usize = 8;

/// The initial window of a leg that is dialled now. `None`, the kernel's own, if the open connections and idle legs leave no
/// memory for another large window.
pub fn first_window(node: &Node, config: &Config) -> Option<Bytes> {
    let open = node.connections.load(Ordering::Relaxed) + node.pool.idle_of_all();
    let most = config.limits.memory / WINDOWS / FIRST_WINDOW;
    (open < most).then_some(Bytes(FIRST_WINDOW as u64))
}

/// The timeouts of connecting to a node and of the proof of identity.
pub fn dial_limits(config: &Config) -> [Duration; 2] {
    [config.limits.connect, config.limits.handshake]
}

/// Connects and authenticates, with segments that the path carries. Returns what must be sent before the first request.
pub async fn dial_peer(
    config: &Config,
    names: &Resolver,
    spare: &Spare,
    segments: &Segments,
    (name, peer): (&str, &Peer),
    limits: [Duration; 2],
    first_window: Option<Bytes>,
) -> Result<Dialled, Failure> {
    let attempt = |max_segment| {
        let options = TcpOptions { max_segment, first_window, ..peer.tcp.options.clone() };
        let tcp = Tcp { options, ..peer.tcp.clone() };
        async move { authenticate(config, names, spare, &tcp, (name, peer), limits).await }
    };
    let dialled = Box::pin(segments.dial(name, Proof::WhenUnknown, attempt)).await;
    dialled.map_err(|unproven| match unproven {
        Unproven::Attempt(failure) => failure,
        Unproven::Broken(error) => unfit(&config.name, name, &error),
    })
}

/// One attempt to connect and authenticate. If nobody listens there, or the connection ends, one process may be about to
/// take over from another: the node is dialled once more.
async fn authenticate(
    config: &Config,
    names: &Resolver,
    spare: &Spare,
    tcp: &Tcp,
    peer: (&str, &Peer),
    limits: [Duration; 2],
) -> Result<Dialled, Failure> {
    match authenticate_once(config, names, spare, tcp, peer, limits).await {
        Err(Unmet::Gone(_)) => sleep(TAKEOVER).await,
        other => return other.map_err(Unmet::into),
    }
    authenticate_once(config, names, spare, tcp, peer, limits).await.map_err(Unmet::into)
}

/// Why no authenticated connection to a node came about.
enum Unmet {
    /// Nobody listens there, or the connection ended before either side had proven its key.
    Gone(Failure),
    /// Another reason.
    Other(Failure),
}

impl From<Unmet> for Failure {
    fn from(unmet: Unmet) -> Self {
        match unmet {
            Unmet::Gone(failure) | Unmet::Other(failure) => failure,
        }
    }
}

async fn authenticate_once(
    config: &Config,
    names: &Resolver,
    spare: &Spare,
    tcp: &Tcp,
    (name, peer): (&str, &Peer),
    [limit, handshake]: [Duration; 2],
) -> Result<Dialled, Unmet> {
    let dial = Dial { client: None, tcp, names, asker: Asker::default(), spare, limit, policy: None };
    let connected = dial.connect_peer(&peer.address).await;
    let socket = connected.map_err(|failure| {
        let text = format_args!("node {} cannot reach node {name}: {failure}", config.name);
        match failure.code {
            FailureCode::Refused => Unmet::Gone(Failure::new(FailureCode::NodeUnreachable, text)),
            // This node lacks descriptors, or turns for look-ups.
            FailureCode::Overloaded => Unmet::Other(Failure::new(FailureCode::Overloaded, text).local()),
            _ => Unmet::Other(Failure::new(FailureCode::NodeUnreachable, text)),
        }
    })?;
    match timeout(handshake, ekiden_transport::dial(socket, &peer.security, &config.name)).await {
        Ok(Ok((connection, mut prelude))) => {
            prelude.extend(About::own().encode());
            Ok((connection, prelude))
        }
        Ok(Err(error)) => {
            let has_ended = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
            let unmet = if has_ended { Unmet::Gone } else { Unmet::Other };
            Err(unmet(unfit(&config.name, name, &error)))
        }
        Err(_) => {
            let text = format_args!("node {name} accepts connections and did not answer in time");
            Err(Unmet::Other(Failure::new(FailureCode::NodeUnreachable, text)))
        }
    }
}
