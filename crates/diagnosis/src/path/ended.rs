//! What ended a pass: losses of a full buffer, or by chance, or none.

use crate::episodes::episodes;

use super::base::{Base, QUEUE_LEAST_US};
use super::trace::{Delay, Trace, longest_us};

/// An overflow drops more than this part of the window where no queue is seen, and more than this many segments in any case; random loss
/// drops fewer.
const OVERFLOW_PART: f64 = 0.08;
pub const OVERFLOW_LEAST: u32 = 6;
/// A queue of this part of the longest counts as full.
pub const FULL: f64 = 0.8;

/// Least part that a policer drops of what a sender sends that does not react to losses.
const LOST_PART: f64 = 0.05;

/// What ended a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// No segment was lost.
    NoLoss,
    /// Many were lost at once: a full buffer, or a policer.
    Overflow,
    /// Few segments were lost.
    FewLosses,
}

/// What ended a pass.
pub fn end(trace: &Trace<'_>, delays: &[Delay], base: Base) -> End {
    let first = episodes(trace.sent, 0).first().map_or(0, |episode| episode.lost);
    // What came twice had not been lost: packets had overtaken each other.
    let lost = first.saturating_sub(trace.came_twice());
    let is_much = f64::from(lost) > f64::from(trace.window_before_loss()) * OVERFLOW_PART;
    match lost {
        0 => End::NoLoss,
        _ if lost > OVERFLOW_LEAST && (is_much || is_queue_full(delays, base)) => End::Overflow,
        _ => End::FewLosses,
    }
}

/// Whether more was lost in the second pass than random loss mostly takes.
pub fn loses_much(second: &Trace<'_>) -> bool {
    let (lost, delivered) = second.losses();
    f64::from(lost.saturating_sub(second.came_twice())) > f64::from(delivered) * LOST_PART
}

/// The queue that the last segment before the first gap met, in microseconds.
pub fn last_us(delays: &[Delay]) -> f64 {
    longest_us(&delays[delays.len().saturating_sub(5)..])
}

/// Whether there was a queue before the first gap that was about as long as the longest one.
pub fn is_queue_full(delays: &[Delay], base: Base) -> bool {
    let most_us = longest_us(delays);
    most_us >= base.spread_us + 2.0 * QUEUE_LEAST_US && last_us(delays) >= FULL * most_us
}
