//! The window that the peer offers (RFC 9293, section 3.10.7.4; RFC 7323, section 2).

use ekiden_packet::{Segment, Seq};

#[derive(Debug)]
pub(crate) struct SendWindow {
    /// The right edge.
    edge: u64,
    /// The largest one so far.
    most: u64,
    /// SND.WL1.
    seq: Seq,
    /// The shift.
    scale: u8,
}

impl SendWindow {
    /// Before the peer's SYN: room for our SYN only.
    pub fn new() -> Self {
        Self { edge: 1, most: 0, seq: Seq(0), scale: 0 }
    }

    /// What the peer's SYN says.
    pub fn negotiate(&mut self, segment: &Segment, una: u64, scale: u8) {
        self.scale = scale;
        self.seq = segment.seq;
        self.edge = una.max(1) + u64::from(segment.window);
        self.most = segment.window.into();
    }

    /// Takes the window of a segment that acknowledges up to `acked`, unless the segment is older than the last one taken.
    pub fn update(&mut self, segment: &Segment, acked: u64) {
        if segment.seq.since(self.seq) < 0 {
            return;
        }
        self.seq = segment.seq;
        // A SYN's is not scaled (RFC 7323, section 2.2).
        let window = u64::from(segment.window) << if segment.flags.syn { 0 } else { self.scale };
        self.edge = acked + window;
        self.most = self.most.max(window);
    }

    /// Bytes from `position` to the right edge.
    pub fn beyond(&self, position: u64) -> u64 {
        self.edge.saturating_sub(position)
    }

    /// The largest window so far.
    pub fn most(&self) -> u64 {
        self.most
    }
}
