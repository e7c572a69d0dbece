//! A node: its worker threads and its listeners.
//!
//! Each worker is a thread with its own single-threaded event loop and its own SO_REUSEPORT socket of every
//! listener, so that a connection lives and dies on one thread without a lock or a wake-up of another. The
//! kernel spreads connections by hash, which is uneven when they are few: see [`accept`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ekiden_bpf::Registration;
use ekiden_net::patience;
use ekiden_net::privileges::keep_only;
use ekiden_net::socket;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::host::rules::{Installed, Rules};
use crate::host::{congestion, privileges};
use crate::shared::{Node, Worker};
pub use error::StartError;
use handover::{Inherited, Offered};
use listening::{Bound, CloseReason, Closing, Sockets};
use status::{Holder, Holders};
use trim::Trimmer;

mod accept;
mod buffers;
mod error;
mod followed;
mod handover;
mod listening;
mod membership;
mod overlay;
pub mod process;
mod sharing;
pub mod status;
mod trim;
mod warm;

/// How many ready tasks a thread runs before it asks the kernel which other connections are ready (tokio's
/// `event_interval`). With tokio's 61, streams that always have data to move leave others next to nothing.
const TURNS: u32 = 8;

/// How often a worker comes back to a task until it has looked at all that had come.
const LOOKS: usize = 4;

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
    held: Vec<Registration>,
    /// What another process has passed to this one, until the listeners are bound.
    inherited: Inherited,
    /// What this one passes to another process.
    offered: Arc<Vec<Offered>>,
    /// The rules that transparent listeners and exits need. They outlast all connections.
    rules: Option<Installed>,
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
        Self::bind_with(config, Inherited::default())
    }

    /// The same, with sockets that another process has passed to this one.
    fn bind_with(config: Config, inherited: Inherited) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let mut relay = Self {
            node: Arc::new(Node::new(config.clone())?),
            workers: Arc::new([]),
            runtimes: Vec::new(),
            threads: Vec::new(),
            bound: HashMap::new(),
            closing: Vec::new(),
            held: Vec::new(),
            inherited,
            offered: Arc::default(),
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
        relay.workers[0].handle.spawn(overlay::keep(relay.node.clone()));
        relay.workers[0].handle.spawn(sharing::keep(relay.node.clone()));
        relay.workers[0].handle.spawn(sharing::keep_bandwidth(relay.node.clone()));
        relay.workers[0].handle.spawn(followed::keep(relay.node.clone()));
        Ok(relay)
    }

    /// The second part: accepts, on threads of its own.
    pub fn serve(&mut self) -> Result<(), StartError> {
        for (i, runtime) in self.runtimes.drain(..).enumerate() {
            let (stop, stopped) = oneshot::channel();
            let thread = std::thread::Builder::new().name(format!("relay-{i}"));
            self.threads.push((stop, thread.spawn(move || work(runtime, stopped))?));
        }
        std::mem::take(&mut self.inherited).confirm();
        Ok(())
    }

    /// Gives up for good what a node with this configuration gives up once it listens, so that [`Relay::check`], and reading
    /// the configuration again, find what the running node would.
    ///
    /// # Errors
    /// [`StartError::Privileges`].
    pub fn keep_what_it_needs(config: &Config) -> Result<(), StartError> {
        keep_only(&privileges::needed(config)).map_err(StartError::Privileges)
    }

    /// Whether the congestion controls, buffers, files, interfaces and settings that `config` needs are there; ekiden's own controls,
    /// which are brought into the kernel at the start, are not tried.
    ///
    /// # Errors
    /// [`StartError::Congestion`], [`StartError::Buffer`], [`StartError::Rules`] and [`StartError::Registry`].
    pub fn check(config: &Config) -> Result<(), StartError> {
        congestion::check(config)?;
        buffers::check(config)?;
        Rules::of(config).map_or(Ok(()), |rules| rules.check())?;
        Ok(membership::check(config)?)
    }

    /// The listeners whose address a node could not have now, each as a sentence. What a node of the same name has that runs here is none of
    /// these: this one may be to replace it.
    pub fn missing_addresses(config: &Config) -> Vec<String> {
        let refused = config.listeners.iter().filter_map(|(name, listener)| {
            let refused = socket::ensure_free(listener.address, listener.only_v6).err()?;
            Some((name, listener.address, refused))
        });
        let refused: Vec<_> = refused.collect();
        let holders = if refused.is_empty() { Holders::default() } else { Holders::ask() };
        let told = refused.iter().filter_map(|(name, address, error)| {
            let holder = holders.of(*address).filter(|_| error.is_in_use());
            let whose = match holder {
                Some(holder) if holder.node == config.name => return None,
                Some(Holder { node, pid, .. }) => format!(" (node {node}, process {pid}, has it)"),
                None => String::new(),
            };
            Some(match error.may_pass() {
                true => {
                    let longest = patience::LONGEST;
                    format!("[listen.{name}]: a node would wait {longest:?} for its address{whose}, and end: {error}")
                }
                false => format!(
                    "[listen.{name}]: a node of this user would end, unless it is given capabilities, as by the packaged unit: {error}"
                ),
            })
        });
        told.collect()
    }

    /// Takes a new configuration: listeners, peers, routes, users and limits. Running streams go on. If a new
    /// listener cannot be bound, or a congestion control is not available, everything stays as it was. `threads` does not change.
    pub fn reload(&mut self, config: impl Into<Arc<Config>>) -> Result<(), StartError> {
        let config = config.into();
        buffers::check(&config)?;
        let (config, held) = congestion::register_or_fall_back(&config, &self.held)?;
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
        self.node.clone().change(&config, || self.switch_to(&config, fresh));
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

    /// Lets the process that comes after this one have the listeners' sockets, while this one closes them.
    fn pass_on(&mut self) {
        self.offered = Arc::new(self.bound.values_mut().map(Bound::offer).collect());
        handover::offer(self.offered.clone());
    }

    /// Whether another process is about to take sockets of this one, or waits until they are closed.
    fn is_awaited(&self) -> bool {
        self.offered.iter().any(Offered::is_awaited)
    }

    /// Whether another process may still have sockets of this one: for so long after `begun`, or after it had them and gave them back.
    fn may_be_had(&self, begun: Instant, most: Duration) -> bool {
        self.offered.iter().any(|offered| offered.may_be_had(begun, most))
    }

    /// Completes when each worker has looked at what has come to its connections until now.
    async fn look_around(&self) {
        let looking = self.workers.iter().map(|worker| {
            worker.handle.spawn(async {
                for _ in 0..LOOKS {
                    tokio::task::yield_now().await;
                }
            })
        });
        for look in looking.collect::<Vec<_>>() {
            // It can only fail where the worker has ended.
            let _ = look.await;
        }
    }

    /// Stops accepting and lets idle connections end. [`Relay::busy`] tells how much is still under way.
    pub fn stop_accepting(&mut self) {
        if let Some(rules) = &mut self.rules {
            rules.drain();
        }
        // What was accepted is served to its end: these listeners were not removed.
        for (_, bound) in self.bound.drain() {
            self.closing.push(bound.close(&self.node, None, CloseReason::Stopping));
        }
        self.node.stop();
    }

    /// Worker threads.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.node.config()
    }

    /// Streams and requests under way.
    pub fn busy(&self) -> usize {
        self.node.busy()
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
            let sockets = match self.inherited.remove(listener.address) {
                Some(sockets) => Sockets::take_over(listener, self.workers.len(), sockets),
                None => Sockets::bind(listener, self.workers.len(), ours),
            };
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
                self.closing.push(bound.close(&self.node, None, CloseReason::Replaced));
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
            let reason = if goes_on { CloseReason::Replaced } else { CloseReason::Removed };
            let steering = steerings.get(&bound.address);
            self.closing.push(bound.close(&self.node, steering, reason));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop_accepting();
        // The event loops of a node that was never started.
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
        for (stop, thread) in self.threads.drain(..) {
            let _ = stop.send(());
            // A worker that panicked has printed its message already.
            let _ = thread.join();
        }
    }
}

fn work(runtime: Runtime, stopped: oneshot::Receiver<()>) {
    // In either case nothing is left to wait for.
    let _ = runtime.block_on(stopped);
    runtime.shutdown_background();
}

/// Runs on every worker although one would do: while a nearer timer is pending, tokio need not interrupt its own
/// event loop for each connection's limit, which saves two system calls per connection.
async fn expire_pool(node: Arc<Node>) {
    let mut trimmer = Trimmer::new();
    loop {
        let age = node.config().limits.pool_idle;
        tokio::time::sleep((age / 4).clamp(Duration::from_millis(100), Duration::from_secs(1))).await;
        node.pool.expire(age);
        node.lines.flush();
        let open = node.connections.load(Ordering::Relaxed);
        trimmer.observe(open, node.peak_connections.swap(open, Ordering::Relaxed));
    }
}
