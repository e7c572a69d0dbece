//! What waits at an end of a simulated tunnel's connection, and when it is written.

use ekiden_queue::{QueueLength, Signals, TunnelQueue};
use ekiden_scenario::Tunnel;
use ekiden_units::Time;

use crate::packet::Packet;

/// The queue in front of a connection.
pub(crate) struct Ingress {
    queue: TunnelQueue<Packet>,
    /// Packets leave it while fewer bytes of the stream than this are written and not sent. `None`: while the send buffer has
    /// room for them.
    unsent: Option<u64>,
}

/// The state of a connection's send buffer, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub buffer: u64,
    pub room: u64,
    /// Written, and not yet sent once.
    pub unsent: u64,
}

impl Ingress {
    /// For packets of at most `mtu` bytes.
    pub fn new(tunnel: &Tunnel, mtu: u32, salt: u64) -> Self {
        let queue = TunnelQueue::new(tunnel.queue, tunnel.pull, mtu, salt);
        Self { queue, unsent: tunnel.pull.map(|pull| pull.unsent.0) }
    }

    /// A packet arrives. Returns how many the queue drops for it.
    pub fn push(&mut self, now: Time, packet: Packet) -> u64 {
        self.queue.push(now.0, packet)
    }

    /// The next packet to write, with `extra` bytes before it. Counts in `signals` what CoDel drops and marks.
    pub fn pop(&mut self, now: Time, sending: Sending, extra: u64, signals: &mut Signals) -> Option<Packet> {
        let may_write = match self.unsent {
            Some(most) => sending.unsent < most && sending.room > 0,
            // A packet larger than the whole buffer is written in parts.
            None => {
                let bytes = extra + u64::from(self.queue.next_bytes()?);
                sending.room >= bytes.min(sending.buffer)
            }
        };
        if may_write { self.queue.pop(now.0, signals) } else { None }
    }

    /// Whether packets leave it only when those before them have been sent.
    pub fn pulls(&self) -> bool {
        self.unsent.is_some()
    }

    /// All that waits is lost.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    pub fn length(&self) -> QueueLength {
        self.queue.length()
    }
}
