//! When a node's answers to frames would have come, had the frames been sent when they were due.

use super::TICK_NS;

/// By how much a stamp is moved at most. A thread that was stopped for longer is not made up for: hosts measure round trips by
/// their own clocks, and would find them shorter than the path.
const MOST_NS: u64 = TICK_NS;

/// When frames were sent to a node, and when they were due.
///
/// The kernel handles a frame while the emulator sends it, so what a node answers at once is stamped meanwhile. Frames are
/// sent early or late by as much as half a turn. If answers counted from their stamps, every link of a path would add its
/// own error, always of the same sign where the delay is shorter than a turn; and what a turn sends at once would be a burst
/// for the next link. So a stamp is moved to where it would be if each frame had been sent when it was due, by [`MOST_NS`] at most.
#[derive(Default)]
pub(super) struct Sent {
    /// Times of sending and when what was sent then was due; both ascend.
    points: Vec<(u64, u64)>,
}

impl Sent {
    pub fn clear(&mut self) {
        self.points.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Frames were sent between the two times of `sent_ns`; the first and the last of them were due at `due_ns`.
    pub fn note(&mut self, sent_ns: [u64; 2], due_ns: [u64; 2]) {
        self.points.extend(sent_ns.into_iter().zip(due_ns));
    }

    /// When a frame that arrived at `stamp_ns` would have arrived. What arrived before or after the sending is no answer.
    pub fn meant_ns(&self, stamp_ns: u64) -> u64 {
        let after = self.points.partition_point(|(sent_ns, _)| *sent_ns < stamp_ns);
        let (Some(&(from_ns, from_due_ns)), Some(&(to_ns, to_due_ns))) =
            (after.checked_sub(1).and_then(|before| self.points.get(before)), self.points.get(after))
        else {
            return stamp_ns;
        };
        let part = (stamp_ns - from_ns) as f64 / (to_ns - from_ns) as f64;
        let meant_ns = from_due_ns + (to_due_ns.saturating_sub(from_due_ns) as f64 * part) as u64;
        meant_ns.clamp(stamp_ns.saturating_sub(MOST_NS), stamp_ns + MOST_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_from_when_the_frames_were_due() {
        let mut sent = Sent::default();
        // A late burst, sent within 30 ns, of frames that were due 1,000 ns apart; then one that was early.
        sent.note([10_000, 10_030], [7_000, 10_000]);
        sent.note([10_040, 10_050], [12_000, 12_000]);
        assert_eq!([10_001, 10_010, 10_020, 10_030].map(|ns| sent.meant_ns(ns)), [7_100, 8_000, 9_000, 10_000]);
        assert_eq!([10_041, 10_050].map(|ns| sent.meant_ns(ns)), [12_000; 2]);
    }

    #[test]
    fn a_stop_of_the_thread_is_not_made_up_for() {
        let mut sent = Sent::default();
        sent.note([50_000_000, 50_000_010], [45_000_000, 45_000_000]);
        assert_eq!(sent.meant_ns(50_000_010), 50_000_010 - MOST_NS);
        sent.clear();
        sent.note([50_000_000, 50_000_010], [51_000_000, 51_000_000]);
        assert_eq!(sent.meant_ns(50_000_010), 50_000_010 + MOST_NS);
    }

    #[test]
    fn what_came_before_or_after_the_sending_is_no_answer() {
        let mut sent = Sent::default();
        assert_eq!(sent.meant_ns(500), 500);
        sent.note([1_000, 1_010], [900, 900]);
        assert_eq!([1_000, 1_011].map(|ns| sent.meant_ns(ns)), [1_000, 1_011]);
        sent.clear();
        assert_eq!(sent.meant_ns(1_005), 1_005);
    }
}
