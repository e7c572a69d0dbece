//! What all connections of a node share.
//!
//! `Node::is_full` decides when a node accepts no more, and `Node::most_strangers` how many connections may not have proven a key.

pub mod builds;
pub mod late;
mod permit;
mod told;
pub mod turns;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ekiden_net::{socket, splice};
use ekiden_relay_proto::Failure;
use ekiden_service::Throttle;
use ekiden_transport::{
    Bounds, Credential, Evictable, EvictionTable, Strangers, UNPROVEN_BYTES, UNPROVEN_HOST_BYTES, budget,
};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};

pub use self::permit::{Claim, Current, Permit};
pub use self::told::word;
use crate::access::bandwidth::Bandwidth;
use crate::access::logins::Logins;
use crate::access::quota::{Allowance, ClientKey, Limit, QuotaGuard, Quotas};
use crate::config::{Config, ListenerKind, Tcp};
use crate::exit::dial::{Dial, used};
use crate::exit::names::Resolver;
use crate::exit::policy::{OwnAddresses, Policy};
use crate::exit::spare::{self, Asker, Counted, Spare};
use crate::overlay::{Overlay, Owner, Still};
use crate::pool::Pool;
use crate::shared::builds::Builds;
use late::LateStreams;
use turns::Turns;

/// How long a node that stops waits for a request on connections that carry none.
pub const ABOUT_TO_ASK: Duration = Duration::from_secs(1);

/// The maximum number of streams without a dialler that are delivered at the same time.
const ABANDONED: usize = 64;

/// Strangers on leg listeners may have this fraction of all connections: one in `STRANGERS`.
const STRANGERS: usize = 2;

/// Idle connections of other nodes may have this fraction of all connections: one in `IDLE_LEGS`. Together with strangers
/// they leave the rest to others.
const IDLE_LEGS: usize = 4;

/// Strangers may hold one in `MEMORY` bytes of `limits.memory`, and so may TLS handshakes and incomplete HTTP heads of clients: too few
/// for streams to become slower.
const MEMORY: usize = 4;

/// What one address may have of that: as many connections as a node dials at a time. If `limits.client_connections` is larger,
/// that holds.
const STRANGERS_OF_ADDRESS: u32 = 256;

/// The least limit of connections: a node that serves fewer at a time is of little use.
const FEW: usize = 64;

/// The least age at which a stranger is closed for others: a handshake takes less on most paths.
const SILENT: Duration = Duration::from_secs(1);

/// The same for an idle connection of another node: the request follows the proof at once.
const IDLE: Duration = Duration::from_millis(20);

/// What all connections of a node share.
#[derive(Debug)]
pub struct Node {
    config: RwLock<Arc<Config>>,
    /// Grows with each new configuration, and is odd while the configuration changes.
    generation: AtomicU64,
    /// When the node started: the origin of all times that are kept as numbers.
    pub started: Instant,
    /// Warm connections to peers.
    pub pool: Pool,
    /// Of which builds other nodes are.
    pub builds: Builds,
    /// What is known of legs, and which paths streams take.
    pub overlay: Overlay,
    /// How many streams of a class may be open over each leg.
    pub turns: Turns,
    /// Resolves names, and remembers the answers.
    pub names: Resolver,
    /// Descriptors for connections that need more than two.
    pub spare: Spare,
    /// Checks passwords, and remembers those that were right.
    pub logins: Logins,
    /// This host's addresses.
    pub own: OwnAddresses,
    /// Accepted connections that are open.
    pub connections: AtomicUsize,
    /// The most that were open at one time since this was last reset.
    pub peak_connections: AtomicUsize,
    /// Connections that the open-file limit allows; each needs a second descriptor.
    served_by_files: AtomicUsize,
    /// Open connections and connection rate of each client's address ...
    pub clients: Arc<Quotas<ClientKey>>,
    /// ... and of each user.
    pub users: Arc<Quotas<String>>,
    /// What both may take of the line.
    pub bandwidth: Arc<Bandwidth>,
    /// Connections to leg listeners that have not proven a key yet ...
    pub strangers: Strangers,
    /// ... and how many of them each address makes in a second.
    pub handshakes: Arc<Quotas<ClientKey>>,
    /// Clients whose TLS handshake is not over.
    shaking: Arc<EvictionTable<ClientKey>>,
    /// HTTP heads that have become long before they are said in whole.
    long_requests: Arc<EvictionTable<ClientKey>>,
    /// Connections from other nodes on which no stream is under way.
    pub idle_legs: Arc<EvictionTable<Owner>>,
    /// Connections of other nodes whose stream was refused, until they have ended it.
    pub refused_legs: Arc<EvictionTable<Owner>>,
    /// Streams under way that other nodes have opened.
    pub node_streams: Arc<Quotas<Owner>>,
    /// Limits the lines of the log that clients and peers can cause.
    pub lines: Throttle,
    /// Notified when an accepted connection closes: a worker at the limit then accepts again.
    pub closed: Notify,
    /// Places for streams whose client has its answer and end.
    pub late: LateStreams,
    /// Permits to deliver a stream whose dialler has gone.
    pub abandoned: Semaphore,
    /// Streams and requests under way: what draining waits for.
    busy: AtomicUsize,
    stopping: watch::Sender<bool>,
    /// Notified of each new configuration.
    reloaded: watch::Sender<()>,
}

/// Counts a stream or request as under way until it is dropped.
pub struct InFlightGuard(Arc<Node>);

/// A worker as the others see it.
#[derive(Debug, Clone)]
pub struct Worker {
    /// To spawn on it.
    pub handle: Handle,
    /// What it has to do.
    pub load: Arc<Load>,
}

/// The work of a worker, for the worker that accepts.
#[derive(Debug, Default)]
pub struct Load {
    /// Its open connections.
    pub open: AtomicUsize,
    /// Until when more short connections are expected, in milliseconds since the node started.
    pub short_until: AtomicU64,
}

impl Node {
    /// The state of a node that will have this configuration.
    pub fn new(config: Arc<Config>) -> io::Result<Self> {
        Ok(Self {
            config: RwLock::new(config),
            generation: AtomicU64::new(0),
            started: Instant::now(),
            pool: Pool::default(),
            builds: Builds::default(),
            overlay: Overlay::default(),
            turns: Turns::default(),
            names: Resolver::of_system(),
            spare: Spare::new(spare::kept()),
            logins: Logins::new()?,
            own: OwnAddresses::default(),
            connections: AtomicUsize::new(0),
            peak_connections: AtomicUsize::new(0),
            served_by_files: AtomicUsize::new(usize::MAX),
            clients: Arc::default(),
            users: Arc::default(),
            bandwidth: Arc::default(),
            strangers: Strangers::default(),
            handshakes: Arc::default(),
            shaking: Arc::default(),
            long_requests: Arc::default(),
            idle_legs: Arc::default(),
            refused_legs: Arc::default(),
            node_streams: Arc::default(),
            lines: Throttle::default(),
            closed: Notify::new(),
            late: LateStreams::default(),
            abandoned: Semaphore::new(ABANDONED),
            busy: AtomicUsize::new(0),
            stopping: watch::Sender::new(false),
            reloaded: watch::Sender::new(()),
        })
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a new configuration, and `switch`es the listeners to it.
    pub fn change(&self, config: &Arc<Config>, switch: impl FnOnce()) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config.clone();
        self.pool.configure(config);
        self.overlay.configure(config);
        self.names.forget();
        self.lines.forget(|peer| config.peers.contains_key(peer));
        let before = self.served_by_files.swap(served_by_files(config), Ordering::Relaxed);
        let most = self.served_by_files.load(Ordering::Relaxed);
        if before == usize::MAX && most < config.limits.connections as usize {
            let at_once = if most == 1 { "one connection at a time" } else { &format!("{most} connections at a time") };
            let line = format!("the open files are enough for {at_once}, fewer than limits.connections");
            match most < FEW {
                true => tracing::warn!("{line}: allow this process more (`ulimit -n`, LimitNOFILE=)"),
                false => tracing::info!("{line}"),
            }
        }
        budget::limit(config.limits.memory);
        self.reloaded.send_replace(());
        switch();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// A file of users or destinations says something else: what was decided by it is decided again.
    pub fn files_changed(&self) {
        // It stays odd while the configuration changes.
        self.generation.fetch_add(2, Ordering::AcqRel);
    }

    /// A connection to a node failed. If this node lacked something, that says nothing about the other.
    pub fn leg_failed(&self, peer: &str, failure: &Failure) {
        if !failure.is_local {
            self.overlay.leg_failed(peer);
        }
    }

    /// The number of the configuration in force. A decision that an earlier one made may no longer hold.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Waits while the configuration changes: new users are in force a moment after new routes.
    pub async fn settled(&self) {
        while !self.generation().is_multiple_of(2) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many accepted connections may be open at one time.
    pub fn most_connections(&self) -> usize {
        let most = self.config().limits.connections as usize;
        most.min(self.served_by_files.load(Ordering::Relaxed))
    }

    /// How many accepted connections the open files allow.
    pub fn served_by_files(&self) -> usize {
        self.served_by_files.load(Ordering::Relaxed)
    }

    /// The limit of connections of one client. If the configuration does not set it, and open files or `limits.connections`
    /// are few, it leaves some to others. Clients on this machine share one address, and use its files in any case.
    pub fn most_of_client(&self, client: ClientKey) -> u32 {
        let limits = &self.config().limits;
        let half = u32::try_from(self.most_connections().div_ceil(2)).unwrap_or(u32::MAX);
        match client.is_own() || limits.limits_clients {
            true => limits.client_connections,
            false => limits.client_connections.min(half),
        }
    }

    /// How many connections to leg listeners may not have proven a key.
    pub fn most_strangers(&self) -> Bounds {
        let limits = &self.config().limits;
        let all = self.most_connections().div_ceil(STRANGERS).min(limits.memory / MEMORY / UNPROVEN_BYTES);
        Bounds { all, of_owner: limits.client_connections.max(STRANGERS_OF_ADDRESS) as usize }
    }

    /// Adds a connection of another node on which nothing happens. If there are too many, the oldest one of the owner that
    /// has most is closed.
    pub fn add_idle_leg(&self, owner: Owner) -> Evictable<Owner> {
        let all = self.most_connections().div_ceil(IDLE_LEGS);
        self.idle_legs.add(owner, Bounds { all, of_owner: all })
    }

    /// Adds a connection of another node whose stream was refused. It is closed only to make room: the node has to read the
    /// reason.
    pub fn add_refused_leg(&self, owner: Owner) -> Evictable<Owner> {
        self.refused_legs.add(owner, Bounds { all: usize::MAX, of_owner: usize::MAX })
    }

    /// Adds a client whose TLS handshake begins.
    pub fn add_shaking(&self, client: ClientKey) -> Evictable<ClientKey> {
        let all = (self.config().limits.memory / MEMORY / UNPROVEN_HOST_BYTES).max(1);
        self.shaking.add(client, Bounds { all, of_owner: all })
    }

    /// Adds a client's request that has become long before it is said in whole, most of all an HTTP head. Its connection may hold `unread`
    /// besides.
    pub fn add_long_request(&self, client: ClientKey, unread: usize) -> Evictable<ClientKey> {
        let limits = &self.config().limits;
        let all = (limits.memory / MEMORY / (limits.http_head_size + unread).max(1)).max(1);
        self.long_requests.add(client, Bounds { all, of_owner: all })
    }

    /// Counts a stream that another node opens. If this node also serves others, the other node must leave them some.
    ///
    /// # Errors
    /// The other node has as many streams as it may.
    pub fn count_stream_of(&self, owner: &Owner) -> Result<QuotaGuard<Owner>, Limit> {
        let all = self.most_connections();
        let most = if self.config().serves_several() { (all - all / 4).min(all - 1).max(1) } else { all };
        let open = u32::try_from(most).unwrap_or(u32::MAX);
        self.node_streams.acquire(owner.clone(), Allowance { open, rate: u32::MAX })
    }

    /// Closes a connection on which nothing happens: the oldest one of the stranger or idle node that has most, or one whose
    /// stream was refused. False if there is none, or if the shortage is not of connections.
    pub fn make_room(&self) -> bool {
        let evicts = || {
            self.strangers.evict_one(SILENT) || self.idle_legs.evict_one(IDLE) || self.refused_legs.evict_one(SILENT)
        };
        !budget::is_full() && evicts()
    }

    /// The path of a connection that stands still may silently drop long segments: the next dialled connection shows whether
    /// it does. If this node's own data is not acknowledged, idle connections of the same kind are closed.
    pub fn stands_still(&self, still: &Still) {
        match still {
            Still::Stalled(peer, owner, segment_bytes) => {
                self.pool.stalled(peer, *segment_bytes);
                if let Some(owner) = owner {
                    self.idle_legs.evict_all(owner);
                }
            }
            Still::Waits(peer) => self.pool.segments(peer).doubt(),
        }
    }

    /// What keeps this node from accepting one more connection.
    pub fn is_full(&self) -> Option<&'static str> {
        let open = self.connections.load(Ordering::Relaxed);
        if open >= self.config().limits.connections as usize {
            Some("limits.connections is reached")
        } else if open >= self.served_by_files.load(Ordering::Relaxed) {
            Some("the limit of open files allows no more connections")
        } else if budget::is_full() {
            Some("limits.memory is reached")
        } else {
            None
        }
    }

    /// A way to make connections: for `asker`, with these TCP settings, from the address of `client` if there is one, within
    /// `limit`, and not to addresses that `policy` refuses.
    pub fn dial<'a>(
        &'a self,
        asker: Asker<'a>,
        tcp: &'a Tcp,
        client: Option<SocketAddr>,
        limit: Duration,
        policy: Option<&'a Policy<'a>>,
    ) -> Dial<'a> {
        Dial { client, tcp, names: &self.names, asker, spare: &self.spare, limit, policy }
    }

    /// Reserves one descriptor beyond the two of each connection. `None` if there is none to spare.
    pub fn one_more(&self) -> Option<Counted<'_>> {
        self.spare.one()
    }

    /// Marks the beginning of a stream or request.
    pub fn begin(self: &Arc<Self>) -> InFlightGuard {
        self.busy.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.clone())
    }

    /// The part of its connection limit that this node uses, 0 to 1.
    pub fn load(&self) -> f64 {
        let open = self.connections.load(Ordering::Relaxed) as f64;
        (open / self.most_connections().max(1) as f64).min(1.0)
    }

    /// Streams and requests under way.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether it is told to stop.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Ends what is idle: connections that wait for a next request or stream.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        self.pool.close();
    }

    /// Completes when the node is told to stop: idle connections should end then.
    pub async fn stopping(&self) {
        // An error means that the sender has been dropped, and with it the node.
        let _ = self.stopping.subscribe().wait_for(|&stopping| stopping).await;
    }

    /// Whether a leg listener at `address` admits a node by `credential`.
    pub fn admits(&self, address: SocketAddr, credential: &Credential) -> bool {
        self.config().listeners.values().any(|listener| match &listener.kind {
            ListenerKind::Leg(security) => listener.address == address && security.admits(credential),
            _ => false,
        })
    }

    /// Completes as soon as [`Node::admits`] is false.
    pub async fn revoked(&self, address: SocketAddr, credential: &Credential) {
        let mut reloaded = self.reloaded.subscribe();
        while self.admits(address, credential) {
            if reloaded.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many connections the limit of open files lets a node serve to their ends: each takes two, besides what the node has
/// for itself.
fn served_by_files(config: &Config) -> usize {
    /// Files, and what a thread's event loop takes beside sockets to use again.
    const REST: usize = 64;
    const THREAD: usize = 4;
    let Ok(files) = socket::open_files() else { return usize::MAX };
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    // A quarter of all descriptors: most streams hold no pipe.
    let pipes = files / 8;
    splice::limit(pipes);
    // Where files are few, connections need them more.
    let sockets = (files / 512).min(used::MOST);
    used::limit(sockets);
    let kept = REST
        + spare::kept()
        + config.threads * (THREAD + sockets + config.listeners.len())
        // An overlay may have hundreds of nodes, and idle connections to few of them.
        + (config.peers.len() * config.limits.pool as usize).min(files / 4);
    (files.saturating_sub(kept + 2 * pipes) / 2).max(1)
}
