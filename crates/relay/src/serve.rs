//! Serving one accepted connection, by the kind of its listener.
//!
//! What a connection needs until its stream runs lives in a box that is gone by then: an idle stream costs
//! two sockets and two [`crate::pump::Pump`]s.

mod caller;
mod departure;
mod forward;
mod http;
mod login;
mod patience;
mod segment;
mod socks;
mod transparent;

use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;

use ekiden_relay_proto::{Failure, FailureCode, Host, Target};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{ListenerKind, Peer};
use crate::connection::Connection;
use crate::duplex::{Broken, Duplex, Finished, Side};
use crate::ended::Ended;
use crate::exit::{Choice, Policy, Refusal};
use crate::expiry::{self, Expiry};
use crate::memory;
use crate::pump::PumpError;
use crate::quota::{ClientKey, Place};
use crate::route::Way;
use crate::segment::{Early, delivered, open};
use crate::shared::{Busy, Current, Node, Permit};

/// A way to the destination, open.
pub struct Upstream {
    side: Side,
    /// The first node of the chain, if it is one, for the pool.
    peer: Option<Arc<(String, Peer)>>,
    /// The address of the exit's connection.
    bound: Option<SocketAddr>,
}

/// A stream ready to run.
struct Stream {
    client: Side,
    upstream: Upstream,
    /// Payload of the client that was read with its request.
    first: Vec<u8>,
    busy: Busy,
    /// Among the connections of its user.
    user: Option<Box<Place<String>>>,
}

/// Serves one connection until it is over. `current` is the listener it was accepted by, as the configuration in force has it.
pub fn connection(
    permit: Permit,
    current: Current,
    stream: StdStream,
    from: SocketAddr,
) -> impl Future<Output = ()> + Send {
    // No async function: what it is called with would stay for as long as the stream runs.
    let prepared = Box::pin(prepare(permit, current, stream, from));
    async move {
        let Some((permit, stream)) = prepared.await else { return };
        stream.run(permit.node()).await;
    }
}

/// The same; keeps a node that stops, by `busy`, for as long as it may take until the request is known. From then on what is
/// under way does.
pub async fn last_connection(busy: Busy, permit: Permit, current: Current, stream: StdStream, from: SocketAddr) {
    let limit = permit.node().config().limits.handshake;
    let mut serving = Box::pin(connection(permit, current, stream, from));
    if timeout(limit, &mut serving).await.is_err() {
        drop(busy);
        serving.await;
    }
}

/// Serves what comes before the stream. Without one, everything.
async fn prepare(
    mut permit: Permit,
    current: Current,
    stream: StdStream,
    from: SocketAddr,
) -> Option<(Permit, Box<Stream>)> {
    let watched = TcpStream::from_std(stream);
    let stream = watched.inspect_err(|error| tracing::warn!("a connection could not be watched: {error}")).ok()?;
    let listener = current.borrow().clone();
    let caller = caller::learn(&mut permit, &listener, &stream, from).await?;
    if let ListenerKind::Segment(security) = &listener.kind {
        segment::serve(&mut permit, &listener, security, stream).await;
        return None;
    }
    let node = permit.node();
    let stream = match &listener.kind {
        ListenerKind::Segment(_) => None,
        ListenerKind::Forward { .. } => forward::prepare(node, &listener, stream, caller).await,
        ListenerKind::Socks5 { .. } => socks::prepare(node, &listener, current, stream, caller).await,
        ListenerKind::Transparent { .. } => transparent::prepare(node, &listener, stream, caller).await,
        ListenerKind::Http { .. } => Box::pin(http::prepare(node, listener, current, stream, caller)).await,
    }?;
    // The future of one that runs would otherwise have room for it twice.
    let stream = Box::new(stream);
    Some((permit, stream))
}

impl Stream {
    /// `busy` is from before the client was answered: draining must not miss a stream the client knows of.
    fn new(busy: Busy, client: impl Into<Connection>, upstream: Upstream, first: Vec<u8>) -> Self {
        Self { client: Side::host(client), upstream, first, busy, user: None }
    }

    /// The same, as one of its user's.
    fn of(mut self, user: Option<Box<Place<String>>>) -> Self {
        self.user = user;
        self
    }

    async fn run(self: Box<Self>, node: &Arc<Node>) {
        let Self { client, upstream, first, busy, user } = *self;
        let Upstream { side, peer, .. } = upstream;
        let duplex = Duplex::new(client, side, &first);
        let mut expiry = Expiry::new(&node.config().limits);
        drop(first);
        let late = match duplex.run(&mut expiry).await {
            Ok(finished) => Late::of(finished, peer, node),
            Err(broken) => {
                broken.log(peer.as_deref(), node);
                None
            }
        };
        if let Some(late) = late {
            Box::pin(late.deliver(node, &mut expiry)).await;
        }
        drop((busy, user));
    }
}

impl Broken {
    /// Hosts reset their connections every day. That a node's breaks while it carries a stream is worth a line.
    fn log(&self, peer: Option<&(String, Peer)>, node: &Node) {
        match peer {
            Some((name, _)) if self.is_beyond && !matches!(self.error, PumpError::Reset(_)) => {
                node.lines.info("broke", name, format_args!("a stream over node {name} was reset: {self}"));
            }
            _ => tracing::debug!("a stream was reset: {self}"),
        }
    }
}

/// What is left of a stream that has ended in both directions. Boxed: a stream that runs should not pay for it.
struct Late {
    client: Option<Side>,
    upstream: Option<Upstream>,
}

impl Late {
    /// Lets go of what can go now. `None` if all of it can.
    fn of(finished: Finished, peer: Option<Arc<(String, Peer)>>, node: &Node) -> Option<Box<Self>> {
        let Finished { a: client, b: side, is_delivered, .. } = finished;
        let client = client.end_if_sent().err();
        let upstream = Upstream { side, peer, bound: None }.finish_now(node, is_delivered).err();
        (client.is_some() || upstream.is_some()).then(|| Box::new(Self { client, upstream }))
    }

    /// Keeps it until all that was said has been taken.
    async fn deliver(self: Box<Self>, node: &Node, expiry: &mut Option<Box<Expiry>>) {
        let Self { client, upstream } = *self;
        // Both hear the end before one is waited for and then the other.
        if let Some(client) = &client {
            client.say_end();
        }
        if let Some(upstream) = upstream
            && let Err(error) = upstream.finish(node, expiry).await
        {
            tracing::debug!("a stream was not delivered: {error}");
        }
        if let Some(client) = client {
            client.deliver(expiry).await;
        }
    }
}

/// Says in the log why someone at `from` was not taken to `target`: that it is forbidden is worth a line.
fn log_failure(node: &Node, from: SocketAddr, by: &str, target: &Target, failure: &Failure) {
    match failure.code {
        FailureCode::Forbidden => {
            let line = format_args!("{from} by {by} to {target}: {failure}");
            node.lines.info("forbidden", ClientKey::from(from.ip()), line);
        }
        _ => tracing::debug!("{by} to {target}: {failure}"),
    }
}

/// A place for one more connection of `user`, if it may have one.
fn place_for(node: &Node, user: &[u8]) -> Option<Box<Place<String>>> {
    let user = String::from_utf8_lossy(user).into_owned();
    match node.users.enter(user.clone(), node.config().limits.user) {
        Ok(place) => Some(Box::new(place)),
        Err(limit) => {
            let line = format_args!("user {user:?}: {limit} ({}); others are refused", limit.key("user"));
            node.lines.warn("user", &user, line);
            None
        }
    }
}

impl Upstream {
    /// Both directions have ended: lets go of it, if nothing of the stream is left to be delivered; `is_delivered` is what a
    /// node has said. Otherwise [`Upstream::finish`] is to follow.
    fn finish_now(self, node: &Node, is_delivered: bool) -> Result<(), Self> {
        match self.side.node {
            true if is_delivered => self.rest(node),
            true => return Err(self),
            false => {
                let Self { side, peer, bound } = self;
                return side.end_if_sent().map_err(|side| Self { side, peer, bound });
            }
        }
        Ok(())
    }

    /// Both directions have ended, and a node has not said DELIVERED yet: waits until all has been delivered, and lets go.
    ///
    /// # Errors
    /// The connection to a node broke, the node broke the protocol, or the limits have passed. Nobody is left to whom it
    /// could be told but the node before this one.
    async fn finish(self, node: &Node, expiry: &mut Option<Box<Expiry>>) -> io::Result<()> {
        if !self.side.node {
            self.side.deliver(expiry).await;
            return Ok(());
        }
        let Self { side, peer, bound } = self;
        let stream = Ended::new(side.stream);
        tokio::select! {
            biased;
            said = delivered(&stream, true) => said?,
            () = expiry::passed(expiry, stream.socket()) => return Err(io::ErrorKind::TimedOut.into()),
        }
        Self { side: Side::node(stream.into_inner()), peer, bound }.rest(node);
        Ok(())
    }

    /// A node's connection is free.
    fn rest(self, node: &Node) {
        match self.peer.as_deref() {
            Some((name, peer)) => node.pool.put(name, peer, self.side.stream),
            // The configuration had changed by the time the stream was open.
            None => self.side.end_cleanly(),
        }
    }
}

/// Where a connection is to go.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    target: &'a Target,
    choice: Choice,
    /// Where that is, if it is known already.
    address: Option<SocketAddr>,
    /// The client's address, if the exit may use it.
    client: Option<SocketAddr>,
}

impl<'a> Destination<'a> {
    /// What a client asks for.
    pub fn asked(target: &'a Target) -> Self {
        Self { target, choice: Choice::Client, address: None, client: None }
    }

    /// What this node's configuration says.
    fn configured(target: &'a Target) -> Self {
        Self { target, choice: Choice::Operator, address: None, client: None }
    }
}

/// Reaches a destination by what the routes say.
pub async fn reach(node: &Node, to: Destination<'_>, early: Early<'_>) -> Result<Upstream, Failure> {
    let config = node.config();
    match config.routes.way(to.target) {
        Way::Direct => exit(node, to).await,
        Way::Via(chain) => reach_via(node, chain, to, early).await,
        Way::Refuse => Err(Refusal::Route.of(to.target)),
    }
}

/// Reaches another port of a host to which `first` is a way: by the same route as `target`, the first one's, and at the same
/// address where that is known here. The routes may refuse it.
async fn reach_beside(node: &Node, target: &Target, first: &Upstream, port: u16) -> Result<Upstream, Failure> {
    let beside = Target { host: target.host.clone(), port };
    let to = Destination::asked(&beside);
    let config = node.config();
    if *config.routes.way(&beside) == Way::Refuse {
        return Err(Refusal::Route.of(&beside));
    }
    match config.routes.way(target) {
        Way::Via(chain) if !chain.is_empty() => reach_via(node, chain, to, Early::Nothing).await,
        _ => {
            let there = first.side.stream.socket().peer_addr().ok().filter(|_| !first.side.node);
            exit(node, Destination { address: there.map(|there| SocketAddr::new(there.ip(), port)), ..to }).await
        }
    }
}

/// Whether this node would try to reach what a client asks for. What is known at once is told also to one that is answered
/// early.
pub fn is_allowed(node: &Node, target: &Target) -> bool {
    let config = node.config();
    match (config.routes.way(target), &target.host) {
        (Way::Refuse, _) => false,
        (Way::Direct, Host::Ip(ip)) => {
            let policy = Policy::new(&config, &node.own, target, Choice::Client);
            policy.is_ok_and(|policy| policy.refusal((*ip, target.port).into()).is_none())
        }
        (Way::Direct | Way::Via(_), _) => true,
    }
}

/// Reaches a destination through `chain`; if it is empty, directly.
async fn reach_via(node: &Node, chain: &[String], to: Destination<'_>, early: Early<'_>) -> Result<Upstream, Failure> {
    if chain.is_empty() {
        return exit(node, to).await;
    }
    ensure_memory(node)?;
    let config = node.config();
    // Boxed: a direct connection, the hot path, should not pay for its size.
    let (stream, bound) = Box::pin(open(node, chain, to.target, to.client, early)).await?;
    let peer = chain.first().and_then(|first| config.peers.get_key_value(first));
    let peer = peer.map(|(name, peer)| Arc::new((name.clone(), peer.clone())));
    Ok(Upstream { side: Side::node(stream), peer, bound: Some(bound) })
}

/// Refuses what is new when streams that run hold as much as they may.
fn ensure_memory(node: &Node) -> Result<(), Failure> {
    match memory::is_full() {
        true => {
            let text = format_args!("node {} holds limits.memory", node.config().name);
            Err(Failure::new(FailureCode::Overloaded, text))
        }
        false => Ok(()),
    }
}

/// Connects to a destination from here; where this node acts as its clients, from the client's address.
async fn exit(node: &Node, to: Destination<'_>) -> Result<Upstream, Failure> {
    ensure_memory(node)?;
    let config = node.config();
    let policy = Policy::new(&config, &node.own, to.target, to.choice).map_err(|refusal| refusal.of(to.target))?;
    let client = to.client.filter(|&client| config.exit.acts_as(client));
    let known = to.address.map(Target::from);
    let target = known.as_ref().unwrap_or(to.target);
    let stream = node.dial(&config.tcp, client, config.limits.connect, Some(&policy)).connect(target).await?;
    let mut side = Side::host(stream);
    side.foreign = client.is_some();
    Ok(Upstream { side, peer: None, bound: None })
}

#[cfg(test)]
mod tests;
