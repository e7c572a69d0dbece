//! The counters of one direction of a link.

use ekiden_queue::Signals;

use crate::{Fate, Line};

/// Counts packets, IP headers included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets delivered.
    pub packets: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Packets that the policer dropped.
    pub policer_drops: u64,
    /// Packets that the queue dropped.
    pub queue_drops: u64,
    /// Packets that the queue marked instead of dropping them.
    pub queue_marks: u64,
    /// Packets lost at random.
    pub random_losses: u64,
    /// Packets lost in outages.
    pub outage_losses: u64,
    /// The largest packet that was offered.
    pub largest_packet_bytes: u64,
    /// The maximum that waited at once, in bytes.
    pub queue_max_bytes: u64,
    /// The maximum that waited at once, in packets.
    pub queue_max_packets: u64,
    /// Packets that were sent, including those lost behind the serializer.
    pub sent: u64,
    /// The sum of the times that these waited in the queue, in nanoseconds.
    pub waited_ns: u64,
}

impl Counts {
    /// A packet of `bytes` was offered to `line`, which decided its fate.
    pub fn offered(&mut self, bytes: u32, fate: Fate, line: &Line) {
        self.arrived(bytes, line.waiting_packets(), line.waiting_bytes());
        match fate {
            Fate::Arrives { .. } => self.sent(line.waited_ns()),
            Fate::Policed => self.policer_drops += 1,
            Fate::Dropped => self.queue_drops += 1,
            Fate::Lost => {
                self.sent(line.waited_ns());
                self.random_losses += 1;
            }
            Fate::Outage => {
                self.sent(line.waited_ns());
                self.outage_losses += 1;
            }
        }
    }

    /// Counts the queue's drops and marks.
    pub(crate) fn signalled(&mut self, signals: Signals) {
        self.queue_drops += signals.drops;
        self.queue_marks += signals.marks;
    }

    /// A packet is sent that waited for `waited_ns`.
    pub(crate) fn sent(&mut self, waited_ns: u64) {
        self.sent += 1;
        self.waited_ns = self.waited_ns.saturating_add(waited_ns);
    }

    /// The mean time that sent packets had waited in the queue, in microseconds; `None` if none was sent.
    pub fn mean_wait_us(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.waited_ns as f64 / self.sent as f64 / 1e3)
    }

    /// A packet of `bytes` has arrived. The other arguments are the queue's length after it.
    pub(crate) fn arrived(&mut self, bytes: u32, waiting_packets: u64, waiting_bytes: u64) {
        self.largest_packet_bytes = self.largest_packet_bytes.max(bytes.into());
        self.queue_max_bytes = self.queue_max_bytes.max(waiting_bytes);
        self.queue_max_packets = self.queue_max_packets.max(waiting_packets);
    }

    /// A packet of `bytes` came out.
    pub fn delivered(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}
