//! One of the connections to a peer, whether it exists or not, and its counters.
//!
//! `PeerState::slot_for` chooses the connection of a flow: always the same one while it exists, otherwise the next one that
//! does.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_net::socket::{self, canonical};
use ekiden_net::tcp_info::tcp_info;
use ekiden_queue::Siblings;
use ekiden_transport::Connection;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::progress::Progress;
use crate::queue::Outgoing;
use crate::recent::Recent;
use crate::status::ConnectionStatus;
use crate::tally::Tally;

/// The place of a connection. Its counters go on when the connection breaks and a new one comes.
pub struct Slot {
    /// The packets that wait to be sent.
    pub queue: Outgoing,
    /// The packets that were received.
    pub received: Tally,
    /// The present connection.
    pub current: RefCell<Option<Rc<Current>>>,
    /// Notified when the connection no longer exists.
    pub ended: Notify,
    past: Cell<Past>,
    recent: Recent,
}

/// The connection that a slot has.
pub struct Current {
    /// Notified when another connection takes its place.
    pub stop: Notify,
    /// This node has dialled it.
    pub is_ours: bool,
    /// A new one is being dialled beside it: the task that dials also ends this one.
    pub is_raced: Cell<bool>,
    /// It has ended meanwhile.
    pub has_ended: Cell<bool>,
    remote: Option<SocketAddr>,
    congestion: Option<String>,
    since: Instant,
    progress: Cell<Progress>,
}

/// The counters of past connections.
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
            is_raced: Cell::default(),
            has_ended: Cell::default(),
            remote,
            congestion,
            since: Instant::now(),
            progress: Cell::new(Progress::new(Instant::now())),
        }
    }

    /// Whether it has ended, or its data seems not to arrive any more.
    pub fn stalls(&self) -> bool {
        self.has_ended.get() || self.progress.get().stalls(Instant::now())
    }

    /// Whether only the other end is heard.
    pub fn is_unheard(&self) -> bool {
        self.progress.get().is_unheard(Instant::now())
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.progress.get().rtt()
    }

    /// The address at the other end, for the log.
    pub fn far(&self) -> String {
        self.remote.map_or(String::new(), |address| format!(", {address}"))
    }
}

impl Slot {
    /// A place without a connection.
    pub fn new(queue: Outgoing) -> Self {
        let (received, current, ended, past, recent) = Default::default();
        Self { queue, received, current, ended, past, recent }
    }

    /// Whether it has this connection, and not another one.
    pub fn has(&self, connection: &Rc<Current>) -> bool {
        self.current.borrow().as_ref().is_some_and(|current| Rc::ptr_eq(current, connection))
    }

    /// The connection no longer exists, and its waiting packets are lost.
    pub fn empty(&self) {
        *self.current.borrow_mut() = None;
        self.queue.clear();
        self.ended.notify_waiters();
        self.ended.notify_one();
    }

    /// Asks the kernel for the state of the connection.
    pub fn look(&self, connection: &Connection, current: &Current) {
        // A connection that no longer exists reports nothing more.
        let Ok(info) = tcp_info(connection.socket()) else { return };
        let mut progress = current.progress.get();
        progress.look(Instant::now(), info);
        current.progress.set(progress);
        let mut past = self.past.get();
        past.rtt_max_us = past.rtt_max_us.max(info.rtt_us);
        // The kernel has u32::MAX or 0 where nothing was measured yet.
        let least = Some(info.rtt_min_us).filter(|rtt| (1..u32::MAX).contains(rtt));
        past.rtt_min_us = past.rtt_min_us.into_iter().chain(least).min();
        self.past.set(past);
        self.recent.look(Instant::now(), self.bytes());
    }

    /// Sent and received, in all.
    fn bytes(&self) -> [u64; 2] {
        [self.queue.taken().bytes(), self.received.bytes()]
    }

    /// A connection has ended: its counters stay.
    pub fn keep(&self, ended: &Current) {
        // It may still be in its slot, and would count twice.
        let (mut past, last) = (self.past.get(), ended.progress.replace(Progress::new(Instant::now())).seen);
        past.retransmits += u64::from(last.retransmits);
        past.timeouts += u64::from(last.timeouts);
        self.past.set(past);
    }

    /// What there is to say of it.
    pub fn status(&self, number: u8, class: Option<&str>) -> ConnectionStatus {
        let (queue, received, past) = (&self.queue, &self.received, self.past.get());
        let (length, longest, signals) = (queue.length(), queue.longest(), queue.signals());
        let current = self.current.borrow();
        let [sent_bit_s, received_bit_s] = self.recent.bit_s(Instant::now(), self.bytes());
        let info = current.as_ref().map(|current| current.progress.get().seen).unwrap_or_default();
        ConnectionStatus {
            number,
            class: class.map(str::to_owned),
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
            dropped: signals.drops,
            marked: signals.marks,
            lost: queue.lost(),
            rtt_us: info.rtt_us,
            rtt_min_us: past.rtt_min_us.unwrap_or_default(),
            rtt_max_us: past.rtt_max_us,
            retransmits: past.retransmits + u64::from(info.retransmits),
            timeouts: past.timeouts + u64::from(info.timeouts),
            sent_bit_s,
            received_bit_s,
            mss_bytes: info.mss_bytes,
            delivery_bit_s: info.delivery_bytes_s.saturating_mul(8),
            cwnd: info.cwnd_segments,
            connected_s: current.as_ref().map(|current| current.since.elapsed().as_secs()),
        }
    }
}

/// A node at another end: the places of its connections.
pub struct PeerState {
    /// By number.
    pub slots: Vec<Slot>,
    /// What the pacing of its connections shares.
    pub siblings: Arc<Siblings>,
    /// Packets from addresses that the peer may not use, and the last of these addresses.
    pub foreign: Cell<(u64, Option<IpAddr>)>,
    /// Why it was not reached, as logged; `None` since a connection was made.
    pub told: RefCell<Option<String>>,
    /// Whether the log has said that it keeps fewer connections than there should be.
    pub has_told_missing: Cell<bool>,
    /// Its build, as it said last; empty if it did not say.
    pub build: RefCell<String>,
}

/// The time after the first connection by which all others have been made.
const ALL_HERE: Duration = Duration::from_secs(20);

impl PeerState {
    /// Whether one of its connections is old enough that all others should exist.
    pub fn lasts(&self) -> bool {
        let lasts = |slot: &Slot| slot.current.borrow().as_ref().is_some_and(|one| one.since.elapsed() >= ALL_HERE);
        self.slots.iter().any(lasts)
    }

    /// The connection that carries a flow whose class has the connections `own`: always the same one of these; if that one
    /// does not exist, the next one of them that does, or any other. `Err`: none exists, and the packet is lost at this one.
    pub fn slot_for(&self, own: Range<usize>, flow: u64) -> Result<&Slot, Option<&Slot>> {
        let many = own.len().max(1);
        let skipped = (flow % many as u64) as usize;
        let in_turn = own.cycle().skip(skipped).take(many).chain(0..self.slots.len());
        let mut in_turn = in_turn.filter_map(|number| self.slots.get(number)).peekable();
        let first = in_turn.peek().copied();
        in_turn.find(|slot| slot.current.borrow().is_some()).ok_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise it would keep the other end's new connection from taking its place while this end dials in vain.
    #[test]
    fn what_has_ended_stalls() {
        let (remote, congestion, since) = (None, None, Instant::now());
        let (stop, is_raced, has_ended) = (Notify::new(), Cell::new(true), Cell::new(false));
        let progress = Cell::new(Progress::new(since));
        let current = Current { stop, is_ours: true, is_raced, has_ended, remote, congestion, since, progress };
        assert!(!current.stalls());
        current.has_ended.set(true);
        assert!(current.stalls());
    }
}
