//! What one direction of a link has done.

use crate::{Fate, Line};

/// Counts packets, IP headers included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets delivered.
    pub packets: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Packets that the queue dropped.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub random_losses: u64,
    /// The largest packet that was offered.
    pub largest_packet_bytes: u64,
    /// The most that waited at once, in bytes.
    pub queue_max_bytes: u64,
    /// The most that waited at once, in packets.
    pub queue_max_packets: u64,
}

impl Counts {
    /// A packet of `bytes` was offered to `line`, which settled its fate.
    pub fn offered(&mut self, bytes: u32, fate: Fate, line: &Line) {
        self.arrived(bytes, line.waiting_packets(), line.waiting_bytes());
        match fate {
            Fate::Arrives { .. } => {}
            Fate::Dropped => self.queue_drops += 1,
            Fate::Lost => self.random_losses += 1,
        }
    }

    /// A packet of `bytes` has arrived, after which so many waited.
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
