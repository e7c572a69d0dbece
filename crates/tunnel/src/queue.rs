//! The queue in front of a connection.

use std::cell::{Cell, RefCell};

use ekiden_net::clock::monotonic_ns;
use ekiden_queue::{QueueLength, Queued, Signals, TunnelQueue};
use tokio::sync::Notify;

use crate::buffer::Buffer;
use crate::config::QueueSettings;
use crate::ecn;
use crate::tally::Tally;
use crate::vnet::VnetHeader;

/// A packet that waits.
#[derive(Debug)]
pub struct Packet {
    /// Its frame, as it is sent. The packet is the last part of it.
    pub frame: Buffer,
    /// The number of its flow.
    pub flow: u64,
    /// The length of the packet.
    pub bytes: usize,
}

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        self.bytes as u32
    }

    fn flow(&self) -> u64 {
        self.flow
    }

    fn mark(&mut self) -> bool {
        let frame = self.frame.bytes_mut();
        let at = frame.len() - self.bytes;
        ecn::mark(&mut frame[at..])
    }
}

/// The packets that wait for one connection, and the task that waits for packets.
pub struct Outgoing {
    waiting: RefCell<TunnelQueue<Packet>>,
    arrived: Notify,
    signals: Cell<Signals>,
    taken: Tally,
    lost: Cell<u64>,
    longest: Cell<QueueLength>,
    /// The other end takes packets with a device header.
    takes_super: Cell<bool>,
    /// The length of the longest super-packet that is sent whole.
    whole_most: Cell<u64>,
}

impl Outgoing {
    /// An empty queue. Which flows share a queue in it depends on `salt`.
    pub fn new(settings: &QueueSettings, mtu: u16, salt: u64) -> Self {
        let waiting = TunnelQueue::new(settings.limit, settings.pull, mtu.into(), salt);
        Self {
            waiting: RefCell::new(waiting),
            arrived: Notify::new(),
            signals: Cell::default(),
            taken: Tally::default(),
            lost: Cell::new(0),
            longest: Cell::default(),
            takes_super: Cell::default(),
            whole_most: Cell::default(),
        }
    }

    /// There is a connection. `takes_super`: its other end takes packets with a device header.
    pub fn open(&self, takes_super: bool) {
        self.takes_super.set(takes_super);
        self.whole_most.set(0);
    }

    /// From now on super-packets of more than `bytes` are cut into segments before they wait: one of them would occupy the
    /// connection for too long, and a queue drops whole packets.
    pub fn limit_whole(&self, bytes: u64) {
        self.whole_most.set(bytes);
    }

    /// Whether a packet of this many bytes may wait, and be sent, with its device header.
    pub fn takes(&self, vnet: VnetHeader, bytes: usize) -> bool {
        self.takes_super.get() && (!vnet.is_super() || bytes as u64 <= self.whole_most.get())
    }

    /// Appends a packet.
    pub fn push(&self, packet: Packet) {
        let dropped = self.waiting.borrow_mut().push(monotonic_ns(), packet);
        self.add(Signals { drops: dropped, marks: 0 });
        let (now, most) = (self.length(), self.longest.get());
        self.longest.set(QueueLength { packets: now.packets.max(most.packets), bytes: now.bytes.max(most.bytes) });
        self.arrived.notify_one();
    }

    /// The next packet, if one waits.
    pub fn pop(&self) -> Option<Packet> {
        let mut signals = Signals::default();
        let packet = self.waiting.borrow_mut().pop(monotonic_ns(), &mut signals);
        self.add(signals);
        packet.inspect(|packet| self.taken.add(packet.bytes))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.length().packets == 0
    }

    /// Completes when a packet may have come.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// All waiting packets are lost, because the connection has broken.
    pub fn clear(&self) {
        let mut waiting = self.waiting.borrow_mut();
        self.lost.set(self.lost.get() + waiting.length().packets);
        waiting.clear();
    }

    /// A packet is lost, because there is no connection.
    pub fn lose(&self) {
        self.lost.set(self.lost.get() + 1);
    }

    /// What waits.
    pub fn length(&self) -> QueueLength {
        self.waiting.borrow().length()
    }

    /// The greatest numbers of packets and of bytes that have waited.
    pub fn longest(&self) -> QueueLength {
        self.longest.get()
    }

    /// The packets that were taken to be sent.
    pub fn taken(&self) -> &Tally {
        &self.taken
    }

    /// How many packets were lost because the connection was not there or broke.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// How many packets were dropped and marked so far.
    pub fn signals(&self) -> Signals {
        self.signals.get()
    }

    fn add(&self, more: Signals) {
        let mut all = self.signals.get();
        all += more;
        self.signals.set(all);
    }
}
