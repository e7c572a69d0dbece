//! Accepting: within the limits, and evenly over the workers.
//!
//! The kernel's hash may give one worker most of a few long streams. A worker that is ahead of another hands
//! the connection over. That wakes another thread, which costs more than it brings where connections come and
//! go within a moment: while they do, a worker must be far ahead.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream as StdStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ekiden_net::socket::Listening;

use crate::config::{Listener, ListenerKind};
use crate::node::{Load, Node, Worker};
use crate::quota::{ClientKey, Place, Refused};
use crate::serve;

/// How long a worker does not accept after the process ran out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections accepted before others of the thread get their turn.
const TURN: usize = 32;

/// A connection that ends sooner was short.
const SHORT: Duration = Duration::from_millis(100);

/// How long after the end of a short connection more of them are expected.
const MEMORY: Duration = Duration::from_millis(100);

/// Counts an accepted connection until it is dropped.
pub struct Permit {
    node: Arc<Node>,
    load: Arc<Load>,
    since: Instant,
    /// Among the connections of its client, if those are counted.
    place: Option<Place<ClientKey>>,
}

impl Permit {
    fn new(node: &Arc<Node>, worker: &Worker) -> Self {
        node.connections.fetch_add(1, Ordering::Relaxed);
        worker.load.open.fetch_add(1, Ordering::Relaxed);
        Self { node: node.clone(), load: worker.load.clone(), since: Instant::now(), place: None }
    }

    /// Counts it as one of the client at `address`. Whether that may have one more; if not, it is to be reset.
    pub fn count_for(&mut self, address: IpAddr) -> bool {
        self.place = place(&self.node, address);
        self.place.is_some()
    }

    /// The node that accepted.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.load.open.fetch_sub(1, Ordering::Relaxed);
        let now = Instant::now();
        if now - self.since < SHORT {
            let until = (now - self.node.started + MEMORY).as_millis() as u64;
            self.load.short_until.store(until, Ordering::Relaxed);
        }
        self.node.connections.fetch_sub(1, Ordering::Relaxed);
        self.node.closed.notify_one();
    }
}

/// Accepts on one worker's socket for ever. `current` says what is spoken.
pub async fn run(
    node: Arc<Node>,
    workers: Arc<[Worker]>,
    me: usize,
    socket: TcpListener,
    current: Arc<RwLock<Arc<Listener>>>,
) {
    let socket = match Listening::new(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!("a listener could not be watched: {error}"),
    };
    let mut paused = false;
    loop {
        let Ok(mut ready) = socket.ready().await else { return };
        for _ in 0..TURN {
            while let Some(what) = node.is_full() {
                if !std::mem::replace(&mut paused, true) {
                    tracing::warn!("{what}; new connections wait");
                }
                // Bounded, so that a raised limit is seen.
                let _ = tokio::time::timeout(PAUSE, node.closed.notified()).await;
            }
            match ready.accept() {
                Some(Ok((stream, from))) => {
                    paused = false;
                    tracing::trace!(%from, "accepted");
                    let listener = current.read().unwrap_or_else(PoisonError::into_inner).clone();
                    start(&node, &workers, me, (stream, from), listener);
                }
                Some(Err(error)) if is_about_one_connection(&error) => {}
                Some(Err(error)) => {
                    if !std::mem::replace(&mut paused, true) {
                        tracing::warn!("cannot accept, will keep trying: {error}");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                None => break,
            }
        }
        tokio::task::yield_now().await;
    }
}

fn start(
    node: &Arc<Node>,
    workers: &[Worker],
    me: usize,
    (stream, from): (StdStream, SocketAddr),
    listener: Arc<Listener>,
) {
    // Other nodes are known by their keys, and each has many clients; of others it is told whose they are.
    let place = match listener.kind {
        ListenerKind::Segment(_) => None,
        _ if listener.is_told_by(from) => None,
        _ => match place(node, from.ip()) {
            // Dropped before a byte of any protocol, it is reset.
            None => return,
            place => place,
        },
    };
    let are_short = || {
        let until = workers[me].load.short_until.load(Ordering::Relaxed);
        node.started.elapsed().as_millis() < until.into()
    };
    let open = |i: usize| workers[i].load.open.load(Ordering::Relaxed);
    let worker = &workers[pick(workers.len(), open, me, are_short)];
    let mut permit = Permit::new(node, worker);
    permit.place = place;
    worker.handle.spawn(serve::connection(permit, listener, stream, from));
}

/// A place for one more connection of the client at `address`, if it may have one.
fn place(node: &Node, address: IpAddr) -> Option<Place<ClientKey>> {
    let client = ClientKey::from(address);
    let place = node.clients.enter(client, node.config().limits.client);
    if let Err(Refused { limit, is_first: true }) = place {
        tracing::warn!("client {client}: {limit} ({}); others are reset", limit.key("client"));
    }
    place.ok()
}

/// The worker for a new connection that arrived at `me`, by how many each has `open`.
fn pick(workers: usize, open: impl Fn(usize) -> usize, me: usize, are_short: impl FnOnce() -> bool) -> usize {
    let mine = open(me);
    let Some(least) = (0..workers).min_by_key(|&i| open(i)) else { return me };
    let ahead = mine.saturating_sub(open(least));
    // Mostly decided by the first comparison, without asking for the time.
    let hands_over = ahead > 1 + mine / 8 && (ahead > 4 + mine / 2 || !are_short());
    if hands_over { least } else { me }
}

/// Errors of a connection that went away while it waited (accept(2)), as opposed to the process's own.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted | K::Interrupted | K::ConnectionReset | K::PermissionDenied | K::HostUnreachable
    )
}

#[cfg(test)]
mod tests {
    use super::pick;

    /// Connections that all arrive at the first of two workers and stay.
    fn spread(count: usize, are_short: bool) -> [usize; 2] {
        let mut open = [0; 2];
        for _ in 0..count {
            open[pick(2, |i| open[i], 0, || are_short)] += 1;
        }
        open
    }

    #[test]
    fn long_streams_opened_at_once_are_spread() {
        assert_eq!(spread(8, false), [5, 3]);
    }

    #[test]
    fn short_connections_stay_but_not_without_limit() {
        assert_eq!(spread(9, true), [9, 0]);
        let [first, second] = spread(1000, true);
        assert!(second > 300, "{first} {second}");
        // As the hash would have it, give or take.
        assert_eq!(pick(2, |i| [40, 24][i], 0, || true), 0);
    }
}
