//! S2: when a gateway that balances parallel streams can help.

use ekiden_units::Bytes;

/// Parallel streams of one group over one bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// How many.
    pub streams: u32,
    /// The largest window of each: the least of send buffer and receive window.
    pub window: Bytes,
    /// What the bottleneck leaves to the group × the round trip.
    pub bdp: Bytes,
    /// The bottleneck's queue.
    pub queue: Bytes,
    /// Whether slow start ends before a loss where a queue grows (HyStart, RFC 9406), as in the CUBIC of today's Linux.
    pub ends_in_time: bool,
}

impl Group {
    /// What can be in flight beyond what path and queue hold, when the last round of slow start has doubled the windows: it is lost.
    pub fn overshoot(&self) -> Bytes {
        let holds = self.bdp.0.saturating_add(self.queue.0);
        let most = self.window.0.saturating_mul(self.streams.into());
        Bytes(most.min(holds.saturating_mul(2)).saturating_sub(holds))
    }

    /// Whether there is something to prevent. Where slow start ends in time, or windows are too small to overflow the queue, there is not.
    /// A queue of less than an eighth of the path is not seen in round trips, so ekiden's policy leaves such streams alone.
    pub fn can_help(&self) -> bool {
        !self.ends_in_time && self.overshoot().0 > 0 && self.queue.0 > self.bdp.0 / 8
    }
}
