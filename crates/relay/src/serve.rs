//! Serving one accepted connection, by the kind of its listener.
//!
//! What a connection needs only until its stream runs is in a box, which is freed when the stream begins. An idle stream costs
//! two sockets and two [`crate::stream::Pump`]s.

mod begun;
mod caller;
mod departure;
mod failed;
mod forward;
mod http;
mod leg;
mod login;
mod mixed;
mod secure;
mod socks;
mod timeouts;
mod transparent;

use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;

use ekiden_stream::closing::{self, LeftBehind};
use ekiden_transport::Connection;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access::bandwidth;
use crate::access::quota::{ClientKey, QuotaGuard};
use crate::config::{Config, Listener, ListenerKind};
use crate::overlay::Sides;
use crate::reach::{Free, Upstream};
use crate::shared::late::LatePlace;
use crate::shared::{Current, InFlightGuard, Node, Permit};
use crate::stream::{Duplex, Expiry, Observed, Side};
use failed::Asked;
use mixed::Protocol;
use secure::Secured;

/// A stream's connections when it has ended.
type Late = closing::Late<Connection, Free>;

/// A stream ready to run.
struct Stream {
    client: Side,
    upstream: Upstream,
    /// Payload of the client that was read with its request.
    first: Vec<u8>,
    busy: InFlightGuard,
    asked: Box<Asked>,
    /// Counts it among the connections of its user.
    user: Option<Box<QuotaGuard<String>>>,
}

/// Serves one connection until it is over. `current` is the listener it was accepted by, as the configuration in force has it.
pub fn connection(
    permit: Permit,
    current: Current,
    stream: StdStream,
    from: SocketAddr,
) -> impl Future<Output = ()> + Send {
    // Not an async function: its future would keep the arguments for as long as the stream runs.
    let prepared = Box::pin(prepare(permit, current, stream, from));
    async move {
        let Some((permit, stream)) = prepared.await else { return };
        stream.run(permit.node()).await;
    }
}

/// The same, for a connection of a listener that is being closed. `busy` keeps a stopping node running until the client's
/// request is known, or has taken too long. From then on, the stream or request under way keeps it running.
pub async fn last_connection(
    busy: InFlightGuard,
    permit: Permit,
    current: Current,
    stream: StdStream,
    from: SocketAddr,
) {
    let limit = permit.node().config().limits.handshake;
    let mut serving = Box::pin(connection(permit, current, stream, from));
    if timeout(limit, &mut serving).await.is_err() {
        drop(busy);
        serving.await;
    }
}

/// Serves a connection until its stream is ready to run. A connection without a stream is served to its end.
async fn prepare(
    mut permit: Permit,
    current: Current,
    stream: StdStream,
    from: SocketAddr,
) -> Option<(Permit, Box<Stream>)> {
    let watched = TcpStream::from_std(stream).inspect_err(|error| {
        let line = format_args!("a connection could not be watched: {error}");
        permit.node().lines.warn("watch", "", line);
    });
    let stream = watched.ok()?;
    let listener = current.borrow().clone();
    let caller = caller::learn(&mut permit, &listener, &stream, from).await?;
    if let ListenerKind::Leg(security) = &listener.kind {
        // Boxed: it is the largest of these by far, and serves many streams.
        Box::pin(leg::serve(&mut permit, &listener, security, stream)).await;
        return None;
    }
    permit.pays();
    let node = permit.node();
    let stream = match &listener.kind {
        ListenerKind::Leg(_) => None,
        ListenerKind::Forward { .. } => forward::prepare(node, &listener, stream, caller).await,
        ListenerKind::Transparent { .. } => transparent::prepare(node, &listener, stream, caller).await,
        ListenerKind::Socks5 { .. } | ListenerKind::Http { .. } | ListenerKind::Mixed { .. } => {
            let client = match &listener.tls {
                None => (stream.into(), Secured::default()),
                Some(tls) => Box::pin(secure::accept(node, &listener, tls, stream, caller)).await?,
            };
            let protocol = match &listener.kind {
                ListenerKind::Http { .. } => Protocol::Http,
                ListenerKind::Mixed { .. } => mixed::protocol(node, &client.0, caller).await?,
                _ => Protocol::Socks(socks::Version::Five),
            };
            match protocol {
                Protocol::Socks(version) => socks::prepare(node, &listener, current, version, client, caller).await,
                Protocol::Http => Box::pin(http::prepare(node, listener, current, client, caller)).await,
            }
        }
    }?;
    // Boxed: the future of a running stream would otherwise reserve room for it twice.
    let mut stream = Box::new(stream);
    stream.pace(node).await;
    Some((permit, stream))
}

impl Stream {
    /// `busy` must have begun before the client was answered: a node that drains must not miss a stream that the client knows
    /// of.
    fn new(
        busy: InFlightGuard,
        client: impl Into<Connection>,
        upstream: Upstream,
        first: Vec<u8>,
        asked: Box<Asked>,
    ) -> Self {
        let mut stream = Self { client: Side::host(client), upstream, first, busy, asked, user: None };
        // Before its stream a client that speaks TLS was sent more than a reply.
        (stream.client.was_sent_little, stream.upstream.side.was_sent_little) =
            (stream.client.stream.plain().is_some(), true);
        stream
    }

    /// Counts the stream among those of its user.
    fn of(mut self, user: Option<Box<QuotaGuard<String>>>) -> Self {
        self.user = user;
        self
    }

    /// Has the limits in bit/s of its client and user hold. Completes when the stream may begin.
    async fn pace(&mut self, node: &Node) {
        let limits = bandwidth::Limits::from(&node.config().limits);
        if limits.has_any() {
            let Self { client, upstream, asked, user, .. } = self;
            let holder = (asked.from.ip().into(), user.as_ref().map(|user| user.key().as_str()));
            let connections = [&mut client.stream, &mut upstream.side.stream];
            Box::pin(node.bandwidth.pace(connections, holder, limits)).await;
        }
    }

    async fn run(self: Box<Self>, node: &Arc<Node>) {
        let Self { client, upstream, first, busy, asked, user } = *self;
        let legs =
            upstream.leg().map(|leg| Box::new(Sides { on: [None, Some(leg)], arrival: upstream.arrival(node, true) }));
        // Nothing of it may stay behind: a running stream would keep room for all of it.
        let Upstream { side, peer, taken, turn, made, .. } = upstream;
        drop(taken);
        let duplex = Duplex::new(client, side, &first);
        let mut expiry = Expiry::new(&node.config().limits);
        drop(first);
        let late = match duplex.run(&mut expiry, Observed::new(&node.overlay, legs)).await {
            Ok(finished) => Late::of(finished, Free { node: node.clone(), peer, made }),
            Err(broken) => {
                asked.log_broken(node, peer.as_deref(), &broken);
                None
            }
        };
        // The leg is free for others: what is left is on its way.
        drop(turn);
        // Boxed before it is waited for: a running stream keeps no room for it.
        let delivering = late.map(|late| {
            let places = Places { node: node.clone(), from: asked.from.ip().into(), busy };
            Box::pin(late.deliver((&node.config().limits).into(), expiry, places))
        });
        if let Some(delivering) = delivering {
            delivering.await;
        }
        drop(user);
    }
}

/// Places for what is left of a client's streams.
struct Places {
    node: Arc<Node>,
    from: ClientKey,
    /// Keeps a stopping node running.
    busy: InFlightGuard,
}

impl LeftBehind for Places {
    type Place = LatePlace;

    fn place(&self, is_node: bool) -> Option<LatePlace> {
        self.node.late.take(self.from, is_node)
    }

    fn go_on(self, place: LatePlace, rest: impl Future<Output = ()> + Send + 'static) {
        let busy = self.busy;
        tokio::spawn(async move {
            rest.await;
            drop((busy, place));
        });
    }
}

/// The service class of the streams of a client: that of its user, or of its listener.
fn class_of<'a>(config: &'a Config, listener: &'a Listener, user: Option<&str>) -> Option<&'a str> {
    user.and_then(|user| config.classes.of_user(user)).or(listener.class.as_deref())
}

/// Counts one more connection of `user`, if it may have one.
fn user_quota(node: &Node, user: &[u8]) -> Option<Box<QuotaGuard<String>>> {
    let user = String::from_utf8_lossy(user).into_owned();
    match node.users.acquire(user.clone(), node.config().limits.user()) {
        Ok(quota) => Some(Box::new(quota)),
        Err(limit) => {
            let line = format_args!("user {user:?}: {limit} ({}); others are refused", limit.key("user"));
            node.lines.warn("user", &user, line);
            None
        }
    }
}

#[cfg(test)]
mod tests;
