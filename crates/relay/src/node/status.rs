//! What a running node tells its operator: what it has, for whom, and how near it is to its limits.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_net::socket::overlap;
use ekiden_service::process::{Kind, Process};
use ekiden_service::status::StatusError;
use ekiden_transport::budget;
use ekiden_units::BitRate;
use serde::{Deserialize, Serialize};

use super::Relay;
use crate::access::quota::ClientKey;
use crate::config::Listener;
use crate::pool::PeerStatus;
use crate::shared::Node;

/// Two of one name may run, such as one that drains beside the one that comes after it.
const NODES: Kind = Kind { word: "proxy", called: "node" };

/// A running node. One of another build may leave out what is new here, or say more: what it does not say is empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Running {
    /// Its name.
    pub node: String,
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// Whether it was told to stop: it accepts for a second more, or until another process has its listeners, and ends with its last stream.
    pub is_draining: bool,
    /// Where connections are accepted.
    pub listeners: Vec<ListenerStatus>,
    /// Streams and requests under way.
    pub streams: u64,
    /// Nodes that this one connects to.
    pub peers: Vec<PeerStatus>,
    /// Nodes whose streams come to this one.
    pub nodes: Vec<Open>,
    /// Users that have connections.
    pub users: Vec<Open>,
    /// Clients' addresses that have connections.
    pub clients: u64,
    /// How near it is to its limits.
    pub limits: Vec<LimitStatus>,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its address and port.
    pub address: String,
}

/// What one of many has open.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Open {
    /// Whose it is.
    pub name: String,
    /// Connections of a user, streams of a node.
    pub open: u64,
    /// Of which build a node is, if it has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// A limit and what counts for it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitStatus {
    /// Its key in the configuration, or what else limits.
    pub limit: String,
    /// What counts now: a number, bytes or bit/s.
    pub used: u64,
    /// What may be.
    pub most: u64,
    /// Of limits for each client or user: the one that is nearest.
    pub by: Option<String>,
}

/// Answers for a node until the process ends.
pub struct Answers {
    listeners: Arc<Mutex<Vec<ListenerStatus>>>,
}

impl Answers {
    /// Within the event loop of the process. A node that cannot be asked goes on all the same.
    pub fn start(relay: &Relay) -> Self {
        let answers = Self { listeners: Arc::default() };
        answers.follow(relay);
        let (node, listeners) = (relay.node.clone(), answers.listeners.clone());
        NODES.answer(move || of(&node, &listeners));
        answers
    }

    /// Takes the listeners of another configuration.
    pub fn follow(&self, relay: &Relay) {
        let config = relay.config();
        let bound = config.listeners.iter().filter_map(|(name, listener)| Some((name, listener, relay.address(name)?)));
        let listeners = bound.map(|(name, listener, address)| ListenerStatus {
            name: name.clone(),
            kind: listener.kind.word().into(),
            address: address.to_string(),
        });
        *self.listeners.lock().unwrap_or_else(PoisonError::into_inner) = listeners.collect();
    }
}

/// The processes of this network namespace that can be asked.
pub fn processes() -> Vec<u32> {
    NODES.processes()
}

/// Where the nodes of this network namespace listen, and their processes.
#[derive(Default)]
pub struct Holders(Vec<Holder>);

/// A node that listens.
#[derive(Debug, Clone)]
pub struct Holder {
    address: SocketAddr,
    /// Its name.
    pub node: String,
    /// Its process.
    pub pid: u32,
}

impl Holders {
    /// Asks all nodes. One that is stopped is waited for.
    pub fn ask() -> Self {
        let running = processes().into_iter().filter_map(|process| ask(process).ok());
        let address = |listener: &ListenerStatus| listener.address.parse().ok();
        let of = |node: Running| {
            let addresses = node.listeners.iter().filter_map(address);
            addresses
                .map(|address| Holder { address, node: node.node.clone(), pid: node.process.pid })
                .collect::<Vec<_>>()
        };
        Self(running.flat_map(of).collect())
    }

    /// A node that is in the way of a listener there.
    pub fn of(&self, address: SocketAddr) -> Option<&Holder> {
        self.0.iter().find(|holder| overlap(holder.address, address))
    }
}

/// Asks the node of this process.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask(pid: u32) -> Result<Running, StatusError> {
    NODES.ask(pid)
}

fn of(node: &Node, listeners: &Mutex<Vec<ListenerStatus>>) -> Running {
    let config = node.config();
    let clients = node.clients.open();
    Running {
        node: config.name.clone(),
        process: Process::since(node.started),
        is_draining: node.is_stopping(),
        listeners: match node.is_stopping() {
            true => Vec::new(),
            false => listeners.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        },
        streams: node.busy() as u64,
        peers: node.pool.status(|name| node.builds.of(name), |name| node.lines.is_troubled(name)),
        nodes: {
            let mut nodes = sorted(node.node_streams.open(), |owner| node.builds.of(owner));
            nodes
                .iter_mut()
                .for_each(|open| open.name = config.node_of_key(&open.name).unwrap_or(&open.name).to_owned());
            nodes
        },
        users: sorted(node.users.open(), |_| None),
        clients: clients.len() as u64,
        limits: limits(node, &clients),
    }
}

/// Those with most first.
fn sorted<N: AsRef<str>>(open: Vec<(N, u32)>, build: impl Fn(&str) -> Option<String>) -> Vec<Open> {
    let one = |(name, open): &(N, u32)| {
        let name = name.as_ref();
        Open { name: name.to_owned(), open: (*open).into(), build: build(name) }
    };
    let mut all: Vec<_> = open.iter().map(one).collect();
    all.sort_by(|one, other| other.open.cmp(&one.open).then_with(|| one.name.cmp(&other.name)));
    all
}

fn limits(node: &Node, clients: &[(ClientKey, u32)]) -> Vec<LimitStatus> {
    let config = node.config();
    let limits = &config.limits;
    let open = node.connections.load(Ordering::Relaxed);
    let limit = |limit: &str, used: usize, most: usize| LimitStatus {
        limit: limit.into(),
        used: used as u64,
        most: most as u64,
        by: None,
    };
    let of_each = |limit: &str, nearest: Option<(String, u32, u32)>, most: u32| {
        let (by, used, most) = nearest.map_or((None, 0, most), |(by, used, most)| (Some(by), used, most));
        LimitStatus { limit: limit.into(), used: used.into(), most: most.into(), by }
    };
    let client = clients.iter().max_by_key(|(client, open)| (*open, *client));
    let client = client.map(|(client, open)| (client.to_string(), *open, node.most_of_client(*client)));
    let strangers = node.most_strangers();
    let mut all = vec![
        limit("limits.connections", open, limits.connections as usize),
        limit("open files", open, node.served_by_files()),
        limit("limits.memory", budget::held(), limits.memory),
        of_each("limits.client_connections", client, limits.client_connections),
        limit("without a proven key", node.strangers.count(), strangers.all),
    ];
    if config.listeners.values().any(Listener::has_users) {
        let user = node.users.open().into_iter().max_by_key(|(user, open)| (*open, user.clone()));
        let user = user.map(|(user, open)| (user, open, limits.user_connections));
        all.push(of_each("limits.user_connections", user, limits.user_connections));
    }
    let paced =
        [("limits.client_bandwidth", limits.client_bandwidth), ("limits.user_bandwidth", limits.user_bandwidth)];
    for ((limit, most), by) in paced.into_iter().zip(node.bandwidth.most_used()) {
        let Some(BitRate(most)) = most else { continue };
        let (by, used) = by.map_or((None, 0), |(by, used)| (Some(by), used.0));
        all.push(LimitStatus { limit: limit.into(), used, most, by });
    }
    all
}
