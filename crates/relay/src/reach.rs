//! Reaches a destination: over the chain of nodes that the routes choose, or directly.
//!
//! `class_of` says which service class a stream has. `Free` says what becomes of a connection whose stream is over.

mod auto;
mod exits;

use std::net::SocketAddr;
use std::sync::Arc;

use ekiden_net::tcp_info::tcp_info;
use ekiden_relay_proto::leg::{ID_BYTES, Open, Opened};
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};
use ekiden_stream::closing::Afterwards;
use ekiden_tcp_info::TcpInfo;
use ekiden_transport::{Connection, budget};

use crate::config::classes::BULK;
use crate::config::route::Way;
use crate::config::{Config, Peer};
use crate::exit::dial::used::{self, Made};
use crate::exit::policy::{ChosenBy, Policy, Refusal};
use crate::exit::spare::Asker;
use crate::overlay::{Arrival, OnLeg, StreamId, Taken};
use crate::peer::{Early, open};
use crate::shared::Node;
use crate::shared::turns::Turn;
use crate::stream::Side;

/// An open connection towards the destination.
pub struct Upstream {
    pub side: Side,
    /// The first node of the chain, to whose pool the connection goes back; `None` if there is none.
    pub peer: Option<Arc<(String, Peer)>>,
    /// The address of the exit's connection.
    pub bound: Option<SocketAddr>,
    /// Fields of OPENED that this node does not know, for the one that has asked.
    pub passed: Vec<u8>,
    /// The path over the overlay that was chosen for it, if one was.
    pub taken: Option<Arc<Taken>>,
    /// What receipts call its stream, where it passes other nodes.
    pub id: Option<StreamId>,
    /// Whether early payload that was known when it was opened has been sent.
    pub took_early: bool,
    /// The service class of the stream; `None`: none is asked for.
    pub class: Option<Arc<str>>,
    /// Its turn, if its class has a limit on `streams`.
    pub turn: Turn,
    /// Present if its socket may be used again.
    pub made: Option<Made>,
}

impl From<Side> for Upstream {
    /// A connection of which no more is known.
    fn from(side: Side) -> Self {
        let (bound, passed, taken, id, class, turn) = Default::default();
        Self { side, peer: None, bound, passed, taken, id, took_early: false, class, turn, made: None }
    }
}

impl Upstream {
    /// The connection, and what becomes of it afterwards.
    pub fn apart(self, node: &Arc<Node>) -> (Side, Free) {
        let Self { side, peer, made, .. } = self;
        (side, Free { node: node.clone(), peer, made })
    }

    /// Waits for the turn of a stream that gave its turn up.
    pub async fn take_turn(&mut self, node: &Node) -> Result<(), Failure> {
        if let Some((peer, _)) = self.peer.as_deref() {
            let class = self.class.as_deref().unwrap_or(BULK);
            self.turn = node.turns.take(&node.config(), peer, class).await?;
        }
        Ok(())
    }

    /// The leg that it begins with, if it does.
    pub fn leg(&self) -> Option<OnLeg> {
        let (name, _) = self.peer.as_deref()?;
        let (taken, class) = (self.taken.clone(), self.class.clone());
        Some(OnLeg { peer: name.as_str().into(), taken, class, owner: None })
    }

    /// The end of its stream that is here, if it passes other nodes. `is_whole`: what its client's connection carries is what the stream
    /// does, and nothing else.
    pub fn arrival<'a>(&self, node: &'a Node, is_whole: bool) -> Option<Arrival<'a>> {
        Some(node.overlay.enter(self.taken.clone()?, self.id?, is_whole))
    }
}

/// What becomes of the connection of an upstream when its stream is over.
pub struct Free {
    pub node: Arc<Node>,
    pub peer: Option<Arc<(String, Peer)>>,
    pub made: Option<Made>,
}

impl Afterwards<Connection> for Free {
    fn is_refused(&mut self) {
        (self.peer, self.made) = (None, None);
    }

    fn use_again(&mut self, side: Side) -> Option<Side> {
        use_again(&self.node, side, self.made.take())
    }

    fn rest(self, connection: Connection) {
        match self.peer.as_deref() {
            Some((name, peer)) => self.node.pool.put(name, peer, connection),
            // The configuration had changed by the time the stream was open.
            None => connection.end_cleanly(),
        }
    }
}

/// A socket that has waited longer for its receiver, in microseconds, is not used again.
const BUSY_MOST_US: u64 = 1_000_000;

/// Keeps the socket of a connection that is over for the next one. Returns `side` if it is not over, or not of the kind.
fn use_again(node: &Node, side: Side, made: Option<Made>) -> Option<Side> {
    let Some(made) = made.filter(|made| made.generation == node.generation() as u32 && used::has_room()) else {
        return Some(side);
    };
    // The kernel goes on counting for how long a socket was busy, by which a receiver's pace is judged (`last_words.rs` of crate `stream`).
    let is_fit = |info: TcpInfo| info.is_over && info.busy_us < BUSY_MOST_US;
    if !tcp_info(side.stream.socket()).is_ok_and(is_fit) {
        return Some(side);
    }
    if let Some(socket) = side.stream.into_plain() {
        used::keep(socket, made.is_ipv4, &node.config().tcp.options);
    }
    None
}

/// Where a connection is to go.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    /// The destination that was asked for.
    pub target: &'a Target,
    chosen_by: ChosenBy,
    /// Its address, if that is known already.
    address: Option<SocketAddr>,
    /// The client's address, if the exit may use it.
    client: Option<SocketAddr>,
    /// Who asks for it.
    asker: Asker<'a>,
    /// The service class that its client has.
    class: Option<&'a str>,
    /// What its stream is called between its ends, if it is.
    id: Option<&'a [u8; ID_BYTES]>,
    /// Fields of OPEN that this node does not know.
    passed: &'a [u8],
}

impl<'a> Destination<'a> {
    /// A destination that a client asks for.
    pub fn asked(target: &'a Target) -> Self {
        Self {
            target,
            chosen_by: ChosenBy::Client,
            address: None,
            asker: Asker::default(),
            client: None,
            class: None,
            id: None,
            passed: &[],
        }
    }

    /// The same for the client at this address, which the exit may use.
    pub fn on_behalf_of(self, client: Option<SocketAddr>) -> Self {
        Self { client, ..self }
    }

    /// The same for this asker.
    pub fn asked_by(self, asker: Asker<'a>) -> Self {
        Self { asker, ..self }
    }

    /// The same for a client of this class; with `None` nothing is said of it.
    pub fn of_class(self, class: Option<&'a str>) -> Self {
        Self { class, ..self }
    }

    /// The same for a stream of this name.
    pub fn called(self, id: Option<&'a [u8; ID_BYTES]>) -> Self {
        Self { id, ..self }
    }

    /// The same with what another node has asked for besides, and this one does not know.
    pub fn with(self, passed: &'a [u8]) -> Self {
        Self { passed, ..self }
    }

    /// A destination that this node's configuration names.
    pub fn configured(target: &'a Target) -> Self {
        Self { chosen_by: ChosenBy::Operator, ..Self::asked(target) }
    }
}

/// The service class of a stream: that of its route goes before that of its client.
pub fn class_of<'a>(config: &'a Config, to: Destination<'a>) -> Option<&'a str> {
    config.routes.route(to.target).and_then(|route| route.class.as_deref()).or(to.class)
}

/// Reaches a destination as the routes say.
pub async fn reach(node: &Node, to: Destination<'_>, early: Early<'_>) -> Result<Upstream, Failure> {
    let config = node.config();
    let to = to.of_class(class_of(&config, to));
    match config.routes.way(to.target) {
        Way::Direct => exit(node, to).await,
        // Boxed: a direct connection, the hot path, should not pay for their size.
        Way::Via(chain) => Box::pin(reach_in_turn(node, chain, to, early)).await,
        Way::Auto(auto) => {
            // What this node lacks is no path's fault.
            ensure_memory(node)?;
            Box::pin(exits::reach(node, auto, to, early)).await
        }
        Way::Refuse => Err(Refusal::Route.of(to.target)),
    }
}

/// As [`reach_via`], for a stream that begins at this node, when it is its turn.
pub async fn reach_in_turn(
    node: &Node,
    chain: &[String],
    to: Destination<'_>,
    early: Early<'_>,
) -> Result<Upstream, Failure> {
    let turn = turn(node, chain, to).await?;
    Ok(Upstream { turn, ..reach_via(node, chain, to, early).await? })
}

/// Waits for a stream's turn on the first leg of a chain.
async fn turn(node: &Node, chain: &[String], to: Destination<'_>) -> Result<Turn, Failure> {
    let config = node.config();
    match chain.first() {
        Some(first) => {
            let turn = node.turns.take(&config, first, to.class.unwrap_or(BULK)).await;
            turn.inspect_err(|failure| node.lines.info("turn", first, format_args!("{failure}; others are refused")))
        }
        None => Ok(None),
    }
}

/// Reaches another port of the host that `first` is connected to: by the same route as `target`, the destination of `first`,
/// and at the same address if this node knows it. The routes may refuse the other port.
pub async fn reach_beside(node: &Node, target: &Target, first: &Upstream, port: u16) -> Result<Upstream, Failure> {
    let beside = Target { host: target.host.clone(), port };
    let config = node.config();
    let to = Destination::asked(&beside).of_class(first.class.as_deref());
    if *config.routes.way(&beside) == Way::Refuse {
        return Err(Refusal::Route.of(&beside));
    }
    match config.routes.way(target) {
        // It has the turn of the first.
        Way::Via(chain) if !chain.is_empty() => reach_via(node, chain, to, Early::Nothing).await,
        Way::Auto(_) if first.taken.is_some() => auto::reach_beside(node, first, to).await,
        _ => {
            let there = first.side.stream.socket().peer_addr().ok().filter(|_| !first.side.is_node());
            exit(node, Destination { address: there.map(|there| SocketAddr::new(there.ip(), port)), ..to }).await
        }
    }
}

/// Whether this node would try to reach what a client asks for, as far as is known without a name look-up. So a client that is
/// answered early can still be told of a refusal.
pub fn is_allowed(node: &Node, target: &Target) -> bool {
    let config = node.config();
    match (config.routes.way(target), &target.host) {
        (Way::Refuse, _) => false,
        (Way::Direct, Host::Ip(ip)) => {
            let policy = Policy::new(&config, &node.own, target, ChosenBy::Client);
            policy.is_ok_and(|policy| policy.refusal((*ip, target.port).into()).is_none())
        }
        (Way::Direct | Way::Via(_) | Way::Auto(_), _) => true,
    }
}

/// Reaches a destination through `chain`; if it is empty, directly.
pub async fn reach_via(
    node: &Node,
    chain: &[String],
    to: Destination<'_>,
    early: Early<'_>,
) -> Result<Upstream, Failure> {
    let Some((first, rest)) = chain.split_first() else { return exit(node, to).await };
    ensure_memory(node)?;
    let took_early = matches!(early, Early::Repeatable(_) | Early::Introduced(..));
    let request = Open {
        chain: rest.to_vec(),
        class: to.class.unwrap_or_default().into(),
        target: to.target.clone(),
        // OPEN cannot carry a port of 0, which only a balancer can report.
        client: to.client.filter(|client| client.port() != 0),
        id: to.id.copied(),
        passed: to.passed.to_vec(),
    };
    // Boxed as well.
    let (stream, Opened { bound, passed }) = Box::pin(open(node, first, &request, early)).await?;
    let peer = node.pool.named(first);
    let class = to.class.map(Arc::from);
    Ok(Upstream { peer, bound: Some(bound), passed, took_early, class, ..Upstream::from(Side::node(stream)) })
}

/// Refuses a new stream while the running ones hold as much memory as they may, all together or those of whoever asks.
fn ensure_memory(node: &Node) -> Result<(), Failure> {
    let name = &node.config().name;
    let text = if budget::is_full() {
        format!("node {name} holds limits.memory")
    } else if budget::is_overdrawn() {
        format!("node {name} holds for whoever asks the share of limits.memory that one may have")
    } else {
        return Ok(());
    };
    Err(Failure::new(FailureCode::Overloaded, text))
}

/// Connects to a destination from here, with the client's address if this node acts as its clients.
pub async fn exit(node: &Node, to: Destination<'_>) -> Result<Upstream, Failure> {
    ensure_memory(node)?;
    // Before the configuration: one that changes meanwhile has a later number.
    let generation = node.generation();
    let config = node.config();
    let policy = Policy::new(&config, &node.own, to.target, to.chosen_by).map_err(|refusal| refusal.of(to.target))?;
    let client = to.client.filter(|&client| config.exit.acts_as(client));
    let known = to.address.map(Target::from);
    let target = known.as_ref().unwrap_or(to.target);
    let stream = node.dial(to.asker, &config.tcp, client, config.limits.connect, Some(&policy)).connect(target).await?;
    let mut side = Side::host(stream);
    side.has_transparent_address = client.is_some();
    // A name's addresses may be of either family, and a socket with a fallback does not have the options of the configuration.
    let made = match target.host {
        Host::Ip(ip)
            if client.is_none() && config.tcp.congestion_fallback.is_none() && generation.is_multiple_of(2) =>
        {
            Some(Made { generation: generation as u32, is_ipv4: ip.to_canonical().is_ipv4() })
        }
        _ => None,
    };
    Ok(Upstream { made, ..side.into() })
}
