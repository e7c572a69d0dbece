//! The length of a queue.

/// What waits in a queue. The packet on the line is not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Packets.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
}
