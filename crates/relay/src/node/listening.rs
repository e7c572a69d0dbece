//! A listener's sockets, one for each worker. They can be changed without losing a connection, and closed without resetting the
//! connections in their queues.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use ekiden_net::socket::{self, SocketError, TcpOptions, Turn, overlap};
use ekiden_net::steer;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use super::accept::{self, CloseOrder, Steering};
use super::handover::{self, Holder, Offered};
use crate::config::{Listener, ListenerKind};
use crate::shared::{Node, Worker};

/// One listening socket for each worker, before anything is accepted.
pub struct Sockets {
    /// Their address, with the port that the kernel chose if the configuration says 0.
    pub address: SocketAddr,
    sockets: Vec<TcpListener>,
}

/// A listener's sockets, on which its workers accept. Dropped, they are closed at once.
pub struct Bound {
    listener: Arc<Listener>,
    pub address: SocketAddr,
    /// The channel that tells connections the listener as the configuration in force has it. It is closed when the listener is
    /// removed.
    current: Arc<watch::Sender<Arc<Listener>>>,
    sockets: Vec<Arc<TcpListener>>,
    tasks: Vec<AbortHandle>,
    close_orders: Vec<oneshot::Sender<CloseOrder>>,
    /// Whose they are when they are closed.
    held: Arc<Holder>,
    /// Whether another process may have them then.
    is_offered: bool,
}

/// Sockets whose queues are emptied before they are closed.
pub struct Closing {
    address: SocketAddr,
    tasks: Vec<AbortHandle>,
    /// Keeps the channel open if the listener was not removed: the node stops.
    _current: Option<Arc<watch::Sender<Arc<Listener>>>>,
}

/// Why sockets are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Other sockets have taken their address.
    Replaced,
    /// The listener was removed.
    Removed,
    /// The node stops. It serves what it has accepted to the end.
    Stopping,
}

impl Sockets {
    /// Binds a socket for each worker. `shared` says that this node already has sockets at the address; without it, an address
    /// that is in use is an error.
    pub fn bind(listener: &Listener, workers: usize, shared: bool) -> Result<Self, SocketError> {
        let _turn = if shared { None } else { Turn::alone_at(listener.address, listener.only_v6)? };
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

    /// Those that another process has passed to this one, and more, if it has fewer than this one has workers.
    pub fn take_over(listener: &Listener, workers: usize, mut sockets: Vec<TcpListener>) -> Result<Self, SocketError> {
        let congestion = match &listener.tcp.options.congestion {
            Some(name) => name.clone(),
            None => socket::default_congestion()?,
        };
        for taken in &sockets {
            socket::listen_again(taken, &TcpOptions { congestion: None, ..listener.tcp.options.clone() })?;
            if socket::congestion(taken)? != congestion {
                socket::set_congestion(taken, &congestion)?;
            }
        }
        while sockets.len() < workers {
            sockets.push(socket::listen(listener.address, listener.only_v6, &listener.tcp.options)?);
        }
        Ok(Self { address: listener.address, sockets })
    }

    /// Makes the kernel give new connections to these sockets alone, while `before` older sockets at the address are still
    /// open. `None` if there are no older ones, or if the kernel refuses.
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

    /// Starts to accept for `listener`, each worker on its own socket. `current` is the channel of the sockets that these
    /// replace, if there are any.
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
            close_orders: Vec::new(),
            held: Holder::here(),
            is_offered: false,
        };
        for (number, socket) in self.sockets.into_iter().enumerate() {
            let me = number % workers.len();
            let (call, called) = oneshot::channel();
            let socket = Arc::new(socket);
            bound.sockets.push(socket.clone());
            let held = (socket, bound.held.clone());
            let task = accept::run(node.clone(), workers.clone(), me, held, bound.current.subscribe(), called);
            bound.tasks.push(workers[me].handle.spawn(task).abort_handle());
            bound.close_orders.push(call);
        }
        bound
    }
}

impl Bound {
    /// Whether these sockets, bound for the listener named `old`, can serve `listener`, which is named `name`. The address and
    /// the TCP settings belong to the sockets and must be the same. If the kernel chose the port, the name must be the same
    /// too: only it tells such listeners apart.
    pub fn serves(&self, old: &str, name: &str, listener: &Listener) -> bool {
        let same = self.listener.address == listener.address && self.listener.tcp.options == listener.tcp.options;
        let same = same && self.listener.only_v6 == listener.only_v6;
        let same = same && is_transparent(&self.listener) == is_transparent(listener);
        same && (old == name || listener.address.port() != 0)
    }

    /// Serves connections as `listener` says from now on.
    pub fn change(&mut self, listener: &Listener) {
        self.listener = Arc::new(listener.clone());
        self.current.send_replace(self.listener.clone());
    }

    /// The channel that tells its connections the listener in force.
    pub fn current(&self) -> Arc<watch::Sender<Arc<Listener>>> {
        self.current.clone()
    }

    /// The listener in force.
    pub fn listener(&self) -> Listener {
        (*self.listener).clone()
    }

    /// Whether a socket for `address` would overlap these, so that it can only be bound beside them.
    pub fn overlaps(&self, address: SocketAddr) -> bool {
        overlap(self.address, address)
    }

    /// How many sockets there are at `address`.
    pub fn count_at(&self, address: SocketAddr) -> usize {
        if self.address == address { self.tasks.len() } else { 0 }
    }

    /// Lets another process have these while they are closed, if it may have them, or hear that it waits for their address.
    pub fn offer(&mut self) -> Offered {
        let settings = handover::settings(&self.listener);
        self.is_offered = settings.is_some();
        let sockets = self.sockets.iter().map(Arc::downgrade).collect();
        Offered { address: self.address, settings, sockets, held: self.held.clone() }
    }

    /// Accepts the connections in the queues, and closes the sockets. `steering` says that other sockets have taken the address
    /// over; without it, no new connection begins here from now on, or, if another process may have them, once they are
    /// closed.
    pub fn close(self, node: &Arc<Node>, steering: Option<&Arc<Steering>>, reason: CloseReason) -> Closing {
        if steering.is_none() && !self.is_offered {
            self.sockets.iter().for_each(|socket| self.held.ignore_new(socket));
        }
        for (call, socket) in self.close_orders.into_iter().zip(self.sockets) {
            let busy = socket::has_waiting(&socket).then(|| node.begin());
            // An error means that the worker's task has already ended.
            let removed = (reason == CloseReason::Removed).then(|| watch::Sender::new(self.listener.clone()));
            let _ = call.send(CloseOrder { busy, steering: steering.cloned(), removed, held: self.held.clone() });
        }
        let current = (reason == CloseReason::Stopping).then_some(self.current);
        Closing { address: self.address, tasks: self.tasks, _current: current }
    }
}

impl Closing {
    /// How many sockets there still are at `address`.
    pub fn count_at(&self, address: SocketAddr) -> usize {
        if self.address == address { self.tasks.iter().filter(|task| !task.is_finished()).count() } else { 0 }
    }

    /// Whether a socket for `address` would overlap these, so that it can only be bound beside them.
    pub fn overlaps(&self, address: SocketAddr) -> bool {
        overlap(self.address, address) && !self.is_over()
    }

    /// Whether all are closed.
    pub fn is_over(&self) -> bool {
        self.count_at(self.address) == 0
    }
}

fn is_transparent(listener: &Listener) -> bool {
    matches!(listener.kind, ListenerKind::Transparent { .. })
}
