//! Counts accepted connections: in all, for each client, and as strangers' until they have proven a key.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{Load, Node, Worker};
use crate::access::quota::{Allowance, ClientKey, Limit, QuotaGuard};
use crate::config::{Listener, ListenerKind};

/// A connection that ends sooner was short.
const SHORT: Duration = Duration::from_millis(100);

/// After a short connection has ended, more of them are expected for this time.
const SHORT_EXPECTED: Duration = Duration::from_millis(100);

/// The part of all connections that strangers on leg listeners may have: one in this many.
const STRANGERS: usize = 2;

/// What one address may have on leg listeners before it has proven a key: as many connections as a node dials at a time. If
/// a client's limits are larger, those hold.
const HANDSHAKES: Allowance = Allowance { open: 256, rate: 1000 };

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
    stranger: Option<Box<Stranger>>,
}

/// A connection that may be another node's. Counts as a stranger's until dropped.
struct Stranger {
    node: Arc<Node>,
    quota: Option<QuotaGuard<ClientKey>>,
}

/// The counts of a connection of which only the source address is known.
pub struct Claim {
    quota: Option<QuotaGuard<ClientKey>>,
    stranger: Option<Box<Stranger>>,
}

impl Claim {
    /// Counts a connection from `from` to `listener`. `None` if it is to be reset.
    pub fn of(node: &Arc<Node>, listener: &Listener, from: SocketAddr) -> Option<Self> {
        let (mut counted, mut stranger) = (None, None);
        match listener.kind {
            // A node has many clients, so clients' limits do not fit. Until it has proven its key it counts as a stranger.
            ListenerKind::Leg(_) => stranger = Some(Box::new(Stranger::new(node, from.ip())?)),
            // A PROXY protocol header will tell the client. It is counted then.
            _ if listener.expects_proxy_header(from) => {}
            _ => counted = Some(acquire(node, from.ip())?),
        }
        Some(Self { quota: counted, stranger })
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
            stranger: claim.stranger,
        }
    }

    /// Counts it for the client at `address`. False if that has reached a limit: the connection is to be reset.
    pub fn count_for(&mut self, address: IpAddr) -> bool {
        self.quota = acquire(&self.node, address);
        self.quota.is_some()
    }

    /// It has proven the key of another node: it no longer counts as a stranger's, or for its address.
    pub fn is_proven(&mut self) {
        if let Some(quota) = self.stranger.take().and_then(|mut stranger| stranger.quota.take()) {
            quota.give_back();
        }
    }

    /// The node that accepted.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Stranger {
    /// Counts one more from `address`. `None` if a limit is reached.
    fn new(node: &Arc<Node>, address: IpAddr) -> Option<Self> {
        let limits = &node.config().limits;
        // `stranger` takes this count back when it is dropped.
        let before = node.unproven.fetch_add(1, Ordering::Relaxed);
        let mut stranger = Self { node: node.clone(), quota: None };
        let most = node.most_connections().div_ceil(STRANGERS);
        let client = ClientKey::from(address);
        if before >= most {
            let line = format_args!(
                "{client}: {most} connections to leg listeners have not proven a key yet (a half of limits.connections, or of what the open files allow); others are reset"
            );
            node.lines.warn("strangers", client, line);
            return None;
        }
        let open = limits.client_connections.max(HANDSHAKES.open);
        let allowance = Allowance { open, rate: limits.client_rate.max(HANDSHAKES.rate) };
        let quota = node.strangers.acquire(client, allowance).map_err(|limit| {
            let line = format_args!("client {client}: {limit} to leg listeners without a key; others are reset");
            node.lines.warn("stranger", client, line);
        });
        stranger.quota = Some(quota.ok()?);
        Some(stranger)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.node.unproven.fetch_sub(1, Ordering::Relaxed);
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
    let is_own = address.to_canonical().is_loopback();
    let rate = if is_own { limits.loopback_rate } else { limits.client_rate };
    // Clients on this machine share one address, and use its files in any case. An operator who sets the limit knows them.
    let most = if is_own || limits.limits_clients { u32::MAX } else { node.most_of_one_client() };
    let quota = node.clients.acquire(client, Allowance { rate, open: limits.client_connections.min(most) });
    let refused = quota.map_err(|limit| {
        let key = match limit {
            Limit::Open(_) if most < limits.client_connections => "half of what the limit of open files allows".into(),
            Limit::Rate(_) if is_own => "limits.loopback_rate".into(),
            _ => limit.key("client"),
        };
        node.lines.warn("client", client, format_args!("client {client}: {limit} ({key}); others are reset"));
    });
    refused.ok()
}

#[cfg(test)]
mod tests;
