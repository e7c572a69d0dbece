//! Packets of one stream that a gateway delays: they leave in their order, at the rate of the stream's limit.

use std::collections::VecDeque;

use ekiden_units::Time;
use ekiden_window_balance::Pace;

use super::Verdict;
use crate::packet::Packet;

/// The queue of one stream. While packets wait in it, exactly one release is planned for it.
#[derive(Default)]
pub(super) struct Shaper {
    waiting: VecDeque<Packet>,
    /// When the rate lets the next packet leave.
    free_at: Time,
}

impl Shaper {
    /// A packet arrives. It waits if others do, or if the rate does not let it leave yet.
    pub fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        let is_planned = !self.waiting.is_empty();
        if !is_planned && self.free_at <= now {
            return Verdict::Passes;
        }
        self.waiting.push_back(*packet);
        Verdict::Waits { release: (!is_planned).then_some(self.free_at) }
    }

    /// The next packet leaves.
    pub fn take(&mut self) -> Option<Packet> {
        self.waiting.pop_front()
    }

    /// A packet with this payload has left. Without a limit the next one may follow at once.
    pub fn left(&mut self, now: Time, payload: u32, pace: Option<Pace>) {
        let takes_ns = |pace: Pace| u64::from(payload) * u64::from(pace.in_us) * 1000 / u64::from(pace.bytes.max(1));
        self.free_at = now + Time(pace.map_or(0, takes_ns));
    }

    /// When the next waiting packet may leave.
    pub fn next(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.free_at)
    }
}
