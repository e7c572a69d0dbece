//! A path that drops long segments and says nothing: a black hole of path MTU discovery (RFC 2923 §2.1), as the sender of a load sees it.
//!
//! Not one full segment is acknowledged, however often it is sent again, while small messages are answered. A kernel may then find a length that
//! passes (RFC 4821, `net.ipv4.tcp_mtu_probing`): what such a load carried says how long that took, and little of the path.

use std::fmt;

use ekiden_record::Way;

use crate::latency::Answer;
use ekiden_measure_proto::row::Row;
use ekiden_measure_proto::seen::{LoadSeen, Side};

/// Thresholds of a black hole: retransmissions of a full segment, and the time for which no full segment passes, in microseconds.
const RESENT_LEAST: u32 = 2;
const STUCK_LEAST_US: u64 = 500_000;
/// Least number of small messages answered meanwhile that shows that the path was not down.
const ANSWERS_LEAST: usize = 3;
/// Threshold in full segments: fewer may only seem to be acknowledged, because of other acknowledged bytes, such as the first ones of
/// a connection.
const WHOLE_LEAST: u64 = 2;

/// Segments that do not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Where to.
    pub way: Way,
    /// Their payload.
    pub bytes: u32,
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "segments of {} bytes do not arrive on the way {}, and no router says so: a black hole of path MTU discovery. Let ICMP's \
             \"fragmentation needed\" and \"packet too big\" through, or lower the MTU of the sender's device",
            self.bytes,
            self.way.word()
        )
    }
}

/// A sender whose full segments are not acknowledged, and from when to when that was all it had, by its own clock.
struct Stuck {
    hole: Hole,
    from_us: u64,
    until_us: u64,
}

impl Stuck {
    fn of(sender: &LoadSeen) -> Option<Self> {
        let segments = sender.end.segments?;
        let full = u64::from(segments.longest_bytes);
        let is_whole = segments.whole_bytes >= WHOLE_LEAST * full;
        let last = sender.rows.last().filter(|last| !is_whole && last.retransmits >= RESENT_LEAST)?;
        let at = |is: &dyn Fn(&Row) -> bool| sender.rows.iter().find(|row| is(row)).map(|row| row.at_us);
        let from_us = at(&|row| row.sent_bytes >= full)?;
        let until_us = at(&|row| row.kernel_bytes >= WHOLE_LEAST * full).unwrap_or(last.at_us);
        let hole = Hole { way: sender.way, bytes: segments.longest_bytes };
        (until_us.saturating_sub(from_us) >= STUCK_LEAST_US).then_some(Self { hole, from_us, until_us })
    }

    /// Whether small messages passed meanwhile. Only the first half of the time counts, because an outage may be over long before a full
    /// segment is sent again.
    fn is_path_up(&self, answers: &[Answer], began_ns: u64) -> bool {
        let until_us = self.from_us.midpoint(self.until_us);
        let [from_ns, until_ns] = [self.from_us, until_us].map(|us| began_ns.saturating_add(us.saturating_mul(1_000)));
        let passed = answers.iter().filter(|answer| answer.sent_ns >= from_ns && answer.back_ns <= until_ns);
        passed.count() >= ANSWERS_LEAST
    }
}

/// The black hole that an end's own senders show when its load has failed. Messages from the other end still arrived meanwhile.
pub fn of_stalled(seen: &[LoadSeen]) -> Option<Hole> {
    seen.iter().find_map(Stuck::of).map(|stuck| stuck.hole)
}

/// What the senders of a direction show, which may be at either end.
pub fn of_way(way: Way, near: &[LoadSeen], far: &[LoadSeen], answers: &[Answer], began_ns: u64) -> Option<Hole> {
    let seen = if Side::Near.sends(way) { near } else { far };
    of_senders(seen.iter().filter(|seen| seen.way == way), answers, began_ns)
}

/// What the senders of some streams show beside small messages that were answered: nothing if full segments passed on one of them.
fn of_senders<'a>(senders: impl Iterator<Item = &'a LoadSeen>, answers: &[Answer], began_ns: u64) -> Option<Hole> {
    let stuck: Option<Vec<Stuck>> = senders.map(Stuck::of).collect();
    let stuck = stuck?;
    let first = stuck.first()?;
    stuck.iter().any(|stuck| stuck.is_path_up(answers, began_ns)).then_some(first.hole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_measure_proto::message::{Segments, StreamEnd};

    /// A sender whose first full segments are sent again and again for two seconds; then its kernel has found a length that passes.
    fn sender(whole_bytes: u64) -> LoadSeen {
        let row = |at_us, sent_bytes, kernel_bytes, retransmits| Row {
            at_us,
            sent_bytes,
            kernel_bytes,
            retransmits,
            ..Row::default()
        };
        let rows = vec![
            row(0, 23, 23, 0),
            row(1_000, 14_503, 23, 0),
            row(1_500_000, 14_503, 23, 3),
            row(2_001_000, 20_000, 9_000, 12),
        ];
        let segments = Segments { longest_bytes: 1448, whole_bytes, mtu_probing: 1 };
        let end = StreamEnd { segments: Some(segments), ..StreamEnd::default() };
        LoadSeen { way: Way::Forth, stream: 0, end, rows }
    }

    fn answers(from_ms: u64, to_ms: u64) -> Vec<Answer> {
        let at = |ms: u64| Answer { sent_ns: ms * 1_000_000, there_ns: 0, back_ns: ms * 1_000_000 + 40_000 };
        (from_ms..to_ms).step_by(20).map(at).collect()
    }

    fn shown(sender: LoadSeen, answers: &[Answer]) -> Option<u32> {
        of_senders(std::iter::once(&sender), answers, 0).map(|hole| hole.bytes)
    }

    #[test]
    fn full_segments_that_are_sent_in_vain_beside_messages_that_are_answered_show_a_black_hole() {
        assert_eq!(shown(sender(0), &answers(0, 2_000)), Some(1448));
        // One of the load's has passed.
        assert_eq!(shown(sender(2 * 1448), &answers(0, 2_000)), None);
        // An outage, after which the messages come first.
        assert_eq!(shown(sender(0), &answers(1_200, 2_000)), None);
        assert_eq!(shown(sender(0), &[]), None);
    }

    #[test]
    fn one_stream_on_which_full_segments_pass_is_enough() {
        let both = [sender(0), sender(100_000)];
        assert_eq!(of_senders(both.iter(), &answers(0, 2_000), 0), None);
        assert_eq!(of_senders(both[..1].iter(), &answers(0, 2_000), 0).map(|hole| hole.bytes), Some(1448));
    }

    #[test]
    fn an_end_that_says_nothing_of_its_segments_shows_nothing() {
        let mut old = sender(0);
        old.end.segments = None;
        assert_eq!(shown(old, &answers(0, 2_000)), None);
    }
}
