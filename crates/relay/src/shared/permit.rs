//! Counts accepted connections: in all, for each client, and as strangers' until they have proven a key.
//!
//! If clients have too many, the newcomer is reset. If strangers have, the newcomer is accepted and the oldest is closed:
//! the newcomer may be a node that must connect again.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ekiden_transport::Stranger;
use ekiden_transport::budget::{self, Share};
use tokio::sync::watch;

use super::{Load, Node, Worker};
use crate::access::quota::{Allowance, ClientKey, Limit, QuotaGuard};
use crate::config::{Listener, ListenerKind};

/// A connection that ends sooner was short.
const SHORT: Duration = Duration::from_millis(100);

/// After a short connection has ended, more of them are expected for this time.
const SHORT_EXPECTED: Duration = Duration::from_millis(100);

/// The rate of connections per second that one address may make to leg listeners without proving a key: each costs processor
/// time. If `limits.client_rate` is larger, that holds.
const HANDSHAKES_RATE: u32 = 1000;

/// A listener as the configuration in force has it. The sender is dropped when the listener is removed. It is shared, so
/// that it costs an open connection one pointer.
pub type Current = Arc<watch::Receiver<Arc<Listener>>>;

/// Counts an accepted connection until it is dropped.
pub struct Permit {
    node: Arc<Node>,
    load: Arc<Load>,
    since: Instant,
    /// Counts it among the connections of its client, unless it is exempt.
    quota: Option<QuotaGuard<ClientKey>>,
    /// For a connection to a leg listener, until it has proven a key.
    unproven: Option<Box<Unproven>>,
}

/// A connection that may be another node's. Counts as a stranger's until dropped.
struct Unproven {
    stranger: Stranger,
    rate: QuotaGuard<ClientKey>,
}

/// The counts of a connection of which only the source address is known.
pub struct Claim {
    quota: Option<QuotaGuard<ClientKey>>,
    unproven: Option<Box<Unproven>>,
}

impl Claim {
    /// Counts a connection from `from` to `listener`. `None` if it is to be reset.
    pub fn of(node: &Arc<Node>, listener: &Listener, from: SocketAddr) -> Option<Self> {
        let (mut counted, mut unproven) = (None, None);
        match listener.kind {
            // A node has many clients, so clients' limits do not fit. Until it has proven its key it counts as a stranger.
            ListenerKind::Leg(_) => unproven = Some(Box::new(Unproven::new(node, from.ip())?)),
            // A PROXY protocol header will tell the client. It is counted then.
            _ if listener.expects_proxy_header(from) => {}
            _ => counted = Some(acquire(node, from.ip())?),
        }
        Some(Self { quota: counted, unproven })
    }
}

impl Permit {
    /// Counts a connection that `worker` serves.
    pub fn new(node: &Arc<Node>, worker: &Worker, claim: Claim) -> Self {
        let open = node.connections.fetch_add(1, Ordering::Relaxed) + 1;
        if open > node.peak_connections.load(Ordering::Relaxed) {
            node.peak_connections.fetch_max(open, Ordering::Relaxed);
        }
        worker.load.open.fetch_add(1, Ordering::Relaxed);
        Self {
            node: node.clone(),
            load: worker.load.clone(),
            since: Instant::now(),
            quota: claim.quota,
            unproven: claim.unproven,
        }
    }

    /// Counts it for the client at `address`. False if that has reached a limit: the connection is to be reset.
    pub fn count_for(&mut self, address: IpAddr) -> bool {
        self.quota = acquire(&self.node, address);
        self.quota.is_some()
    }

    /// From now on its client pays for the memory that this task holds. Those of this machine share one address, and pay nothing.
    pub fn pays(&self) {
        if let Some(quota) = self.quota.as_ref().filter(|quota| !quota.key().is_own()) {
            budget::pays(quota.payer(), Share::Quarter);
        }
    }

    /// It has proven the key of another node: it no longer counts as a stranger's, or for its address.
    pub fn is_proven(&mut self) {
        if let Some(unproven) = self.unproven.take() {
            unproven.rate.give_back();
        }
    }

    /// Completes when it must go, because it has not proven a key and too many others have not either.
    pub async fn evicted(&self) {
        match &self.unproven {
            Some(unproven) => unproven.stranger.evicted().await,
            None => pending().await,
        }
    }

    /// The node that accepted.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Unproven {
    /// Counts one more from `address`. `None` if that makes more of them in a second than it may.
    fn new(node: &Arc<Node>, address: IpAddr) -> Option<Self> {
        let client = ClientKey::from(address);
        let rate = node.config().limits.client_rate.max(HANDSHAKES_RATE);
        let counted = node.handshakes.acquire(client, Allowance { open: u32::MAX, rate }).map_err(|limit| {
            let line = format_args!("client {client}: {limit} to leg listeners without a key; others are reset");
            node.lines.warn("handshakes", client, line);
        });
        Some(Self { rate: counted.ok()?, stranger: node.strangers.add(address, node.most_strangers()) })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.load.open.fetch_sub(1, Ordering::Relaxed);
        let now = Instant::now();
        if now - self.since < SHORT {
            let until = (now - self.node.started + SHORT_EXPECTED).as_millis() as u64;
            self.load.short_until.store(until, Ordering::Relaxed);
        }
        self.node.connections.fetch_sub(1, Ordering::Relaxed);
        self.node.closed.notify_one();
    }
}

/// Counts one more connection of the client at `address`, if it may have one.
fn acquire(node: &Node, address: IpAddr) -> Option<QuotaGuard<ClientKey>> {
    let client = ClientKey::from(address);
    let limits = &node.config().limits;
    let is_own = client.is_own();
    let rate = if is_own { limits.loopback_rate } else { limits.client_rate };
    let open = node.most_of_client(client);
    let quota = node.clients.acquire(client, Allowance { rate, open });
    let refused = quota.map_err(|limit| {
        let key = match limit {
            Limit::Open(_) if open < limits.client_connections => {
                "half of limits.connections, or of what the limit of open files allows".into()
            }
            Limit::Rate(_) if is_own => "limits.loopback_rate".into(),
            _ => limit.key("client"),
        };
        node.lines.warn("client", client, format_args!("client {client}: {limit} ({key}); others are reset"));
    });
    refused.ok()
}

#[cfg(test)]
mod tests;
