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
    pub idle_us: u64,
    /// 1 or 0.
    pub of_sent: u32,
}

/// `struct ekb_group`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Group {
    until_us: u64,
    pub throttling: u32,
    pub stalled: u32,
    pub by: u32,
}

/// `struct ekb_stream`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Stream {
    round_us: u64,
    round_ack: u32,
    round_sent: u32,
    round_end: u32,
    pub rtt_us: u32,
    flow: u32,
    ack: u32,
    sent: u32,
    fin: u32,
    repeats: u32,
    segment: u32,
    stalled_in: u32,
    limited_in: u32,
    limit: u32,
    seen: u32,
    scale: u32,
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
    safe fn ekiden_window_balance_flow(settings: &Settings, stream: &Stream) -> u32;
    #[cfg(test)]
    safe fn ekiden_window_balance_sizes(sizes: &mut [u64; 4]);
}

pub(crate) fn observe(settings: &Settings, group: &mut Group, stream: &mut Stream, index: u32, packet: &Packet) -> u32 {
    ekiden_window_balance_observe(settings, group, stream, index, packet)
}

pub(crate) fn flow(settings: &Settings, stream: &Stream) -> u32 {
    ekiden_window_balance_flow(settings, stream)
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
