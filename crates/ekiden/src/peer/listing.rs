//! What `ekiden peer list` shows, as two tables and as JSON.

use ekiden_relay::{Config, ListenerKind};
use ekiden_transport::{Security, SharedKey};
use serde::Serialize;

use crate::out;

/// The nodes that a configuration names, in its order.
#[derive(Serialize)]
pub struct Listing {
    /// Those that it connects to.
    peers: Vec<Peer>,
    /// Where nodes connect to it.
    listeners: Vec<Listener>,
}

#[derive(Serialize)]
struct Peer {
    name: String,
    /// HOST:PORT of its leg listener.
    address: String,
    /// Without one, and without a shared key, it is refused.
    fingerprint: Option<String>,
    /// The file of the shared key, for a leg without encryption.
    plain_key_file: Option<String>,
}

#[derive(Serialize)]
struct Listener {
    name: String,
    address: String,
    nodes: Vec<Node>,
    /// The file of the shared key, for legs without encryption. Every node that has the key is admitted.
    plain_key_file: Option<String>,
}

#[derive(Serialize)]
struct Node {
    name: String,
    fingerprint: String,
}

impl Listing {
    /// What the tables and the JSON document hold.
    pub fn of(config: &Config) -> Self {
        let file = |shared: &SharedKey| Some(shared.file.display().to_string());
        let peers = config.peers.iter().map(|(name, peer)| {
            let (fingerprint, plain_key_file) = match &peer.security {
                Security::Tls { known, .. } => (known.map(|fingerprint| fingerprint.to_string()), None),
                Security::Plain(shared) => (None, file(shared)),
            };
            Peer { name: name.clone(), address: peer.address.to_string(), fingerprint, plain_key_file }
        });
        let listeners = config.listeners.iter().filter_map(|(name, listener)| {
            let ListenerKind::Leg(security) = &listener.kind else { return None };
            let (nodes, plain_key_file) = match security {
                Security::Tls { known, .. } => {
                    let node = |(name, fingerprint): (&String, &_)| Node {
                        name: name.clone(),
                        fingerprint: ToString::to_string(fingerprint),
                    };
                    (known.iter().map(node).collect(), None)
                }
                Security::Plain(shared) => (Vec::new(), file(shared)),
            };
            Some(Listener { name: name.clone(), address: listener.address.to_string(), nodes, plain_key_file })
        });
        Self { peers: peers.collect(), listeners: listeners.collect() }
    }
}

impl Listing {
    /// Two tables. If they are wider than `columns`, keys have lines of their own.
    pub fn text(&self, columns: Option<usize>) -> String {
        // Text in parentheses cannot be a node's name.
        let key = |fingerprint: Option<&String>, file: Option<&String>| match (fingerprint, file) {
            (Some(fingerprint), _) => fingerprint.clone(),
            (None, Some(file)) => format!("plain_key_file = {file:?}"),
            (None, None) => "(none)".into(),
        };
        let mut peers = vec![["peer", "address", "key"].map(String::from)];
        for peer in &self.peers {
            let key = key(peer.fingerprint.as_ref(), peer.plain_key_file.as_ref());
            peers.push([peer.name.clone(), peer.address.clone(), key]);
        }
        let mut nodes = vec![["listener", "node", "key"].map(String::from)];
        for listener in &self.listeners {
            for node in &listener.nodes {
                nodes.push([listener.name.clone(), node.name.clone(), node.fingerprint.clone()]);
            }
            if listener.nodes.is_empty() {
                let who = if listener.plain_key_file.is_some() { "(any)" } else { "(none)" };
                nodes.push([listener.name.clone(), who.into(), key(None, listener.plain_key_file.as_ref())]);
            }
        }
        format!("{}\n{}", out::columns(&peers, columns), out::columns(&nodes, columns))
    }
}
