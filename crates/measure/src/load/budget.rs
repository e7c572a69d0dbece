//! When a traced sender ends: it has shown what it can show, or has sent what it may.

use ekiden_net::tcp_info::TcpInfo;

use crate::episodes::episodes;
use crate::message::{Row, Trace};

/// After the first loss so many round trips and so long pass until its episode is over.
const EPISODE_RTTS: u64 = 3;
const EPISODE_US: u64 = 50_000;

/// Whether it ends now. `rows` are the samples before.
pub(super) fn is_spent(trace: Trace, row: &Row, info: &TcpInfo, rows: &[Row]) -> bool {
    let used = info.sent_bytes;
    match trace {
        Trace::No => false,
        Trace::UntilLoss { bdps_most, bytes_least } => {
            used > budget(bdps_most, bytes_least, row, rows) || has_lost(row, rows)
        }
        Trace::Budget { spent_bytes, bdps_most, bytes_least } => {
            used.saturating_add(spent_bytes) > budget(bdps_most, bytes_least, row, rows)
        }
        Trace::Episodes { count } => episodes(rows.iter().chain([row]), 0).len() > count as usize,
    }
}

fn budget(bdps_most: f64, bytes_least: u64, row: &Row, rows: &[Row]) -> u64 {
    bytes_least.max((bdps_most * bdp(row, rows)) as u64)
}

/// What was acknowledged in the best of the round trips so far, in bytes.
fn bdp(row: &Row, rows: &[Row]) -> f64 {
    let rtt_us = u64::from(row.rtt_min_us.max(1_000));
    let at = |at_us: u64| {
        let next = rows.partition_point(|row| row.at_us <= at_us);
        next.checked_sub(1).map_or(0, |last| rows[last].kernel_bytes)
    };
    let best =
        rows.iter().rev().take(2_000).map(|row| row.kernel_bytes.saturating_sub(at(row.at_us.saturating_sub(rtt_us))));
    best.max().unwrap_or(0) as f64
}

/// Whether an episode of losses has come and gone.
fn has_lost(row: &Row, rows: &[Row]) -> bool {
    let first = rows.iter().find(|row| row.retransmits > 0);
    first.is_some_and(|first| row.at_us > first.at_us + EPISODE_RTTS * u64::from(first.rtt_us) + EPISODE_US)
}
