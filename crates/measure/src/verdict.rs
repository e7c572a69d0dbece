//! One sentence about a load: what it carried, and what limited it.

use ekiden_record::{Load, PathLimit, Shares};

use crate::message::Row;

/// A queue is seen when round trips grow by this part of the base, and by the time below.
const QUEUE_PART: f64 = 0.05;
const QUEUE_LEAST_US: f64 = 500.0;
/// So many episodes of losses tell whether they come from a queue, if their queues differ by less than this part of their mean.
const ONSETS_LEAST: usize = 3;
const ONSETS_SPREAD: f64 = 0.35;
/// An episode of losses begins with more than this part of the window where something drops what is too fast. Random loss takes fewer.
const OVERSHOOT_PART: f64 = 0.1;
const OVERSHOOT_LEAST: u32 = 8;

/// What kept a sender back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The program had nothing to send.
    Application,
    /// The receiver's window.
    ReceiveWindow,
    /// The sender's own buffer.
    SendBuffer,
    /// The path; what of it, where that can be told.
    Path(Option<PathLimit>),
}

/// The largest of the shares.
pub fn cause(load: &Load) -> Option<Cause> {
    let shares = load.shares?;
    let all = [
        (shares.application, Cause::Application),
        (shares.receive_window, Cause::ReceiveWindow),
        (shares.send_buffer, Cause::SendBuffer),
        (shares.path, Cause::Path(load.path_limit)),
    ];
    all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, cause)| cause)
}

/// What of the path limited a load, where the path did.
///
/// `rows` are the samples of each sender. A queue that grows under load shows a line; losses without a queue show a policer where an
/// episode takes much of a window at once, and random loss where it takes single segments.
pub fn path_limit(load: &Load, rows: &[&[Row]], idle_us: f64) -> Option<PathLimit> {
    let Shares { path, application, receive_window, send_buffer } = load.shares?;
    if path < application.max(receive_window).max(send_buffer) {
        return None;
    }
    let base_us = match (load.rtt_min_us as f64, idle_us) {
        (tcp, idle) if tcp > 0.0 && idle > 0.0 => tcp.min(idle),
        (tcp, idle) => tcp.max(idle),
    };
    let enough_us = (base_us * QUEUE_PART).max(QUEUE_LEAST_US);
    let stands = load.rtt.p50_us - base_us > enough_us;
    if load.retransmits == 0 {
        let slow_start = rows.iter().all(|rows| rows.last().is_some_and(|row| row.cwnd < row.ssthresh));
        return match (stands, slow_start) {
            (true, _) => Some(PathLimit::Line),
            (false, true) => Some(PathLimit::SlowStart),
            (false, false) => None,
        };
    }
    if is_of_queue(&onsets(rows, base_us), enough_us).unwrap_or(stands) {
        return Some(PathLimit::Line);
    }
    let overshoots = rows.iter().any(|rows| first_episode(rows, base_us).is_some_and(is_overshoot));
    Some(if overshoots { PathLimit::Policer } else { PathLimit::Loss })
}

/// How long queues were when episodes of losses began, in microseconds. Slow starts, which come first, are left out.
fn onsets(rows: &[&[Row]], base_us: f64) -> Vec<f64> {
    let mut onsets = Vec::new();
    for rows in rows {
        let mut last_us = None;
        for pair in rows.windows(2).filter(|pair| pair[1].retransmits > pair[0].retransmits) {
            let rtt_us = f64::from(pair[0].rtt_us);
            let is_new = last_us.is_none_or(|last_us| pair[1].at_us > last_us + 2 * rtt_us as u64 + 40_000);
            if is_new && last_us.is_some() {
                onsets.push((rtt_us - base_us).max(0.0));
            }
            last_us = Some(pair[1].at_us);
        }
    }
    onsets
}

/// Whether losses come from one queue: it is as long each time. By chance they come at any window, and so at any queue that a window
/// makes for itself. `None` of too few.
fn is_of_queue(onsets: &[f64], enough_us: f64) -> Option<bool> {
    if onsets.len() < ONSETS_LEAST {
        return None;
    }
    let count = onsets.len() as f64;
    let mean = onsets.iter().sum::<f64>() / count;
    let variance = onsets.iter().map(|onset| (onset - mean).powi(2)).sum::<f64>() / count;
    Some(mean > enough_us && variance.sqrt() < ONSETS_SPREAD * mean)
}

/// The segments sent again within two round trips of the first, and the window before.
fn first_episode(rows: &[Row], base_us: f64) -> Option<(u32, u32)> {
    let first = rows.iter().position(|row| row.retransmits > 0)?;
    let before = &rows[first.saturating_sub(1)];
    let until_us = rows[first].at_us + (2.0 * base_us) as u64 + 40_000;
    let last = rows.iter().take_while(|row| row.at_us <= until_us).last()?;
    let window = rows[..=first].iter().map(|row| row.cwnd).max().unwrap_or(before.cwnd);
    Some((last.retransmits - before.retransmits, window))
}

fn is_overshoot((lost, window): (u32, u32)) -> bool {
    lost >= OVERSHOOT_LEAST && f64::from(lost) > f64::from(window) * OVERSHOOT_PART
}

/// One sentence for people.
pub fn sentence(load: &Load) -> String {
    let carried = format!("{:.1} Mbit/s {}", load.goodput_bit_s as f64 / 1e6, load.way.word());
    let Some((shares, cause)) = load.shares.zip(cause(load)) else { return carried };
    let percent = |share: f64| (share * 100.0).round();
    match cause {
        Cause::Application => {
            format!("{carried}: the sending program limited it {} % of the time", percent(shares.application))
        }
        Cause::ReceiveWindow => format!(
            "{carried}: the receiver's window limited it {} % of the time; a larger receive buffer (tcp_rmem) helps",
            percent(shares.receive_window)
        ),
        Cause::SendBuffer => format!(
            "{carried}: the send buffer limited it {} % of the time; a larger one (tcp_wmem) helps",
            percent(shares.send_buffer)
        ),
        Cause::Path(limit) => {
            let what = match limit {
                Some(PathLimit::Line) => "the line's rate: a queue grows",
                Some(PathLimit::Loss) => "loss that no queue explains",
                Some(PathLimit::Policer) => "a policer, which drops what is too fast",
                Some(PathLimit::SlowStart) => "slow start, which had not ended",
                None => "the congestion window",
            };
            format!("{carried}: the path limited it {} % of the time, by {what}", percent(shares.path))
        }
    }
}
