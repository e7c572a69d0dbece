//! The native build of the headers: their structures and their functions.
#![allow(unsafe_code)] // The declarations, whose functions take references to structures of the same layout, and one call.

use crate::{Block, Direction, Packet};

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
    pub shortest_us: u32,
}

/// `enum ekb_choices`.
pub(crate) const OF_SENT: u32 = 1;
pub(crate) const KEEPS_EDGE: u32 = 2;
pub(crate) const DELIVERED: u32 = 4;
pub(crate) const WATCHES: u32 = 8;

/// `struct ekb_group`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Group {
    state: u64,
    until_us: u64,
    pub by: u32,
    fastest: u32,
    fastest_us: u32,
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
    pub least_us: u32,
    pub flow: u32,
    behind: u32,
    pub limit: u32,
    stalled_in: u16,
    limited_in: u16,
    pub segment: u16,
    window: u16,
    seen: u16,
    /// Two bit-fields of four.
    scales: u8,
    doubts: u8,
}

impl Stream {
    /// From its bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..size_of::<Self>())?;
        // SAFETY: as many bytes as it has, of which all values are valid; they need not be aligned.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    pub fn is_open(&self) -> bool {
        self.seen & (OPEN | HALF_OPEN) == OPEN
    }

    pub fn scale(&self) -> u8 {
        if cfg!(target_endian = "little") { self.scales & 15 } else { self.scales >> 4 }
    }
}

/// Of `enum ekb_seen`.
const OPEN: u16 = 1;
const HALF_OPEN: u16 = 3 << 13;

/// `struct ekb_frame`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Frame {
    /// The words of the addresses, and the ports, are as they stand in the packet.
    pub source: [u32; 4],
    pub destination: [u32; 4],
    pub source_port: u16,
    pub destination_port: u16,
    pub version: u32,
    pub tcp: u32,
    rest: u32,
    options: u32,
    payload: u32,
    seq: u32,
    ack: u32,
    window: u16,
    flags: u8,
    is_timed: u8,
}

/// `enum ekb_found`, without its first.
pub(crate) const OTHER: u32 = 1;
pub(crate) const MALFORMED: u32 = 2;
pub(crate) const CUT: u32 = 3;
pub(crate) const SIGNED: u32 = 4;

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
    fn ekiden_window_balance_parse(
        bytes: *const u8,
        length: u64,
        total: u32,
        segment: u32,
        direction: u32,
        time_us: u64,
        frame: &mut Frame,
        packet: &mut Packet,
    ) -> u32;
    #[cfg(test)]
    safe fn ekiden_window_balance_sizes(sizes: &mut [u64; 5]);
}

pub(crate) fn observe(settings: &Settings, group: &mut Group, stream: &mut Stream, index: u32, packet: &Packet) -> u32 {
    ekiden_window_balance_observe(settings, group, stream, index, packet)
}

pub(crate) fn flow(settings: &Settings, stream: &Stream, now_us: u64) -> u32 {
    ekiden_window_balance_flow(settings, stream, now_us)
}

/// What was found, the headers, and the packet; `total` is at least as many as there are bytes.
pub(crate) fn parse(
    bytes: &[u8],
    total: u32,
    segment: u32,
    direction: Direction,
    time_us: u64,
) -> (u32, Frame, Packet) {
    let mut frame = Frame::default();
    let mut packet = Packet {
        time_us,
        seq: 0,
        ack: 0,
        length: 0,
        segment: 0,
        scale: -1,
        window: 0,
        flags: 0,
        direction,
        blocks: 0,
        block: [Block::default(); 4],
    };
    // SAFETY: a slice's start and length; the others are references.
    let found = unsafe {
        ekiden_window_balance_parse(
            bytes.as_ptr(),
            bytes.len() as u64,
            total,
            segment,
            direction as u32,
            time_us,
            &mut frame,
            &mut packet,
        )
    };
    (found, frame, packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_sizes() {
        let mut sizes = [0; 5];
        ekiden_window_balance_sizes(&mut sizes);
        let ours =
            [size_of::<Settings>(), size_of::<Packet>(), size_of::<Group>(), size_of::<Stream>(), size_of::<Frame>()];
        assert_eq!(sizes, ours.map(|size| size as u64));
    }
}
