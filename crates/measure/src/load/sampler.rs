//! Looks at every stream of an end, evenly spaced in time, and notes how late each look was.

use std::sync::atomic::Ordering;

use ekiden_net::clock::{monotonic_ns, sleep_until};
use ekiden_net::mtu_probing::mtu_probing;
use ekiden_net::schedule;
use ekiden_net::tcp_info::tcp_info_with_memory;
use ekiden_tcp_info::TcpInfo;

use super::Shared;
use super::stream::Stream;
use ekiden_diagnosis::budget;
use ekiden_measure_proto::message::{LOOKS_MOST, ROWS_MOST, Segments};
use ekiden_measure_proto::row::Row;

/// How often a traced load is looked at, in microseconds.
const TRACE_US: u64 = 200;
/// The first looks, and those before the load begins, come every millisecond.
const FIRST_LOOKS: usize = 40;
const FIRST_NS: u64 = 1_000_000;

/// What all looks have seen.
#[derive(Default)]
pub(super) struct Sampled {
    /// Of each stream.
    pub rows: Vec<Vec<Row>>,
    /// How long the segments of each stream were.
    pub segments: Vec<Segments>,
    /// How late each look was, in microseconds.
    pub late_us: Vec<u32>,
}

/// Follows how long the segments of a stream are.
#[derive(Clone, Default)]
struct Lengths {
    segments: Segments,
    /// Bytes that were acknowledged at the look before.
    acked_bytes: Option<u64>,
}

impl Lengths {
    fn see(&mut self, info: &TcpInfo, sends: bool) {
        let Segments { longest_bytes, whole_bytes, .. } = &mut self.segments;
        if !sends {
            // A kernel takes the longest for no less than this before any has come.
            let arrived = Some(info.arrived_mss_bytes).filter(|bytes| *bytes > TcpInfo::ASSUMED_MSS_BYTES);
            *longest_bytes = (*longest_bytes).max(arrived.unwrap_or_default());
            return;
        }
        if info.mss_bytes > *longest_bytes {
            (*longest_bytes, *whole_bytes) = (info.mss_bytes, 0);
        }
        let before = self.acked_bytes.replace(info.acked_bytes).unwrap_or(info.acked_bytes);
        if info.mss_bytes == *longest_bytes {
            *whole_bytes = whole_bytes.saturating_add(info.acked_bytes.saturating_sub(before));
        }
    }
}

/// Looks until the load is stopped, every `interval_us` but no more often than `least_ns`.
pub(super) fn run(shared: &Shared, interval_us: u32, trace: bool, least_ns: u64) -> Sampled {
    let mut sampled = Sampled { rows: vec![Vec::new(); shared.streams.len()], ..Sampled::default() };
    let mut lengths = vec![Lengths::default(); shared.streams.len()];
    // Of more, every second is given up, and from then on they come half as often.
    let looks_most = LOOKS_MOST.min(ROWS_MOST / shared.streams.len().max(1));
    schedule::exact_timers();
    let mut interval_ns = (if trace { TRACE_US } else { u64::from(interval_us) } * 1_000).max(least_ns);
    let mut due_ns = monotonic_ns();
    loop {
        let is_last = shared.is_stopped();
        let now_ns = monotonic_ns();
        if shared.began_ns.load(Ordering::Acquire) != 0 {
            sampled.late_us.push(u32::try_from(now_ns.saturating_sub(due_ns) / 1_000).unwrap_or(u32::MAX));
            for ((stream, rows), lengths) in shared.streams.iter().zip(&mut sampled.rows).zip(&mut lengths) {
                let Ok(info) = tcp_info_with_memory(&stream.socket) else { continue };
                lengths.see(&info, stream.sends);
                stream.clamp();
                let row = row(shared.since_begin_us(monotonic_ns()), stream, &info);
                if stream.sends && trace {
                    let allowance = budget::allowance(stream.trace, Some((&row, rows)));
                    stream.allowance.fetch_max(allowance, Ordering::Relaxed);
                    if budget::is_spent(stream.trace, &row, info.sent_bytes, rows) {
                        stream.is_spent.store(true, Ordering::Relaxed);
                    }
                }
                // Of a traced stream only what changed is of interest.
                if !trace || is_last || rows.last().is_none_or(|last| has_changed(last, &row)) {
                    rows.push(row);
                }
            }
        }
        if is_last {
            let mtu_probing = mtu_probing();
            sampled.segments = lengths.into_iter().map(|seen| Segments { mtu_probing, ..seen.segments }).collect();
            return sampled;
        }
        if sampled.late_us.len() >= looks_most {
            sampled.late_us = every_second(&sampled.late_us);
            sampled.rows.iter_mut().for_each(|rows| *rows = every_second(rows));
            interval_ns *= 2;
        }
        // Short loads are to be seen, too.
        let begins = sampled.late_us.len() < FIRST_LOOKS;
        let next_ns = if begins { interval_ns.min(FIRST_NS.max(least_ns)) } else { interval_ns };
        // A look that was missed is not made up for.
        due_ns = (due_ns + next_ns).max(monotonic_ns().saturating_sub(interval_ns));
        sleep_until(due_ns);
    }
}

fn has_changed(last: &Row, row: &Row) -> bool {
    (last.kernel_bytes, last.sent_bytes, last.retransmits, last.delivered, last.lost)
        != (row.kernel_bytes, row.sent_bytes, row.retransmits, row.delivered, row.lost)
}

fn every_second<T: Copy>(of: &[T]) -> Vec<T> {
    of.iter().skip(1).step_by(2).copied().collect()
}

fn row(at_us: u64, stream: &Stream, info: &TcpInfo) -> Row {
    let received = !stream.sends;
    Row {
        at_us,
        program_bytes: stream.program_bytes.load(Ordering::Relaxed),
        kernel_bytes: if received { info.received_bytes } else { info.acked_bytes },
        sent_bytes: if received { 0 } else { info.sent_bytes.saturating_sub(info.resent_bytes) },
        retransmits: if received { info.out_of_order_segments } else { info.retransmits },
        delivered: if received { info.data_segments_in } else { info.delivered_segments },
        cwnd: info.cwnd_segments,
        ssthresh: info.ssthresh_segments,
        unacked: info.unacked_segments,
        lost: info.lost_segments,
        rtt_us: info.rtt_us,
        rtt_min_us: info.rtt_min_us,
        window: info.send_window_bytes,
        unsent: info.unsent_bytes,
        delivery_bytes_s: info.delivery_bytes_s,
        busy_us: info.busy_us,
        window_limited_us: info.window_limited_us,
        buffer_limited_us: info.buffer_limited_us,
        is_buffer_full: info.is_send_buffer_full(),
    }
}
