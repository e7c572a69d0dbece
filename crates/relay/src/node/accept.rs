//! Accepting: within the limits, and evenly over the workers.
//!
//! The kernel's hash may give one worker most of a few long streams. A worker that is ahead of another hands
//! the connection over. That wakes another thread, which costs more than it brings where connections come and
//! go within a moment: while they do, a worker must be far ahead.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ekiden_net::socket::{Listening, has_waiting};
use ekiden_net::steer;
use ekiden_transport::budget;
use tokio::sync::{oneshot, watch};

use super::handover::{Held, Holder};
use crate::config::Listener;
use crate::host::congestion;
use crate::serve;
use crate::shared::{Claim, Current, InFlightGuard, Node, Permit, Worker};

/// How long a worker pauses after the process ran out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a socket that is to be closed waits for TCP handshakes that have begun.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// How long it waits for the last of them, once no other begins.
const UNDER_WAY_LAST: Duration = Duration::from_millis(50);

/// Connections that a worker accepts before it runs its other tasks.
const TURN: usize = 32;

/// Until this is dropped, new connections to an address go to its newest sockets only.
pub struct Steering(pub TcpListener);

impl Drop for Steering {
    fn drop(&mut self) {
        // An error means that all of these sockets are closed.
        let _ = steer::stop_steering(&self.0);
    }
}

/// The order to a socket's worker to close it.
pub struct CloseOrder {
    /// Keeps a node that stops until the queue has been emptied. `None` if the queue is empty.
    pub busy: Option<InFlightGuard>,
    /// New connections come to other sockets while this is there; without it there is none to come to.
    pub steering: Option<Arc<Steering>>,
    /// What it is accepted for, until the queue is empty, where the listener was removed.
    pub removed: Option<watch::Sender<Arc<Listener>>>,
    /// Whose it is: of another process, too, once that has taken it.
    pub held: Arc<Holder>,
}

/// Accepts on one worker's socket until it is `called` to close it, or the caller is gone. `current` says what is spoken.
pub async fn run(
    node: Arc<Node>,
    workers: Arc<[Worker]>,
    me: usize,
    (socket, held): (Arc<TcpListener>, Arc<Holder>),
    current: watch::Receiver<Arc<Listener>>,
    mut called: oneshot::Receiver<CloseOrder>,
) {
    let current = Arc::new(current);
    let socket = match Listening::new(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!("{} could not be watched: {error}", *current.borrow()),
    };
    let mut acceptor = Acceptor { node, workers, me, current, held, paused: false };
    loop {
        // A node that is full does not take any. It must hear all the same that it is to close.
        let turn = async {
            let mut ready = socket.ready().await?;
            for _ in 0..TURN {
                if !acceptor.take(&socket, || ready.accept(), false).await {
                    break;
                }
            }
            io::Result::Ok(())
        };
        tokio::select! {
            biased;
            order = &mut called => match order {
                Ok(order) => return acceptor.close(socket, order).await,
                Err(_) => return,
            },
            taken = turn => if taken.is_err() {
                return;
            },
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
    held: Arc<Holder>,
    /// Whether the log says already that connections wait.
    paused: bool,
}

impl Acceptor {
    /// Accepts one connection, when there is room for it. Whether there may be more of them. One of the `last` keeps a node
    /// that stops until its request is known.
    ///
    /// Takes none while another process has the socket: that accepts, and this worker may not have heard of it yet. With `last` this
    /// does not return then.
    async fn take(
        &mut self,
        socket: &Listening,
        accept: impl FnOnce() -> Option<io::Result<(StdStream, SocketAddr)>>,
        last: bool,
    ) -> bool {
        while let Some(what) = self.node.is_full() {
            let is_made = has_waiting(socket.socket()) && self.node.make_room();
            if !is_made && !std::mem::replace(&mut self.paused, true) {
                self.node.lines.warn("full", what, format_args!("{what}; new connections wait"));
            }
            // The wait is bounded, so that a raised limit is noticed.
            let _ = tokio::time::timeout(PAUSE, self.node.closed.notified()).await;
        }
        let Some(accepted) = self.held.while_ours(accept) else {
            return if last { pending().await } else { false };
        };
        match accepted {
            Some(Ok((stream, from))) => {
                self.paused = false;
                tracing::trace!(%from, "accepted");
                start(&self.node, &self.workers, self.me, (stream, from), &self.current, last);
            }
            Some(Err(error)) if is_about_one_connection(&error) => {}
            Some(Err(error)) => {
                if !std::mem::replace(&mut self.paused, true) {
                    let listener = self.current.borrow().clone();
                    let line = format_args!("{listener}: cannot accept, will keep trying: {error}");
                    self.node.lines.warn("accept", &listener, line);
                }
                tokio::time::sleep(PAUSE).await;
            }
            None => return false,
        }
        true
    }

    /// Accepts what is in the queue and what was on its way there, and closes. Until then another process may take the socket.
    async fn close(mut self, mut socket: Listening, order: CloseOrder) {
        let CloseOrder { mut busy, mut steering, removed, held } = order;
        if let Some(sender) = &removed {
            self.current = Arc::new(sender.subscribe());
        }
        self.held = held;
        let mut others = self.held.subscribe();
        loop {
            let was = others.borrow_and_update().held;
            // Keeps a node that stops until this worker has closed its socket, too: others may be sooner.
            let _under_way = (was == Held::Wanted).then(|| self.node.begin());
            let ending = async {
                match was {
                    Held::Passed => {}
                    Held::Lent => pending().await,
                    Held::Here => {
                        self.take_for(UNDER_WAY, &socket, &mut busy).await;
                        self.held.ignore_new(socket.socket());
                        self.take_for(UNDER_WAY_LAST, &socket, &mut busy).await;
                        drop(steering.take());
                        // Those that wait for room in a full node are served as well.
                        while has_waiting(socket.socket()) && self.take(&socket, || socket.accept(), true).await {}
                    }
                    Held::Asked => {
                        // An error means that there is no filter.
                        drop(steer::hear_new(socket.socket()));
                        self.take_all(&socket, &mut busy).await;
                    }
                    Held::Wanted => {
                        self.held.ignore_new(socket.socket());
                        self.take_for(UNDER_WAY, &socket, &mut busy).await;
                        // Another process waits for the address: there is no time for those that wait for room.
                        while self.node.is_full().is_none() && self.take(&socket, || socket.accept(), true).await {}
                    }
                }
            };
            tokio::select! {
                biased;
                // This has a sender as long as `held`.
                _ = others.changed() => continue,
                () = ending => {}
            }
            // Another process may be promised it at this moment, and then it stays.
            let mut closing = Some(socket);
            let is_closed = was == Held::Passed || self.held.while_here(|| drop(closing.take()));
            match closing {
                Some(still) if !is_closed => socket = still,
                _ => return,
            }
        }
    }

    async fn take_for(&mut self, most: Duration, socket: &Listening, busy: &mut Option<InFlightGuard>) {
        // It has no other end.
        let _ = tokio::time::timeout(most, self.take_all(socket, busy)).await;
    }

    /// Accepts without an end. `busy` is given back once the queue was empty.
    async fn take_all(&mut self, socket: &Listening, busy: &mut Option<InFlightGuard>) {
        while self.take(socket, || socket.accept(), true).await {}
        drop(busy.take());
        while let Ok(mut ready) = socket.ready().await {
            while self.take(socket, || ready.accept(), true).await {}
        }
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
    // Without a claim it is dropped before a byte of any protocol, which resets it.
    let Some(claim) = Claim::of(node, &listener, from) else { return };
    congestion::connected(&stream, &listener.tcp);
    let are_short = || {
        let until = workers[me].load.short_until.load(Ordering::Relaxed);
        node.started.elapsed().as_millis() < until.into()
    };
    let open = |i: usize| workers[i].load.open.load(Ordering::Relaxed);
    let worker = &workers[pick(workers.len(), open, me, are_short)];
    let permit = Permit::new(node, worker, claim);
    if last {
        let serving = serve::last_connection(node.begin(), permit, current.clone(), stream, from);
        worker.handle.spawn(budget::paid(serving));
    } else {
        worker.handle.spawn(budget::paid(serve::connection(permit, current.clone(), stream, from)));
    }
}

/// The worker for a new connection that arrived at `me`, by how many each has `open`.
fn pick(workers: usize, open: impl Fn(usize) -> usize, me: usize, are_short: impl FnOnce() -> bool) -> usize {
    let mine = open(me);
    let Some(least) = (0..workers).min_by_key(|&i| open(i)) else { return me };
    let ahead = mine.saturating_sub(open(least));
    // The first comparison mostly decides, without a look at the clock.
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
