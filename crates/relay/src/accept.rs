//! Accepting: within the limits, and evenly over the workers.
//!
//! The kernel's hash may give one worker most of a few long streams. A worker that is ahead of another hands
//! the connection over. That wakes another thread, which costs more than it brings where connections come and
//! go within a moment: while they do, a worker must be far ahead.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ekiden_net::socket::Listening;
use ekiden_net::steer;
use tokio::sync::{oneshot, watch};

use crate::config::{Listener, ListenerKind};
use crate::node::{Busy, Load, Node, Steering, Worker};
use crate::quota::{Allowance, ClientKey, Limit, Place};
use crate::serve;

/// How long a worker does not accept after the process ran out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a socket that is to be closed waits for handshakes that have begun.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Connections accepted before others of the thread get their turn.
const TURN: usize = 32;

/// A connection that ends sooner was short.
const SHORT: Duration = Duration::from_millis(100);

/// How long after the end of a short connection more of them are expected.
const MEMORY: Duration = Duration::from_millis(100);

/// One in so many of all possible connections may be a stranger's on a segment listener.
const STRANGERS: usize = 2;

/// What an address may have on segment listeners before it has proven a key, if hosts may not have more anyway: as many as
/// a node makes at a time.
const HANDSHAKES: Allowance = Allowance { open: 256, rate: 1000 };

/// A listener as the configuration in force has it; its sender is gone when the listener was removed. Shared, to be
/// small in what an open connection costs.
pub type Current = Arc<watch::Receiver<Arc<Listener>>>;

/// Counts an accepted connection until it is dropped.
pub struct Permit {
    node: Arc<Node>,
    load: Arc<Load>,
    since: Instant,
    /// Among the connections of its client, if those are counted.
    place: Option<Place<ClientKey>>,
    /// Of a connection to a segment listener, until it has proven a key.
    stranger: Option<Box<Stranger>>,
}

/// A connection that may be another node's. Counts as a stranger's until dropped.
struct Stranger {
    node: Arc<Node>,
    place: Option<Place<ClientKey>>,
}

impl Permit {
    fn new(node: &Arc<Node>, worker: &Worker) -> Self {
        let open = node.connections.fetch_add(1, Ordering::Relaxed) + 1;
        if open > node.peak_connections.load(Ordering::Relaxed) {
            node.peak_connections.fetch_max(open, Ordering::Relaxed);
        }
        worker.load.open.fetch_add(1, Ordering::Relaxed);
        Self { node: node.clone(), load: worker.load.clone(), since: Instant::now(), place: None, stranger: None }
    }

    /// Counts it as one of the client at `address`. Whether that may have one more; if not, it is to be reset.
    pub fn count_for(&mut self, address: IpAddr) -> bool {
        self.place = place(&self.node, address);
        self.place.is_some()
    }

    /// It is another node's, which has proven it: it counts for nobody any more.
    pub fn is_proven(&mut self) {
        if let Some(place) = self.stranger.take().and_then(|mut stranger| stranger.place.take()) {
            place.give_back();
        }
    }

    /// The node that accepted.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Stranger {
    /// One more that comes from `address`, if there may be one.
    fn new(node: &Arc<Node>, address: IpAddr) -> Option<Self> {
        let limits = &node.config().limits;
        // Counts itself from here on.
        let before = node.unproven.fetch_add(1, Ordering::Relaxed);
        let mut stranger = Self { node: node.clone(), place: None };
        let most = node.most_connections().div_ceil(STRANGERS);
        let client = ClientKey::from(address);
        if before >= most {
            let line = format_args!(
                "{client}: {most} connections to segment listeners have not proven a key yet (a half of limits.connections, or of what the open files allow); others are reset"
            );
            node.lines.warn("strangers", client, line);
            return None;
        }
        let open = limits.client.open.max(HANDSHAKES.open);
        let allowance = Allowance { open, rate: limits.client.rate.max(HANDSHAKES.rate) };
        let place = node.strangers.enter(client, allowance).map_err(|limit| {
            let line = format_args!("client {client}: {limit} to segment listeners without a key; others are reset");
            node.lines.warn("stranger", client, line);
        });
        stranger.place = Some(place.ok()?);
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
            let until = (now - self.node.started + MEMORY).as_millis() as u64;
            self.load.short_until.store(until, Ordering::Relaxed);
        }
        self.node.connections.fetch_sub(1, Ordering::Relaxed);
        self.node.closed.notify_one();
    }
}

/// What a socket's worker is told when it is to close it.
pub struct LastOrders {
    /// Until its queue has been emptied, if anyone waits in it.
    pub busy: Option<Busy>,
    /// New connections come to other sockets while this is there; without it there is none to come to.
    pub steering: Option<Arc<Steering>>,
    /// What it is accepted for, until the queue is empty, where the listener was removed.
    pub removed: Option<watch::Sender<Arc<Listener>>>,
}

/// Accepts on one worker's socket until it is `called` to close it, or the caller is gone. `current` says what is spoken.
pub async fn run(
    node: Arc<Node>,
    workers: Arc<[Worker]>,
    me: usize,
    socket: Arc<TcpListener>,
    current: watch::Receiver<Arc<Listener>>,
    mut called: oneshot::Receiver<LastOrders>,
) {
    let current = Arc::new(current);
    let socket = match Listening::new(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!("a listener could not be watched: {error}"),
    };
    let mut acceptor = Acceptor { node, workers, me, current, paused: false };
    loop {
        let mut ready = tokio::select! {
            biased;
            ready = socket.ready() => match ready {
                Ok(ready) => ready,
                Err(_) => return,
            },
            last = &mut called => match last {
                Ok(last) => return acceptor.close(&socket, last).await,
                Err(_) => return,
            },
        };
        for _ in 0..TURN {
            if !acceptor.take(|| ready.accept(), false).await {
                break;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// One worker's accepting.
struct Acceptor {
    node: Arc<Node>,
    workers: Arc<[Worker]>,
    me: usize,
    current: Current,
    /// Whether it was said that connections wait.
    paused: bool,
}

impl Acceptor {
    /// Accepts one connection, when there is room for it. Whether there may be more of them. One of the `last` keeps a node
    /// that stops until its request is known.
    async fn take(&mut self, accept: impl FnOnce() -> Option<io::Result<(StdStream, SocketAddr)>>, last: bool) -> bool {
        while let Some(what) = self.node.is_full() {
            if !std::mem::replace(&mut self.paused, true) {
                tracing::warn!("{what}; new connections wait");
            }
            // Bounded, so that a raised limit is seen.
            let _ = tokio::time::timeout(PAUSE, self.node.closed.notified()).await;
        }
        match accept() {
            Some(Ok((stream, from))) => {
                self.paused = false;
                tracing::trace!(%from, "accepted");
                start(&self.node, &self.workers, self.me, (stream, from), &self.current, last);
            }
            Some(Err(error)) if is_about_one_connection(&error) => {}
            Some(Err(error)) => {
                if !std::mem::replace(&mut self.paused, true) {
                    tracing::warn!("cannot accept, will keep trying: {error}");
                }
                tokio::time::sleep(PAUSE).await;
            }
            None => return false,
        }
        true
    }

    /// Accepts what is in the queue and what was on its way there, and closes.
    async fn close(mut self, socket: &Listening, last: LastOrders) {
        let LastOrders { busy, steering, removed } = last;
        if let Some(sender) = &removed {
            self.current = Arc::new(sender.subscribe());
        }
        while self.take(|| socket.accept(), true).await {}
        drop(busy);
        let begun = async {
            while let Ok(mut ready) = socket.ready().await {
                while self.take(|| ready.accept(), true).await {}
            }
        };
        let _ = tokio::time::timeout(UNDER_WAY, begun).await;
        ignore_new(socket.socket());
        drop(steering);
        while self.take(|| socket.accept(), true).await {}
    }
}

/// Lets no connection begin on `socket` from now on.
pub fn ignore_new(socket: &TcpListener) {
    if let Err(error) = steer::ignore_new(socket) {
        tracing::debug!("connections that begin now may be reset: {error}");
    }
}

fn start(
    node: &Arc<Node>,
    workers: &[Worker],
    me: usize,
    (stream, from): (StdStream, SocketAddr),
    current: &Current,
    last: bool,
) {
    let listener = current.borrow().clone();
    let (mut counted, mut stranger) = (None, None);
    // Without a place it is dropped before a byte of any protocol, which resets it.
    match listener.kind {
        // Nodes are known by their keys, and each has many clients. Until one has proven its key it may be anybody.
        ListenerKind::Segment(_) => match Stranger::new(node, from.ip()) {
            None => return,
            taken => stranger = taken,
        },
        // It will be told whose connection it is.
        _ if listener.is_told_by(from) => {}
        _ => match place(node, from.ip()) {
            None => return,
            taken => counted = taken,
        },
    }
    let are_short = || {
        let until = workers[me].load.short_until.load(Ordering::Relaxed);
        node.started.elapsed().as_millis() < until.into()
    };
    let open = |i: usize| workers[i].load.open.load(Ordering::Relaxed);
    let worker = &workers[pick(workers.len(), open, me, are_short)];
    let mut permit = Permit::new(node, worker);
    (permit.place, permit.stranger) = (counted, stranger.map(Box::new));
    if last {
        worker.handle.spawn(serve::last_connection(node.begin(), permit, current.clone(), stream, from));
    } else {
        worker.handle.spawn(serve::connection(permit, current.clone(), stream, from));
    }
}

/// A place for one more connection of the client at `address`, if it may have one.
fn place(node: &Node, address: IpAddr) -> Option<Place<ClientKey>> {
    let client = ClientKey::from(address);
    let limits = &node.config().limits;
    let is_own = address.to_canonical().is_loopback();
    let rate = if is_own { limits.loopback_rate } else { limits.client.rate };
    // Those on this machine are one address, and take files from it in any case. Who sets the limit knows the clients.
    let most = if is_own || limits.limits_clients { u32::MAX } else { node.most_of_one_client() };
    let place = node.clients.enter(client, Allowance { rate, open: limits.client.open.min(most) });
    let refused = place.map_err(|limit| {
        let key = match limit {
            Limit::Open(_) if most < limits.client.open => "half of what the limit of open files allows".into(),
            Limit::Rate(_) if is_own => "limits.loopback_rate".into(),
            _ => limit.key("client"),
        };
        node.lines.warn("client", client, format_args!("client {client}: {limit} ({key}); others are reset"));
    });
    refused.ok()
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
