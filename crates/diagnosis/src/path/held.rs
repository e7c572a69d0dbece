//! The rate that holds after the first losses: a policer's, or a shaper's.

use ekiden_units::quantile;

use super::base::{Base, SHORT_QUEUE_US};
use super::trace::Trace;

/// Threshold of a queue, as a part of the base round trip: behind a policer no queue makes three quarters of round trips longer by more.
const STANDS: f64 = 0.25;
/// After the burst the rate must hold for at least this many round trips, and this time in microseconds; with this many packets in each
/// round trip; and the rates of both halves of the time may differ by no more than this part. For the best rate the time is divided into
/// this many parts.
const HELD_RTTS: f64 = 3.0;
const HELD_LEAST_US: f64 = 20_000.0;
const HELD_PACKETS: f64 = 1.2;
const HELD_HALVES: f64 = 0.25;
const HELD_PARTS: f64 = 8.0;
/// The part of the segments that came afterwards which is evaluated.
const RIPE: f64 = 0.9;

/// The rate from one round trip after the first losses on, if it held.
pub struct Held {
    /// In bit/s.
    pub rate: f64,
    /// The rate in the best part of that time, in bit/s: a sender that pauses leaves some of a policer's rate unused.
    pub most: f64,
    /// By what part jitter may have changed it.
    pub unsure: f64,
    /// A queue stood three quarters of that time.
    pub has_queue: bool,
    /// The longest time in which nothing came, in microseconds.
    pub pause_us: f64,
}

/// The rate after the first losses, if there was enough data and both halves of the time were alike.
pub fn held(trace: &Trace<'_>, base: Base) -> Option<Held> {
    let from = trace.arrived.get(trace.first_hole()?)?.at_us as f64 + base.rtt_us;
    let rows = &trace.arrived[trace.arrived.partition_point(|row| (row.at_us as f64) < from)..];
    let (first, last) = rows.first().zip(rows.last())?;
    // The last segments are sent again and again, one by one.
    let most =
        first.delivered.saturating_add((f64::from(last.delivered.saturating_sub(first.delivered)) * RIPE) as u32);
    let until_us = rows.get(rows.partition_point(|row| row.delivered < most))?.at_us as f64;
    let span_us = until_us - from;
    if span_us < (HELD_RTTS * base.rtt_us).max(HELD_LEAST_US) {
        return None;
    }
    let middle_us = from + span_us / 2.0;
    let (a, b) = trace.passed_bit_s(from, middle_us).zip(trace.passed_bit_s(middle_us, until_us))?;
    let rate = (a + b) / 2.0;
    let sent = trace.sent.iter().filter(|row| (from..until_us).contains(&(row.at_us as f64)));
    let mut rtts_us: Vec<_> = sent.map(|row| row.rtt_us).collect();
    rtts_us.sort_unstable();
    let queued_us = quantile::above(&rtts_us, 25).map_or(0.0, |rtt_us| f64::from(rtt_us) - base.rtt_us);
    let has_queue = queued_us > (STANDS * base.rtt_us).max(SHORT_QUEUE_US) + base.spread_us;
    let packets = rate * (base.rtt_us + if has_queue { queued_us } else { 0.0 }) / 8e6 / trace.packet_bytes;
    let does_hold = (a - b).abs() <= HELD_HALVES * a.max(b) && packets >= HELD_PACKETS;
    let part_us = span_us / HELD_PARTS;
    let parts = (0..HELD_PARTS as u32).map(|part| from + f64::from(part) * part_us);
    let of_parts = parts.filter_map(|from_us| trace.passed_bit_s(from_us, from_us + part_us));
    let most = of_parts.fold(rate, f64::max);
    let came = rows.iter().take_while(|row| row.at_us as f64 <= until_us).map(|row| row.at_us as f64);
    let pause_us = came.clone().zip(came.skip(1)).map(|(before, after)| after - before).fold(0.0, f64::max);
    does_hold.then_some(Held { rate, most, unsure: base.spread_us / span_us, has_queue, pause_us })
}
