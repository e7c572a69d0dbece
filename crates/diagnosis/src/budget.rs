//! When a traced sender ends: it has shown what it can show, or has sent what it may.

use crate::episodes::episodes;
use ekiden_measure_proto::message::Trace;
use ekiden_measure_proto::row::Row;

/// Duration of an episode of losses from its first loss on: this many round trips, plus this time in microseconds.
const EPISODE_RTTS: u64 = 3;
const EPISODE_US: u64 = 50_000;

/// The least that a sender may hand over, in bytes, even if a budget is spent: a look at what was sent then shows that it is.
const LEAST: u64 = 32 << 10;

/// How many bytes a sender may have handed over. `seen` are the latest sample and those before it; `None` before the first.
pub fn allowance(trace: Trace, seen: Option<(&Row, &[Row])>) -> u64 {
    let budget =
        |bdps_most, bytes_least| seen.map_or(bytes_least, |(row, rows)| so_far(bdps_most, bytes_least, row, rows));
    match trace {
        Trace::No | Trace::Episodes { .. } => u64::MAX,
        Trace::UntilLoss { bdps_most, bytes_least } => budget(bdps_most, bytes_least),
        Trace::Budget { spent_bytes, bdps_most, bytes_least } => {
            budget(bdps_most, bytes_least).saturating_sub(spent_bytes).max(LEAST)
        }
    }
}

/// Whether the sender ends now. `used` is the number of bytes sent, retransmissions included; `rows` are the samples before `row`.
pub fn is_spent(trace: Trace, row: &Row, used: u64, rows: &[Row]) -> bool {
    match trace {
        Trace::No => false,
        Trace::UntilLoss { bdps_most, bytes_least } => {
            used >= so_far(bdps_most, bytes_least, row, rows) || has_lost(row, rows)
        }
        Trace::Budget { spent_bytes, bdps_most, bytes_least } => {
            used.saturating_add(spent_bytes) >= so_far(bdps_most, bytes_least, row, rows)
        }
        Trace::Episodes { count } => episodes(rows.iter().chain([row]), 0).len() > count as usize,
    }
}

/// The bytes of a budget, by the bandwidth-delay product that the samples of a whole load show.
pub fn budget(bdps_most: f64, bytes_least: u64, rows: &[Row]) -> u64 {
    rows.last().map_or(bytes_least, |row| so_far(bdps_most, bytes_least, row, rows))
}

fn so_far(bdps_most: f64, bytes_least: u64, row: &Row, rows: &[Row]) -> u64 {
    bytes_least.max((bdps_most * bdp(row, rows)) as u64)
}

/// The least time over which a rate is computed, in microseconds: samples are not taken more often.
const RATE_US: u64 = 1_000;

/// The bandwidth-delay product in bytes: the most that was delivered in one round trip so far. For round trips shorter than `RATE_US` it is
/// a proportional part of what was delivered in that time. Delivered segments are counted, which TCP knows by selective acknowledgements:
/// bytes behind a hole are acknowledged late and all at once. Where a sample was late, what was delivered since the one before is scaled
/// to the round trip.
fn bdp(row: &Row, rows: &[Row]) -> f64 {
    let over_us = u64::from(row.rtt_min_us).max(RATE_US);
    let delivered = |row: &Row| {
        let next = rows.partition_point(|before| before.at_us.saturating_add(over_us) <= row.at_us);
        let (at_us, before) = next.checked_sub(1).map_or((0, 0), |last| (rows[last].at_us, rows[last].delivered));
        let part = over_us as f64 / row.at_us.saturating_sub(at_us).max(over_us) as f64;
        f64::from(row.delivered.saturating_sub(before)) * part
    };
    let recent = || rows.iter().rev().take(2_000);
    let best = recent().map(delivered).fold(0.0, f64::max);
    // Where none is missing, what is acknowledged was in the segments that were delivered.
    let in_each = recent().map(|row| row.kernel_bytes as f64 / f64::from(row.delivered.max(1)));
    let in_each = in_each.fold(0.0, f64::max);
    best * in_each * f64::from(row.rtt_min_us) / over_us as f64
}

/// Whether an episode of losses has begun and ended.
fn has_lost(row: &Row, rows: &[Row]) -> bool {
    let first = rows.iter().find(|row| row.retransmits > 0);
    first.is_some_and(|first| row.at_us > first.at_us + EPISODE_RTTS * u64::from(first.rtt_us) + EPISODE_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: Trace = Trace::UntilLoss { bdps_most: 10.0, bytes_least: 300_000 };

    /// Looks every 200 µs at a sender of 1 kB/µs.
    fn rows(rtt_min_us: u32) -> Vec<Row> {
        let row = |at: u64| Row {
            at_us: at * 200,
            kernel_bytes: at * 200_000,
            delivered: at as u32 * 200,
            rtt_min_us,
            ..Row::default()
        };
        (0..=100).map(row).collect()
    }

    #[test]
    fn the_budget_is_of_the_round_trip_also_where_looks_are_not_so_close() {
        assert_eq!(allowance(TRACE, None), 300_000);
        for (rtt_us, bytes) in [(10, 300_000), (100, 1_000_000), (1_000, 10_000_000), (4_000, 40_000_000)] {
            let rows = rows(rtt_us);
            let (last, before) = rows.split_last().unwrap();
            assert_eq!(allowance(TRACE, Some((last, before))), bytes, "{rtt_us}");
        }
    }

    #[test]
    fn what_is_acknowledged_at_once_after_a_loss_is_no_larger_product() {
        let mut rows = rows(1_000);
        // A hole for 8 ms, and then all that had come behind it.
        let (from, until) = (40, 80);
        let before = rows[from].kernel_bytes;
        rows[from..until].iter_mut().for_each(|row| row.kernel_bytes = before);
        let (last, before) = rows.split_last().unwrap();
        assert_eq!(allowance(TRACE, Some((last, before))), 10_000_000);
    }

    #[test]
    fn what_came_while_looks_were_late_is_no_larger_product() {
        let mut rows = rows(1_000);
        rows.drain(40..80);
        let (last, before) = rows.split_last().unwrap();
        assert_eq!(allowance(TRACE, Some((last, before))), 10_000_000);
    }

    #[test]
    fn what_is_spent_leaves_enough_to_be_told_so() {
        let trace = Trace::Budget { spent_bytes: 1_000_000, bdps_most: 10.0, bytes_least: 300_000 };
        assert_eq!(allowance(trace, None), LEAST);
        assert!(is_spent(trace, &Row::default(), 0, &[]));
    }

    #[test]
    fn a_second_load_knows_from_the_first_what_it_may_send() {
        // 4 MB of ten products of 1 MB are sent.
        let first = rows(1_000);
        let bytes_least = budget(10.0, 300_000, &first);
        assert_eq!(bytes_least, 10_000_000);
        let second = Trace::Budget { spent_bytes: 4_000_000, bdps_most: 10.0, bytes_least };
        assert_eq!(allowance(second, None), 6_000_000);
        assert!(!is_spent(second, &Row::default(), 5_999_999, &[]));
        assert!(is_spent(second, &Row::default(), 6_000_000, &[]));
        assert_eq!(budget(10.0, 300_000, &[]), 300_000);
    }
}
