//! A listener's sockets, one for each worker: bound, changed without losing a connection, and closed without resetting those
//! that are in their queues.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use ekiden_net::socket::{self, SocketError};
use ekiden_net::steer;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use super::accept::{self, LastOrders, Steering};
use crate::config::{Listener, ListenerKind};
use crate::shared::{Node, Worker};

/// One listening socket for each worker, before anything is accepted.
pub struct Sockets {
    /// With the port the kernel chose, where the configuration says 0.
    pub address: SocketAddr,
    sockets: Vec<TcpListener>,
}

/// A listener's sockets, on which its workers accept. Dropped, they are closed at once.
pub struct Bound {
    listener: Arc<Listener>,
    pub address: SocketAddr,
    /// What connections are served as. Gone when the listener was removed.
    current: Arc<watch::Sender<Arc<Listener>>>,
    sockets: Vec<Arc<TcpListener>>,
    tasks: Vec<AbortHandle>,
    last_orders: Vec<oneshot::Sender<LastOrders>>,
}

/// Sockets whose queues are emptied before they are closed.
pub struct Closing {
    address: SocketAddr,
    tasks: Vec<AbortHandle>,
    /// Of a listener that was not removed.
    _current: Option<Arc<watch::Sender<Arc<Listener>>>>,
}

/// What is where a listener's sockets were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Other sockets.
    Change,
    /// Nothing: the listener was removed.
    Removal,
    /// Nothing: the node ends, and serves to its end what it has accepted.
    Stop,
}

impl Sockets {
    /// Binds for `listener`. `shared`: this node has sockets there already.
    pub fn bind(listener: &Listener, workers: usize, shared: bool) -> Result<Self, SocketError> {
        if !shared && listener.address.port() != 0 {
            socket::ensure_free(listener.address, listener.only_v6)?;
        }
        let options = &listener.tcp.options;
        let listen = |address| match is_transparent(listener) {
            true => socket::listen_transparent(address, options),
            false => socket::listen(address, listener.only_v6, options),
        };
        let first = listen(listener.address)?;
        let address = first.local_addr()?;
        let mut sockets = vec![first];
        for _ in 1..workers {
            sockets.push(listen(address)?);
        }
        Ok(Self { address, sockets })
    }

    /// Brings new connections to these alone, of which others `before` them are still there.
    pub fn steer_here(&self, before: usize) -> Option<Arc<Steering>> {
        let first = self.sockets.first().filter(|_| before > 0)?;
        let (before, count) = (u32::try_from(before).ok()?, u32::try_from(self.sockets.len()).ok()?);
        let steered = steer::steer(first, before, count).and_then(|()| first.try_clone());
        steered
            .inspect_err(|error| {
                tracing::debug!("{}: connections still come to the old sockets: {error}", self.address)
            })
            .ok()
            .map(|socket| Arc::new(Steering(socket)))
    }

    /// Accepts for `listener`, each worker on its own. `current` is that of sockets whose place these take.
    pub fn accept(
        self,
        node: &Arc<Node>,
        workers: &Arc<[Worker]>,
        listener: Listener,
        current: Option<Arc<watch::Sender<Arc<Listener>>>>,
    ) -> Bound {
        let listener = Arc::new(listener);
        let current = current.unwrap_or_else(|| Arc::new(watch::Sender::new(listener.clone())));
        current.send_replace(listener.clone());
        let mut bound = Bound {
            listener,
            address: self.address,
            current,
            sockets: Vec::new(),
            tasks: Vec::new(),
            last_orders: Vec::new(),
        };
        for (me, socket) in self.sockets.into_iter().enumerate() {
            let (call, called) = oneshot::channel();
            let socket = Arc::new(socket);
            bound.sockets.push(socket.clone());
            let task = accept::run(node.clone(), workers.clone(), me, socket, bound.current.subscribe(), called);
            bound.tasks.push(workers[me].handle.spawn(task).abort_handle());
            bound.last_orders.push(call);
        }
        bound
    }
}

impl Bound {
    /// Whether these sockets, bound for the listener `old`, can serve `listener`: the TCP settings are the sockets', and
    /// where the kernel chose the port only the name tells them apart.
    pub fn serves(&self, old: &str, name: &str, listener: &Listener) -> bool {
        let same = self.listener.address == listener.address && self.listener.tcp.options == listener.tcp.options;
        let same = same && self.listener.only_v6 == listener.only_v6;
        let same = same && is_transparent(&self.listener) == is_transparent(listener);
        same && (old == name || listener.address.port() != 0)
    }

    /// Serves what is accepted from now on as `listener` says.
    pub fn change(&mut self, listener: &Listener) {
        self.listener = Arc::new(listener.clone());
        self.current.send_replace(self.listener.clone());
    }

    /// What tells its connections as what they are served.
    pub fn current(&self) -> Arc<watch::Sender<Arc<Listener>>> {
        self.current.clone()
    }

    /// What is served.
    pub fn listener(&self) -> Listener {
        (*self.listener).clone()
    }

    /// Whether a socket for `address` can be bound only beside these.
    pub fn overlaps(&self, address: SocketAddr) -> bool {
        overlap(self.address, address)
    }

    /// How many sockets there are at `address`.
    pub fn count_at(&self, address: SocketAddr) -> usize {
        if self.address == address { self.tasks.len() } else { 0 }
    }

    /// Accepts what is in the queues, and closes. With `steering`, others have taken the address over.
    pub fn close(self, node: &Arc<Node>, steering: Option<&Arc<Steering>>, after: After) -> Closing {
        if steering.is_none() {
            self.sockets.iter().for_each(|socket| accept::ignore_new(socket));
        }
        for (call, socket) in self.last_orders.into_iter().zip(self.sockets) {
            let busy = socket::has_waiting(&socket).then(|| node.begin());
            // An error means that it could not accept at all.
            let removed = (after == After::Removal).then(|| watch::Sender::new(self.listener.clone()));
            let _ = call.send(LastOrders { busy, steering: steering.cloned(), removed });
        }
        let current = (after == After::Stop).then_some(self.current);
        Closing { address: self.address, tasks: self.tasks, _current: current }
    }
}

impl Closing {
    /// How many sockets there still are at `address`.
    pub fn count_at(&self, address: SocketAddr) -> usize {
        if self.address == address { self.tasks.iter().filter(|task| !task.is_finished()).count() } else { 0 }
    }

    /// Whether a socket for `address` can be bound only beside these.
    pub fn overlaps(&self, address: SocketAddr) -> bool {
        overlap(self.address, address) && !self.is_over()
    }

    /// Whether all are closed.
    pub fn is_over(&self) -> bool {
        self.count_at(self.address) == 0
    }
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (any || one.ip() == other.ip())
}

fn is_transparent(listener: &Listener) -> bool {
    matches!(listener.kind, ListenerKind::Transparent { .. })
}
