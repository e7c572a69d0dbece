//! What waits for a connection.

use std::cell::{Cell, RefCell};

use ekiden_link::{LinkPacket, TunnelQueue};
use ekiden_net::clock::monotonic_ns;
use tokio::sync::Notify;

use crate::config::QueueSettings;

/// A packet that waits.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The number of its flow.
    pub flow: u64,
}

impl LinkPacket for Packet {
    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn flow(&self) -> u64 {
        self.flow
    }
}

/// The packets that wait for one connection, and whoever waits for them.
pub struct Outgoing {
    waiting: RefCell<TunnelQueue<Packet>>,
    arrived: Notify,
    dropped: Cell<u64>,
}

impl Outgoing {
    /// An empty queue. Which flows share a queue in it depends on `salt`.
    pub fn new(settings: &QueueSettings, mtu: u16, salt: u64) -> Self {
        let waiting = TunnelQueue::new(settings.limit, settings.pull, mtu.into(), salt);
        Self { waiting: RefCell::new(waiting), arrived: Notify::new(), dropped: Cell::new(0) }
    }

    /// A packet comes to wait.
    pub fn push(&self, packet: Packet) {
        let dropped = self.waiting.borrow_mut().push(monotonic_ns(), packet);
        self.dropped.set(self.dropped.get() + dropped);
        self.arrived.notify_one();
    }

    /// The next packet, if one waits.
    pub fn pop(&self) -> Option<Packet> {
        let mut dropped = 0;
        let packet = self.waiting.borrow_mut().pop(monotonic_ns(), &mut dropped);
        self.dropped.set(self.dropped.get() + dropped);
        packet
    }

    /// Returns when a packet may have come.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// All that waits is dropped.
    pub fn clear(&self) {
        let mut waiting = self.waiting.borrow_mut();
        self.dropped.set(self.dropped.get() + waiting.length().packets);
        waiting.clear();
    }

    /// How many packets were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}
