//! One of the connections to a peer, whether it is there or not, and what is counted of it.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use ekiden_net::socket::{self, canonical};
use ekiden_net::tcp_info::{TcpInfo, tcp_info};
use ekiden_transport::Connection;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::queue::Outgoing;
use crate::status::ConnectionStatus;
use crate::tally::Tally;

/// The place of a connection. Its counts go on when the connection breaks and comes again.
pub struct Slot {
    /// What waits to be sent.
    pub queue: Outgoing,
    /// What has come.
    pub received: Tally,
    /// The connection that is there.
    pub current: RefCell<Option<Rc<Current>>>,
    /// Told when it is not there any more.
    pub ended: Notify,
    past: Cell<Past>,
}

/// The connection that a slot has.
pub struct Current {
    /// Told when another one takes its place.
    pub stop: Notify,
    /// This node has dialled it.
    pub is_ours: bool,
    remote: Option<SocketAddr>,
    congestion: Option<String>,
    since: Instant,
    /// What the kernel said of it when it was asked last.
    seen: Cell<TcpInfo>,
}

/// What connections have left.
#[derive(Clone, Copy, Default)]
struct Past {
    retransmits: u64,
    timeouts: u64,
    rtt_min_us: Option<u32>,
    rtt_max_us: u32,
}

impl Current {
    /// A connection that begins.
    pub fn new(connection: &Connection, is_ours: bool) -> Self {
        let remote = connection.socket().peer_addr().ok().map(canonical);
        let congestion = socket::congestion(connection.socket()).ok();
        Self {
            stop: Notify::new(),
            is_ours,
            remote,
            congestion,
            since: Instant::now(),
            seen: Cell::new(TcpInfo::default()),
        }
    }

    /// The address at the other end, for the log.
    pub fn far(&self) -> String {
        self.remote.map_or(String::new(), |address| format!(", {address}"))
    }
}

impl Slot {
    /// A place without a connection.
    pub fn new(queue: Outgoing) -> Self {
        let (current, past) = Default::default();
        Self { queue, received: Tally::default(), current, ended: Notify::new(), past }
    }

    /// Asks the kernel how the connection is.
    pub fn look(&self, connection: &Connection, current: &Current) {
        // What is no longer there has said its last.
        let Ok(info) = tcp_info(connection.socket()) else { return };
        current.seen.set(info);
        let mut past = self.past.get();
        past.rtt_max_us = past.rtt_max_us.max(info.rtt_us);
        // The kernel has u32::MAX or 0 where nothing was measured yet.
        let least = Some(info.rtt_min_us).filter(|rtt| (1..u32::MAX).contains(rtt));
        past.rtt_min_us = past.rtt_min_us.into_iter().chain(least).min();
        self.past.set(past);
    }

    /// A connection has ended: what was counted of it stays.
    pub fn keep(&self, ended: &Current) {
        let (mut past, last) = (self.past.get(), ended.seen.get());
        past.retransmits += u64::from(last.retransmits);
        past.timeouts += u64::from(last.timeouts);
        self.past.set(past);
    }

    /// What there is to say of it.
    pub fn status(&self, number: u8) -> ConnectionStatus {
        let (queue, received, past) = (&self.queue, &self.received, self.past.get());
        let (length, longest) = (queue.length(), queue.longest());
        let current = self.current.borrow();
        let info = current.as_ref().map(|current| current.seen.get()).unwrap_or_default();
        ConnectionStatus {
            number,
            is_up: current.is_some(),
            remote: current.as_ref().and_then(|current| current.remote).map(|address| address.to_string()),
            congestion: current.as_ref().and_then(|current| current.congestion.clone()),
            packets_sent: queue.taken().packets(),
            bytes_sent: queue.taken().bytes(),
            packets_received: received.packets(),
            bytes_received: received.bytes(),
            queue_packets: length.packets,
            queue_bytes: length.bytes,
            queue_max_packets: longest.packets,
            queue_max_bytes: longest.bytes,
            dropped: queue.signals().drops,
            marked: queue.signals().marks,
            lost: queue.lost(),
            rtt_us: info.rtt_us,
            rtt_min_us: past.rtt_min_us.unwrap_or_default(),
            rtt_max_us: past.rtt_max_us,
            retransmits: past.retransmits + u64::from(info.retransmits),
            timeouts: past.timeouts + u64::from(info.timeouts),
            delivery_bit_s: info.delivery_bytes_s.saturating_mul(8),
            cwnd: info.cwnd_segments,
            connected_s: current.as_ref().map(|current| current.since.elapsed().as_secs()),
        }
    }
}
