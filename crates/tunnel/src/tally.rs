//! Counts of packets.

use std::cell::Cell;

/// Packets and their bytes, without the tunnel's own framing.
#[derive(Debug, Default)]
pub struct Tally {
    packets: Cell<u64>,
    bytes: Cell<u64>,
}

impl Tally {
    /// One more packet.
    pub fn add(&self, bytes: usize) {
        self.packets.set(self.packets.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// How many packets there were.
    pub fn packets(&self) -> u64 {
        self.packets.get()
    }

    /// How many bytes they had.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}
