//! What Linux is told so that a socket holds as much as a scenario says. The lab sets it, and the simulator imitates it.

use crate::Tcp;

impl Tcp {
    /// `gso_max_size` of a node's devices: the largest GSO segment, which the kernel keeps and sends as one, in bytes.
    ///
    /// A socket may exceed its send buffer by one GSO segment, so that must be small compared with the buffer.
    pub fn gso_max_size(&self) -> u32 {
        const LEAST: u64 = 4_096;
        const MOST: u64 = 65_536;
        (self.send_buffer.0 / 8).clamp(LEAST, MOST) as u32
    }

    /// The third number of `tcp_wmem`: the limit of memory, in bytes, under which a socket holds `send_buffer` bytes on average
    /// while the program always has more.
    ///
    /// The limit includes the kernel's overhead per GSO segment, and the last GSO segment may exceed the limit. A program
    /// that waits for room is woken when a third is free, so the buffer's use swings below the limit; the extra tenth is
    /// measured (docs/guide/lab.md). The kernel refuses less than 4096.
    pub fn send_memory(&self) -> u64 {
        const LEAST: u64 = 4_096;
        const GSO_OVERHEAD: u64 = 1_280;
        let gso = u64::from(self.gso_max_size());
        let buffer = self.send_buffer.0;
        let full = buffer.saturating_add(GSO_OVERHEAD.saturating_mul(buffer.div_ceil(gso))).saturating_sub(gso / 2);
        (full.saturating_mul(11) / 10).max(LEAST)
    }
}
