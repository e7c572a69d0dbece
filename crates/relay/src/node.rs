//! A node: its worker threads, its listeners, and what they share.
//!
//! Each worker is a thread with its own single-threaded event loop and its own SO_REUSEPORT socket of every
//! listener, so that a connection lives and dies on one thread without a lock or a wake-up of another. The
//! kernel spreads connections by hash, which is uneven when they are few: see [`crate::accept`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ekiden_bpf::Held;
use ekiden_net::socket;
use ekiden_net::splice;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::config::{Config, Credential, ListenerKind, Tcp};
use crate::congestion;
use crate::dial::Dial;
use crate::exit::{OwnAddresses, Policy};
use crate::logins::Logins;
use crate::memory::{self, Crowd};
use crate::names::Names;
use crate::pool::Pool;
use crate::quota::{ClientKey, Quotas};
use crate::rules::{Installed, Rules};
use crate::spare::{self, Counted, Spare};
use crate::throttle::Throttle;
use crate::warm;
pub use error::StartError;
pub use listening::Steering;
use listening::{After, Bound, Closing, Sockets};

mod buffers;
mod error;
mod listening;

/// Turns that a thread gives to streams that need not wait before it looks which others need not wait any more. With tokio's
/// 61, streams that always have something to move leave others next to nothing.
const TURNS: u32 = 8;

/// How many origins may take their time at once with what their clients, of whom some are gone, have said.
const LATE_ORIGINS: usize = 64;

/// How many streams are delivered at once although their diallers have gone.
const ABANDONED: usize = 64;

/// What all connections of a node share.
#[derive(Debug)]
pub struct Node {
    config: RwLock<Arc<Config>>,
    /// Grows with each new configuration. Odd while it changes.
    generation: AtomicU64,
    /// What times are counted from.
    pub started: Instant,
    /// Warm connections to peers.
    pub pool: Pool,
    /// What names stand for.
    pub names: Names,
    /// Descriptors for more than a connection's own two.
    pub spare: Spare,
    /// Passwords that were found right.
    pub logins: Logins,
    /// This host's addresses.
    pub own: OwnAddresses,
    /// Accepted connections that are open.
    pub connections: AtomicUsize,
    /// The most of them at one time since [`Crowd`] looked.
    pub peak_connections: AtomicUsize,
    /// How many there may be if each is to find a descriptor for its destination too.
    served_by_files: AtomicUsize,
    /// Those of each client's address ...
    pub clients: Arc<Quotas<ClientKey>>,
    /// ... and of each user.
    pub users: Arc<Quotas<String>>,
    /// Connections to segment listeners that have not proven a key yet, by address ...
    pub strangers: Arc<Quotas<ClientKey>>,
    /// ... and in all.
    pub unproven: AtomicUsize,
    /// Lines of the log that others cause.
    pub lines: Throttle,
    /// Told when one closes while the limit is reached.
    pub closed: Notify,
    /// Origins over nodes that are waited for although their requests are long over.
    pub late_origins: Semaphore,
    /// Streams that are still delivered although their diallers have gone.
    pub abandoned: Semaphore,
    /// Streams and requests under way: what draining waits for.
    busy: AtomicUsize,
    stopping: watch::Sender<bool>,
    /// Told of each new configuration.
    reloaded: watch::Sender<()>,
}

/// A stream or request under way, until dropped.
pub struct Busy(Arc<Node>);

/// A worker as the others see it.
#[derive(Debug, Clone)]
pub struct Worker {
    /// To spawn on it.
    pub handle: Handle,
    /// What it has to do.
    pub load: Arc<Load>,
}

/// What a worker has to do, for [`crate::accept`].
#[derive(Debug, Default)]
pub struct Load {
    /// Its open connections.
    pub open: AtomicUsize,
    /// Until when more short connections are expected, in milliseconds since the node started.
    pub short_until: AtomicU64,
}

/// A running node. Dropping it resets all its connections.
pub struct Relay {
    node: Arc<Node>,
    workers: Arc<[Worker]>,
    /// The workers' event loops, until they have threads.
    runtimes: Vec<Runtime>,
    threads: Vec<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    bound: HashMap<String, Bound>,
    /// Sockets that are being closed.
    closing: Vec<Closing>,
    /// The congestion controls that this node keeps in the kernel.
    held: Vec<Held>,
    /// The rules that transparent listeners and exits need. They outlast all connections.
    rules: Option<Installed>,
}

impl Node {
    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Which configuration is in force. What an earlier one decided may not hold any more.
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

    /// How many of them one client's address may have where the configuration does not say: it must leave some to others
    /// where open files are few.
    pub fn most_of_one_client(&self) -> u32 {
        u32::try_from(self.served_by_files.load(Ordering::Relaxed).div_ceil(2)).unwrap_or(u32::MAX)
    }

    /// What keeps this node from accepting one more connection.
    pub fn is_full(&self) -> Option<&'static str> {
        let open = self.connections.load(Ordering::Relaxed);
        if open >= self.config().limits.connections as usize {
            Some("limits.connections is reached")
        } else if open >= self.served_by_files.load(Ordering::Relaxed) {
            Some("the limit of open files allows no more connections")
        } else if memory::is_full() {
            Some("limits.memory is reached")
        } else {
            None
        }
    }

    /// A way to make connections: with these TCP settings, from the address of `client` if there is one, within `limit`, and
    /// not to addresses that `policy` refuses.
    pub fn dial<'a>(
        &'a self,
        tcp: &'a Tcp,
        client: Option<SocketAddr>,
        limit: Duration,
        policy: Option<&'a Policy<'a>>,
    ) -> Dial<'a> {
        Dial { client, tcp, names: &self.names, spare: &self.spare, limit, policy }
    }

    /// A descriptor more than those that a connection is reckoned with, unless there is none to spare.
    pub fn one_more(&self) -> Option<Counted<'_>> {
        self.spare.one()
    }

    /// Marks the beginning of a stream or request.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Completes when the node is told to stop: what waits idle for more work should end.
    pub async fn stopping(&self) {
        // An error means that the sender is gone, with the node.
        let _ = self.stopping.subscribe().wait_for(|&stopping| stopping).await;
    }

    /// Whether a segment listener at `address` admits a node by `credential`.
    pub fn admits(&self, address: SocketAddr, credential: &Credential) -> bool {
        self.config().listeners.values().any(|listener| match &listener.kind {
            ListenerKind::Segment(security) => listener.address == address && security.admits(credential),
            _ => false,
        })
    }

    /// Completes when [`Node::admits`] does not hold, or no longer.
    pub async fn revoked(&self, address: SocketAddr, credential: &Credential) {
        let mut reloaded = self.reloaded.subscribe();
        while self.admits(address, credential) {
            if reloaded.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Relay {
    /// Brings the congestion controls that `config` names into the kernel, binds every listener and starts to accept.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let mut relay = Self::bind(config)?;
        relay.serve()?;
        Ok(relay)
    }

    /// The first part of [`Relay::start`], all that needs privileges that the node does not need afterwards. There is no
    /// other thread yet that would keep them.
    pub fn bind(config: Config) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let node = Arc::new(Node {
            config: RwLock::new(config.clone()),
            generation: AtomicU64::new(0),
            started: Instant::now(),
            pool: Pool::default(),
            names: Names::of_system(),
            spare: Spare::new(spare::kept()),
            logins: Logins::new()?,
            own: OwnAddresses::default(),
            connections: AtomicUsize::new(0),
            peak_connections: AtomicUsize::new(0),
            served_by_files: AtomicUsize::new(usize::MAX),
            clients: Arc::default(),
            users: Arc::default(),
            strangers: Arc::default(),
            unproven: AtomicUsize::new(0),
            lines: Throttle::default(),
            closed: Notify::new(),
            late_origins: Semaphore::new(LATE_ORIGINS),
            abandoned: Semaphore::new(ABANDONED),
            busy: AtomicUsize::new(0),
            stopping: watch::Sender::new(false),
            reloaded: watch::Sender::new(()),
        });
        let mut relay = Self {
            node,
            workers: Arc::new([]),
            runtimes: Vec::new(),
            threads: Vec::new(),
            bound: HashMap::new(),
            closing: Vec::new(),
            held: Vec::new(),
            rules: None,
        };
        for _ in 0..config.threads {
            let mut runtime = Builder::new_current_thread();
            runtime.enable_all().max_blocking_threads(16).event_interval(TURNS);
            relay.runtimes.push(runtime.build()?);
        }
        let worker = |runtime: &Runtime| Worker { handle: runtime.handle().clone(), load: Arc::default() };
        relay.workers = relay.runtimes.iter().map(worker).collect();
        relay.reload(config)?;
        for worker in relay.workers.iter() {
            worker.handle.spawn(expire_pool(relay.node.clone()));
        }
        relay.workers[0].handle.spawn(warm::keep(relay.node.clone()));
        Ok(relay)
    }

    /// The second part: accepts, on threads of its own.
    pub fn serve(&mut self) -> Result<(), StartError> {
        for (i, runtime) in self.runtimes.drain(..).enumerate() {
            let (stop, stopped) = oneshot::channel();
            let thread = std::thread::Builder::new().name(format!("relay-{i}"));
            self.threads.push((stop, thread.spawn(move || work(runtime, stopped))?));
        }
        Ok(())
    }

    /// Whether the congestion controls and buffers that `config` names can be had; ekiden's own controls, which are brought
    /// into the kernel at the start, are not tried.
    ///
    /// # Errors
    /// [`StartError::Congestion`] and [`StartError::Buffer`].
    pub fn check(config: &Config) -> Result<(), StartError> {
        congestion::check(config)?;
        buffers::check(config)
    }

    /// Takes a new configuration: listeners, peers, routes, users and limits. Running streams go on. If a new
    /// listener cannot be bound, or a congestion control not be had, everything stays as it was. `threads` does not change.
    pub fn reload(&mut self, config: impl Into<Arc<Config>>) -> Result<(), StartError> {
        let config = config.into();
        buffers::check(&config)?;
        let (config, held) = congestion::secure(&config, &self.held)?;
        let config = Arc::new(config);
        let fresh = self.bind_new(&config)?;
        let ruled = match (&mut self.rules, Rules::of(&config)) {
            (Some(installed), rules) => installed.change(rules),
            (none, rules) => rules.map(Installed::new).transpose().map(|installed| *none = installed),
        };
        if let Err(error) = ruled {
            self.give_back(fresh);
            return Err(error.into());
        }
        self.held.extend(held);
        // Nothing can fail from here on. The configuration is in force before its listeners accept.
        self.node.generation.fetch_add(1, Ordering::AcqRel);
        *self.node.config.write().unwrap_or_else(PoisonError::into_inner) = config.clone();
        self.node.pool.configure(&config);
        self.node.names.forget();
        self.node.lines.forget();
        self.node.served_by_files.store(served_by_files(&config), Ordering::Relaxed);
        memory::limit(config.limits.memory);
        self.node.reloaded.send_replace(());
        self.switch_to(&config, fresh);
        self.node.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The address a listener is bound to. `None` if there is no listener of that name.
    pub fn address(&self, listener: &str) -> Option<SocketAddr> {
        self.bound.get(listener).map(|bound| bound.address)
    }

    /// Open accepted connections.
    pub fn connections(&self) -> usize {
        self.node.connections.load(Ordering::Relaxed)
    }

    /// Idle connections to a peer that are ready for a stream.
    pub fn idle(&self, peer: &str) -> usize {
        self.node.pool.idle(peer)
    }

    /// Stops accepting and lets idle connections end. [`Relay::busy`] tells how much is still under way.
    pub fn stop_accepting(&mut self) {
        if let Some(rules) = &mut self.rules {
            rules.drain();
        }
        // What was accepted is served to its end: these listeners were not removed.
        for (_, bound) in self.bound.drain() {
            self.closing.push(bound.close(&self.node, None, After::Stop));
        }
        self.node.stopping.send_replace(true);
        self.node.pool.close();
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.node.config()
    }

    /// Streams and requests under way.
    pub fn busy(&self) -> usize {
        self.node.busy.load(Ordering::Relaxed)
    }

    /// Binds what `config` has and this node has not.
    fn bind_new(&mut self, config: &Config) -> Result<HashMap<String, Sockets>, StartError> {
        self.closing.retain(|closing| !closing.is_over());
        let mut fresh = HashMap::new();
        for (name, listener) in &config.listeners {
            let stays = self.bound.iter().any(|(old, bound)| bound.serves(old, name, listener));
            if stays {
                continue;
            }
            // With other TCP settings the old sockets are still there while the new ones are made.
            let ours = self.bound.values().any(|bound| bound.overlaps(listener.address))
                || self.closing.iter().any(|closing| closing.overlaps(listener.address));
            let sockets = Sockets::bind(listener, self.workers.len(), ours);
            let sockets = sockets.map_err(|source| StartError::Listen { name: name.clone(), source })?;
            fresh.insert(name.clone(), sockets);
        }
        Ok(fresh)
    }

    /// Closes new sockets that will not be needed. What has come to them beside old ones is served as by those.
    fn give_back(&mut self, fresh: HashMap<String, Sockets>) {
        for sockets in fresh.into_values() {
            let old = self.bound.values().find(|bound| bound.count_at(sockets.address) > 0);
            if let Some((listener, current)) = old.map(|bound| (bound.listener(), bound.current())) {
                let bound = sockets.accept(&self.node, &self.workers, listener, Some(current));
                self.closing.push(bound.close(&self.node, None, After::Change));
            }
        }
    }

    fn sockets_at(&self, address: SocketAddr) -> usize {
        let bound: usize = self.bound.values().map(|bound| bound.count_at(address)).sum();
        bound + self.closing.iter().map(|closing| closing.count_at(address)).sum::<usize>()
    }

    /// Accepts on what is new, changes what stays and closes what goes.
    fn switch_to(&mut self, config: &Config, mut fresh: HashMap<String, Sockets>) {
        let mut steerings = HashMap::new();
        for sockets in fresh.values() {
            let steering = sockets.steer_here(self.sockets_at(sockets.address));
            steerings.extend(steering.map(|steering| (sockets.address, steering)));
        }
        let mut before: Vec<(String, Bound)> = std::mem::take(&mut self.bound).into_iter().collect();
        for (name, listener) in &config.listeners {
            if let Some(sockets) = fresh.remove(name) {
                let old = before.iter().find(|(_, bound)| bound.count_at(sockets.address) > 0);
                let current = old.map(|(_, bound)| bound.current());
                let bound = sockets.accept(&self.node, &self.workers, listener.clone(), current);
                self.bound.insert(name.clone(), bound);
                continue;
            }
            let Some(at) = before.iter().position(|(old, bound)| bound.serves(old, name, listener)) else { continue };
            let (_, mut bound) = before.swap_remove(at);
            bound.change(listener);
            self.bound.insert(name.clone(), bound);
        }
        for (_, bound) in before {
            let goes_on = self.bound.values().any(|other| other.count_at(bound.address) > 0);
            let after = if goes_on { After::Change } else { After::Removal };
            let steering = steerings.get(&bound.address);
            self.closing.push(bound.close(&self.node, steering, after));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop_accepting();
        // Of a node that did not get as far as serving.
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
        for (stop, thread) in self.threads.drain(..) {
            let _ = stop.send(());
            // A worker that panicked has said so; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

/// How many connections the limit of open files lets a node serve to their ends: each takes two, besides what the node has
/// for itself.
fn served_by_files(config: &Config) -> usize {
    /// Files, and what a thread's event loop takes.
    const REST: usize = 64;
    const THREAD: usize = 4;
    let Ok(files) = socket::open_files() else { return usize::MAX };
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    // A quarter of all descriptors: most streams hold no pipe.
    let pipes = files / 8;
    splice::limit(pipes);
    let kept = REST
        + spare::kept()
        + config.threads * (THREAD + config.listeners.len())
        + config.peers.len() * config.limits.pool;
    let most = (files.saturating_sub(kept + 2 * pipes) / 2).max(1);
    if most < config.limits.connections as usize {
        tracing::info!("{files} open files are enough for {most} connections, fewer than limits.connections");
    }
    most
}

fn work(runtime: Runtime, stopped: oneshot::Receiver<()>) {
    // Either way there is nothing left to wait for.
    let _ = runtime.block_on(stopped);
    runtime.shutdown_background();
}

/// Runs on every worker although one would do: while a nearer timer is pending, tokio need not interrupt its own
/// event loop for each connection's limit, which saves two system calls per connection.
async fn expire_pool(node: Arc<Node>) {
    let mut crowd = Crowd::new();
    loop {
        let age = node.config().limits.pool_idle;
        tokio::time::sleep((age / 4).clamp(Duration::from_millis(100), Duration::from_secs(1))).await;
        node.pool.expire(age);
        node.lines.flush();
        let open = node.connections.load(Ordering::Relaxed);
        crowd.look(open, node.peak_connections.swap(open, Ordering::Relaxed));
    }
}
