//! What this node's own connections show of its legs, and which paths its streams take. The deciding is crate `ekiden_overlay`'s.

mod arrivals;
mod asked;
mod asking;
mod entries;
mod exits;
mod seen;
mod sharing;
mod status;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_keys::random_secret;
use ekiden_net::socket::limit_rate;
use ekiden_net::tcp_info::{tcp_info, tcp_info_with_memory};
use ekiden_net::watched::{Watched, WatchedSockets};
use ekiden_overlay::choice::Why;
pub use ekiden_overlay::judged::Taken;
use ekiden_overlay::known::Known;
use ekiden_overlay::leg::Look;
use ekiden_overlay::load::Load;
use ekiden_overlay::order::Order;
use ekiden_overlay::path::{Class, Wanted};
pub use ekiden_overlay::places::Questions;
use ekiden_overlay::places::{Placed, Places, WANTED_MOST};
pub use ekiden_overlay::receipt::StreamId;
use ekiden_overlay::shown::Sum;
use ekiden_overlay::told::{Told, ToldError};
use ekiden_registry::Observer;
use ekiden_relay_proto::leg::MAX_ASKED;
use ekiden_units::Time;
use tokio::sync::Notify;

use crate::config::Config;
use crate::config::overlay::Overlay as Settings;
use crate::config::route::Auto;
pub use arrivals::{Arrival, Came};
use asking::Asking;
pub use entries::Doubts;
use entries::Entries;
use exits::Exits;
pub use exits::by_its_word;
use seen::LegSeen;
pub use sharing::ShareStatus;
use sharing::Shares;
pub use status::{
    CandidateStatus, ChangeStatus, ExitStatus, LastStatus, LegStatus, NodeStatus, OverlayStatus, RegistryStatus,
    RouteStatus, TakenStatus, ask, socket_name,
};

/// What a node knows of the overlay, and has chosen.
#[derive(Debug)]
pub struct Overlay {
    started: Instant,
    /// Whether all that connections to other nodes show is watched: this node is of an overlay, or has service classes. Otherwise only
    /// whether they stall.
    watches: AtomicBool,
    /// Whether paths are chosen: this node is of an overlay.
    chooses: AtomicBool,
    watched: WatchedSockets<LegSeen>,
    entries: Entries,
    exits: Exits,
    state: Mutex<State>,
    shares: Mutex<Shares>,
    /// Notified when a leg begins to be shared.
    shared: Notify,
    /// How the registration in etcd is, if there is one.
    registry: Mutex<Option<Observer>>,
    /// When questions of other nodes are answered.
    asking: Asking,
    asking_receipts: Asking,
}

/// One question has room for all that it may ask for.
const _: () = assert!(WANTED_MOST <= MAX_ASKED);

#[derive(Debug)]
struct State {
    known: Known,
    places: Places<(Auto, Class)>,
    load: Load,
    /// In which order exits are tried.
    order: Order,
}

/// A leg's connection while a stream runs on it.
#[derive(Debug)]
pub struct LegWatch<'a> {
    overlay: &'a Overlay,
    socket: BorrowedFd<'a>,
    watched: Option<Watched<'a, LegSeen>>,
}

/// Whose a connection from another node is: the fingerprint of its key. Nodes that share a key are one.
pub type Owner = Arc<str>;

/// A leg that a stream runs on.
#[derive(Debug, Clone)]
pub struct OnLeg {
    /// The node at the other end.
    pub peer: Arc<str>,
    /// The path that was chosen for the stream here, if one was.
    pub taken: Option<Arc<Taken>>,
    /// The stream's service class; `None`: none is asked for.
    pub class: Option<Arc<str>>,
    /// Whose connection it is, where the other node has made it.
    pub owner: Option<Owner>,
}

/// A connection to another node that stands still.
#[derive(Debug)]
pub enum Still {
    /// What was sent is not acknowledged. Holds the node it was sent to, the connection's owner if that node has made the
    /// connection, and the payload bytes of a full segment.
    Stalled(Arc<str>, Option<Owner>, u32),
    /// This node has made the connection, and nothing comes from the peer.
    Waits(Arc<str>),
}

/// What the overlay has to do with a stream.
#[derive(Debug)]
pub struct Sides<'a> {
    /// The legs that its two sides are on.
    pub on: [Option<OnLeg>; 2],
    /// The end of it that is here, if it passes other nodes.
    pub arrival: Option<Arrival<'a>>,
}

/// Boxed: most nodes are of no overlay.
pub type OnLegs<'a> = Option<Box<Sides<'a>>>;

impl Default for Overlay {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            watches: AtomicBool::new(false),
            chooses: AtomicBool::new(false),
            watched: WatchedSockets::default(),
            entries: Entries::default(),
            exits: Exits::default(),
            state: Mutex::new(State::of_node("")),
            shares: Mutex::default(),
            shared: Notify::new(),
            registry: Mutex::default(),
            asking: Asking::default(),
            asking_receipts: Asking::default(),
        }
    }
}

impl Overlay {
    /// Takes a new configuration: what is known of nodes that are no peers any more is forgotten.
    pub fn configure(&self, config: &Config) {
        self.chooses.store(config.overlay.is_some(), Ordering::Relaxed);
        self.watches.store(config.overlay.is_some() || config.classes.is_configured, Ordering::Relaxed);
        let now = self.now();
        if self.shares().configure(&config.classes, &self.watched, now) {
            self.shared.notify_one();
        }
        let mut state = self.lock();
        if state.known.name() != config.name {
            *state = State::of_node(&config.name);
        }
        state.known.retain(|name| config.peers.contains_key(name));
        state.places.retain(|exit| config.peers.contains_key(exit));
        state.order.retain(|exit| config.peers.contains_key(exit));
    }

    /// Whether all that connections to other nodes show is watched.
    pub fn watches(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }

    /// Watches a connection to another node while a stream runs on it.
    pub fn watch<'a>(&'a self, socket: &'a impl AsFd, leg: &OnLeg) -> LegWatch<'a> {
        let now = self.now();
        let watches = self.watches();
        let info = watches.then(|| tcp_info_with_memory(socket).ok()).flatten();
        let mut shares = self.shares();
        let class = shares.place(leg);
        if watches && shares.begins(&leg.peer, class, now) {
            self.shared.notify_one();
        }
        // Under the same lock: new classes find it.
        let watched = self.watched.watch(socket, LegSeen::new(leg.clone(), class, now, info));
        LegWatch { overlay: self, socket: socket.as_fd(), watched: Some(watched) }
    }

    /// Looks at the legs that streams of several classes share. Returns when to look again; `None` if there is no such leg.
    pub fn share(&self) -> Option<Duration> {
        let now = self.now();
        self.shares().look(&self.watched, now)
    }

    /// Completes when a leg begins to be shared.
    pub async fn is_shared(&self) {
        self.shared.notified().await;
    }

    /// Looks at all connections that carry streams. To be called every second. Nothing is kept of nodes that are not peers:
    /// they may have any name. `load` is the part of its relaying capacity that this node uses now, 0 to 1.
    pub fn look(&self, config: &Config, load: f64) {
        let now = self.now();
        let mut legs: BTreeMap<Arc<str>, Sum> = BTreeMap::new();
        let (mut carried, mut judged) = (Vec::new(), Vec::new());
        self.watched.look(|seen, info| {
            let Ok(info) = info else { return };
            let Some(look) = seen.look(now, &info) else { return };
            if let Some(taken) = &seen.leg.taken {
                carried.push((taken.clone(), look.acked_bytes, look.received_bytes));
            }
            judged.extend(seen.says(false, now));
            legs.entry(seen.leg.peer.clone()).or_default().add(&look.shown);
        });
        let State { known, places, load: mean, .. } = &mut *self.lock();
        mean.see(load, now);
        for (taken, up, down) in carried {
            places.carried(&taken.exit, up, down);
        }
        for (taken, part) in judged {
            known.judge(taken.path.relays(), part, now);
        }
        for (peer, sum) in legs.into_iter().filter(|(peer, _)| config.peers.contains_key(&**peer)) {
            match sum.is_stalled() {
                true => fail(known, &peer, now, "acknowledges nothing"),
                false => known.see(&peer, &sum.look(), now),
            }
        }
    }

    /// The connections that stand still since this was last asked. To be called every second.
    pub fn still(&self) -> Vec<Still> {
        let (mut still, now) = (Vec::new(), self.now());
        self.watched.each(|_, seen, socket| {
            let Ok(info) = tcp_info(&socket) else { return };
            let OnLeg { peer, owner, .. } = seen.leg.clone();
            if seen.begins_to_stall(&info) {
                still.push(Still::Stalled(peer, owner, info.mss_bytes));
            } else if seen.begins_to_wait(&info, now) && owner.is_none() {
                still.push(Still::Waits(peer));
            }
        });
        still
    }

    /// A connection to a node failed, or nothing comes on it.
    pub fn leg_failed(&self, peer: &str) {
        if !self.chooses.load(Ordering::Relaxed) {
            return;
        }
        let now = self.now();
        fail(&mut self.lock().known, peer, now, "cannot be connected to, or says nothing");
    }

    /// Whether the leg to a node has failed, and no other node is known to reach it.
    pub fn is_cut_off(&self, node: &str) -> bool {
        self.lock().known.is_cut_off(node, self.now())
    }

    /// Whether the leg to a node has failed a short while ago.
    pub fn has_failed(&self, peer: &str) -> bool {
        self.lock().known.is_shunned(peer, self.now())
    }

    /// A stream on this path could not be opened, because of a node of it.
    pub fn path_failed(&self, taken: &Taken) {
        self.lock().places.failed(&taken.path, self.now());
    }

    /// No path has led to a node that is near a stream's destination.
    pub fn exit_lost(&self, exit: &str) {
        let now = self.now();
        self.lock().order.lost(exit, now);
    }

    /// An exit has said nothing of a stream, and another one has opened it meanwhile.
    pub fn exit_silent(&self, exit: &str, destination: &str) {
        let now = self.now();
        self.lock().order.silent(exit, destination, now);
    }

    /// An exit that others can stand in for has opened a stream.
    pub fn exit_opened(&self, exit: &str, destination: &str) {
        self.lock().order.opened(exit, destination);
    }

    /// Puts nodes that have led nowhere behind the others that may stand in for them.
    pub fn sort_exits(&self, exits: &mut [&str], destination: &str) {
        let now = self.now();
        self.lock().order.sort(exits, destination, now);
    }

    /// Whether a leg of this path is known to fail now.
    pub fn fails_on(&self, taken: &Taken) -> bool {
        let now = self.now();
        self.lock().known.fails_on(&taken.path.0, now)
    }

    /// Whether one of the nodes in between has not been seen to deliver yet.
    pub fn is_on_trial(&self, taken: &Taken) -> bool {
        self.lock().places.is_on_trial(&taken.path)
    }

    /// Whether a new stream may go on this path: it is known to deliver, or no other stream tries it now.
    pub fn is_free(&self, taken: &Taken) -> bool {
        self.lock().places.is_free(&taken.path, self.now())
    }

    /// Since when other streams have been trying this path, if it has not been seen to deliver yet.
    pub fn tried_since(&self, taken: &Taken) -> Option<Time> {
        self.lock().places.tried_since(&taken.path)
    }

    /// A stream tries this path.
    pub fn tries(&self, taken: &Taken) {
        self.lock().places.tries(&taken.path, self.now());
    }

    /// The round trip to a node, as a question has shown it.
    pub fn answered(&self, peer: &str, rtt: Duration) {
        let now = self.now();
        let look = Look { span_s: 1.0, rtt_s: Some(rtt.as_secs_f64()), ..Look::default() };
        let mut state = self.lock();
        state.known.see(peer, &look, now);
        state.order.found(peer);
    }

    /// Takes what another node tells.
    ///
    /// # Errors
    /// If it cannot be read or cannot be.
    pub fn hear(&self, config: &Config, peer: &str, told: &[u8]) -> Result<(), ToldError> {
        let mut told = Told::read(told, peer)?;
        told.legs.retain(|to, _| *to == config.name || config.peers.contains_key(to));
        let now = self.now();
        self.lock().known.hear(told, now);
        Ok(())
    }

    /// How long a question of this node waits for its answer.
    pub fn wait_to_answer(&self, asker: &Owner) -> Duration {
        self.asking.wait(asker, Instant::now())
    }

    /// The same for a question about streams, which holds up none about legs.
    pub fn wait_to_tell_receipts(&self, asker: &Owner) -> Duration {
        self.asking_receipts.wait(asker, Instant::now())
    }

    /// What this node tells another: of its legs those to that node, and to those to which that one wants paths.
    pub fn tell(&self, asker: &str, wanted: &[String]) -> Vec<u8> {
        let now = self.now();
        let state = self.lock();
        let told = state.known.answer(asker, wanted, state.load.mean(), now);
        // Numbers and names alone cannot fail to be written.
        serde_json::to_vec(&told).unwrap_or_default()
    }

    /// The paths to try for a new stream to a node, the chosen one first, and whether that one is this stream's to try. There is always one.
    pub fn paths(&self, settings: &Settings, auto: &Auto, class: Class, exit: &str) -> (Vec<Arc<Taken>>, bool) {
        let now = self.now();
        let (relays, prices) = (settings.relays(auto), settings.prices());
        let required: Vec<&str> = auto.required(exit).collect();
        let placed = {
            let State { known, places, .. } = &mut *self.lock();
            let wanted = Wanted {
                exit,
                relays: &relays,
                required: &required,
                relays_most: auto.most_relays,
                size: None,
                class,
                direction: places.direction(exit),
                current: None,
                prices: (!prices.is_empty()).then_some(&prices),
            };
            places.place(known, &(auto.clone(), class), &wanted, now)
        };
        let Placed { paths, is_own, why, .. } = placed;
        let path = &paths[0].path;
        match why {
            None | Some(Why::Kept) => {}
            Some(Why::Tried) => tracing::debug!("a stream to node {exit} tries {path}"),
            Some(why) => tracing::info!("streams to node {exit} go over {path}: {}", why.because()),
        }
        (paths.into_iter().map(Arc::new).collect(), is_own)
    }

    /// The nodes to ask now, and the nodes to which paths are wanted.
    pub fn questions(&self) -> Questions {
        let now = self.now();
        let State { known, places, .. } = &mut *self.lock();
        places.questions(known, now)
    }

    /// Another node wants paths to these nodes.
    pub fn asked(&self, config: &Config, wanted: &[String]) {
        let now = self.now();
        let is_other = |name: &&String| config.peers.contains_key(*name);
        self.lock().places.asked_for(wanted.iter().filter(is_other), now);
    }

    /// How long to wait for an acknowledgement of a node before another path is better: by its round trip, as far as that is known.
    pub fn silence(&self, peer: &str) -> Duration {
        let now = self.now();
        let state = self.lock();
        let rtt = state.known.leg(state.known.name(), peer, now).map_or(Time::ms(250), |leg| leg.rtt);
        SILENCE + Duration::from(rtt) * 4
    }

    /// Takes what tells how the registration in etcd is.
    pub fn observe(&self, registry: Option<Observer>) {
        *self.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
    }

    /// What this node knows and has chosen.
    pub fn status(&self, config: &Config) -> OverlayStatus {
        let now = self.now();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Observer::status);
        let state = self.lock();
        let status = status::of(&state, config, now);
        drop(state);
        let shares = sharing::status(&self.watched, &config.classes);
        OverlayStatus { registry: registry.map(Into::into), shares, ..status }
    }

    /// Answers the entries of streams that leave the overlay here.
    ///
    /// # Errors
    /// If the question cannot be read.
    pub fn tell_receipts(&self, question: &[u8]) -> Result<Vec<u8>, String> {
        self.exits.answer(question, self.now())
    }

    /// Answers another program of this host, a line with one.
    pub fn answer(&self, config: &Config, question: &[u8]) -> Vec<u8> {
        let now = self.now();
        let State { known, places, .. } = &*self.lock();
        asked::answer(question, config, known, places.iter(), now)
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets streams that left the overlay here and ended long ago.
    pub fn forget_exits(&self) {
        self.exits.forget(self.now());
    }

    fn now(&self) -> Time {
        self.started.elapsed().into()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Added to a few round trips. Within it two retransmissions of one segment can be acknowledged.
const SILENCE: Duration = Duration::from_secs(1);

/// Notes that a leg has failed. `why` is said of the node at its end, in the log, unless the leg had failed already.
fn fail(known: &mut Known, peer: &str, now: Time, why: &str) {
    if !known.is_shunned(peer, now) {
        tracing::info!("the leg to node {peer} has failed, streams whose path is chosen avoid it for now: it {why}");
    }
    known.fail(peer, now);
}

impl State {
    fn of_node(name: &str) -> Self {
        // Without the kernel's chance nodes would draw alike, no more.
        let seed = random_secret()
            .map_or(1, |bytes| bytes.iter().fold(1, |seed: u64, byte| seed.rotate_left(8) ^ u64::from(*byte)));
        Self { known: Known::of_node(name), places: Places::new(seed), load: Load::default(), order: Order::default() }
    }
}

impl Drop for LegWatch<'_> {
    fn drop(&mut self) {
        let now = self.overlay.now();
        let mut shares = self.overlay.shares();
        let Some(mut seen) = self.watched.take().and_then(Watched::end) else { return };
        shares.ends(&seen.leg.peer, seen.class, now);
        drop(shares);
        if seen.limit.is_some() {
            // The next stream on it may be of another class.
            let _ = limit_rate(&self.socket, u64::MAX);
        }
        if let Some((taken, part)) = seen.says(true, now) {
            self.overlay.lock().known.judge(taken.path.relays(), part, now);
        }
    }
}
