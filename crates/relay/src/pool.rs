//! Warm connections to peers: authenticated, idle, ready for the next stream.
//!
//! All threads share one pool: whether a client finds a warm connection must not depend on the thread that serves it. Idle
//! connections belong to no event loop. The pool checks that a connection is alive when a stream takes it, and once a
//! second, so that no client gets one that has ended or whose line is cut.
//!
//! `limits.pool` bounds how many idle connections each peer has. The one that was used last is taken first. This module also
//! decides when connections are made ahead of streams, and for how long none is made after a failure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::socket::KeepaliveTimeouts;
use ekiden_relay_proto::Failure;
use ekiden_transport::segments::Segments;
use ekiden_transport::{Connection, Resting};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::config::{Config, Peer};

mod dial_limiter;

use dial_limiter::DialLimiter;
pub use dial_limiter::DialPermit;

/// A connection that has been idle for this long gets the shorter keepalive. One that is taken sooner needs no system calls.
const SHORT_REST: Duration = Duration::from_secs(1);

/// A connection made ahead that ends sooner than this counts as refused by the other node.
const PROBATION: Duration = Duration::from_secs(3);

/// How long no connection is made ahead after a failure. Each further failure doubles it, up to `PAUSE_MOST`.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(30);

/// The warm connections of a node.
#[derive(Debug, Default)]
pub struct Pool {
    peers: Mutex<HashMap<String, Warm>>,
    /// Notified when fewer connections are idle than should be.
    wanted: Notify,
}

/// The idle connections to one peer.
#[derive(Debug)]
struct Warm {
    /// Its name and settings, which each stream over it shares: they count the streams.
    named: Arc<(String, Peer)>,
    /// In the order of last use. They are taken from the end: the last used usually has the largest congestion window.
    idle: Vec<Idle>,
    most: usize,
    /// Connections that are being made ahead.
    coming: usize,
    trouble: Option<Trouble>,
    /// Limits dialling for streams that found no idle connection.
    limiter: Arc<DialLimiter>,
    /// How long the segments to it may be.
    segments: Segments,
}

#[derive(Debug)]
struct Idle {
    connection: Resting,
    since: Instant,
    /// Whether it has carried a stream.
    is_proven: bool,
    /// The keepalive timeouts that its socket had before they were shortened.
    usual: Option<KeepaliveTimeouts>,
}

/// What there is between this node and one that it connects to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Its leg listener.
    pub address: String,
    /// Streams over connections to it, HTTP connections that wait for a next request among them.
    pub streams: u64,
    /// Connections that wait for a stream.
    pub idle: u64,
    /// Whether the connections that are made ahead of streams fail.
    pub is_failing: bool,
    /// Its build, if it has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Connections to a peer that are made ahead fail.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    /// When the last one failed.
    since: Instant,
    pause: Duration,
}

impl Pool {
    /// A pool for the peers of `config`. Connections to peers that have not changed stay.
    pub fn configure(&self, config: &Config) {
        let mut peers = self.lock();
        let mut before = std::mem::take(&mut *peers);
        for (name, peer) in &config.peers {
            let kept = before.remove(name).filter(|warm| warm.named.1 == *peer);
            let mut warm = kept.unwrap_or_else(|| Warm::new(name, peer));
            warm.most = config.limits.pool as usize;
            peers.insert(name.clone(), warm);
        }
        self.wanted.notify_one();
    }

    /// Closes all connections, and keeps none from now on.
    pub fn close(&self) {
        for warm in self.lock().values_mut() {
            warm.most = 0;
            warm.idle.clear();
        }
    }

    /// The connection to `peer` that was used last, if one is alive. Otherwise waits, first come, first served, for a
    /// connection that comes back or a permit to dial one.
    pub async fn get(&self, name: &str, peer: &Peer) -> Result<Resting, Option<DialPermit>> {
        // Under one lock: no connection comes back unnoticed between the look and the wait.
        let waiting = {
            let mut peers = self.lock();
            // The peer is missing if the configuration has changed meanwhile.
            let warm = peers.get_mut(name).filter(|warm| warm.named.1 == *peer).ok_or(None)?;
            if !warm.limiter.is_waited_for()
                && let Some(connection) = self.take_from(warm)
            {
                return Ok(connection);
            }
            warm.limiter.begin()
        };
        waiting.end(|| self.take(name, peer)).await.map_err(Some)
    }

    fn take(&self, name: &str, peer: &Peer) -> Option<Resting> {
        let mut peers = self.lock();
        self.take_from(peers.get_mut(name).filter(|warm| warm.named.1 == *peer)?)
    }

    /// The connection that was used last, if one is alive.
    fn take_from(&self, warm: &mut Warm) -> Option<Resting> {
        let limit = warm.segments.limit();
        let segments = &warm.segments;
        let found = std::iter::from_fn(|| warm.idle.pop()).filter(|idle| idle.fits(limit)).find_map(|idle| {
            let woken = idle.wake();
            if woken.is_none() {
                segments.doubt();
            }
            woken
        });
        if warm.idle.len() + warm.coming < warm.named.1.warm {
            self.wanted.notify_one();
        }
        found
    }

    /// Keeps a connection that carries no stream: its last one was delivered, or failed before it was open.
    pub fn put(&self, name: &str, peer: &Peer, connection: Connection) {
        let Some(connection) = connection.rest() else { return };
        let mut peers = self.lock();
        let Some(warm) = peers.get_mut(name).filter(|warm| warm.named.1 == *peer) else { return };
        warm.idle.push(Idle::new(connection, true));
        // A used connection replaces the unused one that was made in its place: its congestion window is larger.
        if warm.idle.len() > warm.most {
            warm.idle.remove(0);
        }
        warm.limiter.returned();
    }

    /// The peer of this name, for a stream over a connection to it.
    pub fn named(&self, name: &str) -> Option<Arc<(String, Peer)>> {
        self.lock().get(name).map(|warm| warm.named.clone())
    }

    /// What there is to each peer, in the order of their names. `build` knows their builds, `is_failing` whom streams have not reached.
    pub fn status(&self, build: impl Fn(&str) -> Option<String>, is_failing: impl Fn(&str) -> bool) -> Vec<PeerStatus> {
        let status = |(name, warm): (&String, &Warm)| PeerStatus {
            build: build(name),
            name: name.clone(),
            address: warm.named.1.address.to_string(),
            streams: Arc::strong_count(&warm.named).saturating_sub(1) as u64,
            idle: warm.idle.len() as u64,
            is_failing: warm.trouble.is_some() || is_failing(name),
        };
        let mut all: Vec<_> = self.lock().iter().map(status).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// How many connections to `peer` are kept.
    pub fn idle(&self, name: &str) -> usize {
        self.lock().get(name).map_or(0, |warm| warm.idle.len())
    }

    /// How many connections are kept to all peers, those that are being made among them.
    pub fn idle_of_all(&self) -> usize {
        self.lock().values().map(|warm| warm.idle.len() + warm.coming).sum()
    }

    /// What is known of the length of segments to `peer`.
    pub fn segments(&self, name: &str) -> Segments {
        self.lock().get(name).map(|warm| warm.segments.clone()).unwrap_or_default()
    }

    /// Closes all connections to `peer`. Called when one of them was found dead: the cause has probably killed the others too.
    pub fn forget(&self, name: &str) {
        if let Some(warm) = self.lock().get_mut(name) {
            warm.idle.clear();
            warm.segments.forget();
            self.wanted.notify_one();
        }
    }

    /// A connection to `peer` whose full segments have `segment_bytes` of payload has stalled. If the path is not yet known
    /// to drop such segments, the idle connections are closed, and the next dialled connection has to prove that they pass.
    pub fn stalled(&self, name: &str, segment_bytes: u32) {
        if let Some(warm) = self.lock().get_mut(name)
            && warm.segments.limit().is_none_or(|limit| segment_bytes <= limit.into())
        {
            warm.idle.clear();
            warm.segments.forget();
            self.wanted.notify_one();
        }
    }

    /// Closes connections that were not used for `age`, but keeps at least `warm` of the peer.
    pub fn expire(&self, age: Duration) {
        for warm in self.lock().values_mut() {
            let mut surplus = warm.idle.len().saturating_sub(warm.named.1.warm);
            warm.idle.retain(|idle| {
                let goes = surplus > 0 && idle.since.elapsed() >= age;
                surplus -= usize::from(goes);
                !goes
            });
        }
    }

    /// Drops dead connections, and gives idle ones the shorter keepalive. To be called every second.
    pub fn look(&self) {
        for (name, warm) in self.lock().iter_mut() {
            warm.look(name);
        }
    }

    /// The peers to connect to now, one entry for each connection. [`Pool::made`] must follow for each.
    pub fn missing(&self) -> Vec<(String, Peer)> {
        let mut missing = Vec::new();
        for (name, warm) in self.lock().iter_mut() {
            for _ in 0..warm.missing() {
                warm.coming += 1;
                missing.push((name.clone(), warm.named.1.clone()));
            }
        }
        missing
    }

    /// Completes when [`Pool::missing`] may have changed.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Reports the outcome of a connection that was [`Pool::missing`].
    pub fn made(&self, name: &str, peer: &Peer, made: Result<Connection, Failure>) {
        let mut peers = self.lock();
        let Some(warm) = peers.get_mut(name).filter(|warm| warm.named.1 == *peer) else { return };
        warm.coming = warm.coming.saturating_sub(1);
        match made {
            // Taken after used connections: its congestion window is the initial one.
            Ok(connection) => {
                if let Some(connection) = connection.rest().filter(|_| warm.idle.len() < warm.most) {
                    warm.idle.insert(0, Idle::new(connection, false));
                    warm.limiter.returned();
                }
            }
            Err(failure) => warm.fails(name, &failure),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Warm>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Warm {
    fn new(name: &str, peer: &Peer) -> Self {
        let (limiter, segments) = (DialLimiter::new(), Segments::default());
        Self {
            named: Arc::new((name.into(), peer.clone())),
            idle: Vec::new(),
            most: 0,
            coming: 0,
            trouble: None,
            limiter,
            segments,
        }
    }

    /// How many connections to make now: one at a time while they fail.
    fn missing(&self) -> usize {
        let missing = self.named.1.warm.saturating_sub(self.idle.len() + self.coming);
        match &self.trouble {
            Some(trouble) if self.coming > 0 || trouble.since.elapsed() < trouble.pause => 0,
            Some(_) => missing.min(1),
            None => missing,
        }
    }

    fn look(&mut self, name: &str) {
        let (mut dies_early, mut lasts) = (false, false);
        let (segments, limit) = (&self.segments, self.segments.limit());
        self.idle.retain_mut(|idle| {
            let age = idle.since.elapsed();
            if !idle.connection.is_quiet() {
                segments.doubt();
                dies_early |= !idle.is_proven && age < PROBATION;
                return false;
            }
            if !idle.fits(limit) {
                return false;
            }
            if age > SHORT_REST && idle.usual.is_none() {
                idle.usual = idle.connection.watch_closely();
            }
            lasts |= age >= PROBATION && self.trouble.is_some_and(|trouble| trouble.since < idle.since);
            true
        });
        if dies_early {
            self.fails(name, &"the other node closes them");
        } else if lasts {
            self.trouble = None;
            tracing::info!("connections to node {name} are made ahead again");
        }
    }

    fn fails(&mut self, name: &str, why: &dyn std::fmt::Display) {
        if self.trouble.is_none() {
            tracing::warn!("no connections to node {name} can be made ahead, will keep trying: {why}");
        }
        let pause = self.trouble.map_or(PAUSE, |trouble| (trouble.pause * 2).min(PAUSE_MOST));
        self.trouble = Some(Trouble { since: Instant::now(), pause });
    }
}

impl Idle {
    fn new(connection: Resting, is_proven: bool) -> Self {
        Self { connection, since: Instant::now(), is_proven, usual: None }
    }

    /// Whether the path carries its full segments.
    fn fits(&self, limit: Option<u16>) -> bool {
        limit.is_none_or(|limit| self.connection.segment_bytes().is_some_and(|bytes| bytes <= limit.into()))
    }

    /// The connection, if it is alive.
    fn wake(self) -> Option<Resting> {
        let is_alive = self.connection.is_quiet();
        if let Some(usual) = &self.usual {
            self.connection.restore(usual);
        }
        is_alive.then_some(self.connection)
    }
}
