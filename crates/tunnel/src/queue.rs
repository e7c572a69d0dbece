//! What waits for a connection.

use std::cell::{Cell, RefCell};

use ekiden_link::{LinkPacket, TunnelQueue};
use ekiden_net::clock::monotonic_ns;
use tokio::sync::Notify;

use crate::buffer::Buffer;
use crate::config::QueueSettings;
use crate::vnet::VnetHeader;

/// A packet that waits.
#[derive(Debug)]
pub struct Packet {
    /// Its frame, as it is sent.
    pub frame: Buffer,
    /// The number of its flow.
    pub flow: u64,
    /// The length of the IP packet.
    pub bytes: usize,
}

impl LinkPacket for Packet {
    fn bytes(&self) -> u32 {
        self.bytes as u32
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
    /// The other end takes what has a header of the device.
    takes_super: Cell<bool>,
    /// The longest super-packet that goes whole.
    whole_most: Cell<u64>,
}

impl Outgoing {
    /// An empty queue. Which flows share a queue in it depends on `salt`.
    pub fn new(settings: &QueueSettings, mtu: u16, salt: u64) -> Self {
        let waiting = TunnelQueue::new(settings.limit, settings.pull, mtu.into(), salt);
        Self {
            waiting: RefCell::new(waiting),
            arrived: Notify::new(),
            dropped: Cell::new(0),
            takes_super: Cell::new(false),
            whole_most: Cell::new(0),
        }
    }

    /// A connection is there. `takes_super`: its other end takes what has a header of the device.
    pub fn open(&self, takes_super: bool) {
        self.takes_super.set(takes_super);
        self.whole_most.set(0);
    }

    /// From now on super-packets of more than `bytes` are cut into segments before they wait: one of them would occupy the
    /// connection for too long, and a queue drops whole packets.
    pub fn limit_whole(&self, bytes: u64) {
        self.whole_most.set(bytes);
    }

    /// Whether a packet of so many bytes may wait, and be sent, with its header of the device.
    pub fn takes(&self, vnet: VnetHeader, bytes: usize) -> bool {
        self.takes_super.get() && (!vnet.is_super() || bytes as u64 <= self.whole_most.get())
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
