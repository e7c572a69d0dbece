//! Accepting: within the limits, and evenly over the workers.
//!
//! The kernel's hash may give one worker most of a few long streams. A worker that is clearly ahead of
//! another hands the connection over; the margin grows with the load, so that many short connections stay
//! where they arrived and cost no wake-up of another thread.

use std::io;
use std::net::{TcpListener, TcpStream as StdStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ekiden_net::socket::Listening;

use crate::config::Listener;
use crate::node::{Node, Worker};
use crate::serve;

/// How long a worker does not accept after the process ran out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections accepted before others of the thread get their turn.
const TURN: usize = 32;

/// Counts an accepted connection until it is dropped.
pub struct Permit {
    node: Arc<Node>,
    worker: Worker,
}

impl Permit {
    fn new(node: &Arc<Node>, worker: &Worker) -> Self {
        node.connections.fetch_add(1, Ordering::Relaxed);
        worker.load.fetch_add(1, Ordering::Relaxed);
        Self { node: node.clone(), worker: worker.clone() }
    }

    /// The node that accepted.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.worker.load.fetch_sub(1, Ordering::Relaxed);
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
            while node.connections.load(Ordering::Relaxed) >= node.config().limits.connections as usize {
                if !std::mem::replace(&mut paused, true) {
                    tracing::warn!("limits.connections is reached; new connections wait");
                }
                // Bounded, so that a raised limit is seen.
                let _ = tokio::time::timeout(PAUSE, node.closed.notified()).await;
            }
            match ready.accept() {
                Some(Ok((stream, from))) => {
                    paused = false;
                    tracing::trace!(%from, "accepted");
                    let listener = current.read().unwrap_or_else(PoisonError::into_inner).clone();
                    start(&node, &workers, me, stream, listener);
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

fn start(node: &Arc<Node>, workers: &[Worker], me: usize, stream: StdStream, listener: Arc<Listener>) {
    let worker = &workers[pick(workers, me)];
    let permit = Permit::new(node, worker);
    worker.handle.spawn(serve::connection(permit, listener, stream));
}

/// The worker for a new connection.
fn pick(workers: &[Worker], me: usize) -> usize {
    let load = |i: usize| workers[i].load.load(Ordering::Relaxed);
    let mine = load(me);
    match (0..workers.len()).min_by_key(|&i| load(i)) {
        Some(least) if mine > load(least) + 1 + mine / 8 => least,
        _ => me,
    }
}

/// Errors of a connection that went away while it waited (accept(2)), as opposed to the process's own.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted | K::Interrupted | K::ConnectionReset | K::PermissionDenied | K::HostUnreachable
    )
}
