//! The native build of the header: its structures and its functions.
#![allow(unsafe_code)] // Only the declarations: every function takes references to structures of the same layout.

use crate::Packet;

/// `struct ekb_settings`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Settings {
    pub repeats: u32,
    /// In 65536ths.
    pub part: u32,
    pub hold_us: u32,
    /// Of these.
    pub choices: u32,
    pub missing: u32,
    /// In 65536ths, as the next.
    pub step: u32,
    pub slack: u32,
}

/// `enum ekb_choices`.
pub(crate) const OF_SENT: u32 = 1;
pub(crate) const KEEPS_EDGE: u32 = 2;
pub(crate) const DELIVERED: u32 = 4;

/// `struct ekb_group`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Group {
    state: u64,
    until_us: u64,
    pub by: u32,
    unused: u32,
}

impl Group {
    pub fn stalled(&self) -> u32 {
        self.state as u32
    }

    pub fn throttling(&self) -> u16 {
        (self.state >> 32) as u16
    }
}

/// `struct ekb_stream`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Stream {
    syn: u32,
    ack: u32,
    sent: u32,
    edge: u32,
    high: u32,
    back: u32,
    recover: u32,
    round_us: u32,
    round_from: u32,
    round_end: u32,
    pub rtt_us: u32,
    least_us: u32,
    flow: u32,
    behind: u32,
    pub limit: u32,
    stalled_in: u16,
    limited_in: u16,
    segment: u16,
    window: u16,
    seen: u16,
    /// Two bit-fields of four.
    scales: u8,
    falls: u8,
}

// The structures are `repr(C)` and of the C side's sizes (see the test below).
unsafe extern "C" {
    safe fn ekiden_window_balance_observe(
        settings: &Settings,
        group: &mut Group,
        stream: &mut Stream,
        index: u32,
        packet: &Packet,
    ) -> u32;
    safe fn ekiden_window_balance_flow(settings: &Settings, stream: &Stream, now_us: u64) -> u32;
    #[cfg(test)]
    safe fn ekiden_window_balance_sizes(sizes: &mut [u64; 4]);
}

pub(crate) fn observe(settings: &Settings, group: &mut Group, stream: &mut Stream, index: u32, packet: &Packet) -> u32 {
    ekiden_window_balance_observe(settings, group, stream, index, packet)
}

pub(crate) fn flow(settings: &Settings, stream: &Stream, now_us: u64) -> u32 {
    ekiden_window_balance_flow(settings, stream, now_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_sizes() {
        let mut sizes = [0; 4];
        ekiden_window_balance_sizes(&mut sizes);
        let ours = [size_of::<Settings>(), size_of::<Packet>(), size_of::<Group>(), size_of::<Stream>()];
        assert_eq!(sizes, ours.map(|size| size as u64));
    }
}
