//! From what both ends saw to what is told of a load.

use ekiden_net::tcp_info::TcpInfo;
use ekiden_record::{Delays, Latency, Load, PathLimit, Sample, Shares, StreamLoad, Way};

use crate::client::Measured;
use crate::limit::Limits;
use crate::load::{Seen, Side};
use crate::message::{Peak, Row};
use crate::settings::Asked;
use crate::{probe, verdict};

/// A stream's two ends.
struct Pair<'a> {
    sender: &'a Seen,
    receiver: &'a Seen,
}

/// What each direction carried, in the order in which they were asked for; and the latency beside.
pub fn loads(asked: &Asked, measured: &Measured) -> (Vec<Load>, Latency) {
    let latency = probe::latency(&measured.answers, measured.began_ns, measured.ended_ns);
    let of = |way: &Way| load(asked, *way, &pairs(measured, *way), &latency);
    (asked.get().ways.iter().filter_map(of).collect(), latency)
}

fn pairs(measured: &Measured, way: Way) -> Vec<Pair<'_>> {
    let (senders, receivers) = match Side::Near.sends(way) {
        true => (&measured.near_seen, &measured.far_seen),
        false => (&measured.far_seen, &measured.near_seen),
    };
    let of = |sender: &'_ &Seen| sender.way == way;
    let pair = |sender| {
        let receiver = receivers.iter().find(|receiver| same(receiver, sender))?;
        Some(Pair { sender, receiver })
    };
    senders.iter().filter(of).filter_map(pair).collect()
}

fn same(a: &Seen, b: &Seen) -> bool {
    (a.way, a.stream) == (b.way, b.stream)
}

fn load(asked: &Asked, way: Way, pairs: &[Pair<'_>], latency: &Latency) -> Option<Load> {
    let rows: Vec<&[Row]> = pairs.iter().map(Pair::active).collect();
    let all = || rows.iter().copied().flatten();
    let bytes = total(pairs.iter().map(|pair| pair.receiver.end.bytes));
    let rtt_min_us = all().map(|row| row.rtt_min_us).filter(|rtt| *rtt < u32::MAX && *rtt > 0).min().unwrap_or(0);
    let duration_us = match asked.get().duration_us {
        Some(_) => pairs.iter().map(|pair| pair.receiver.end.duration_us).max()?,
        // From the first write to the last arrival: what lies before the first arrival is half a round trip.
        None => {
            let first = pairs.iter().map(|pair| pair.receiver.end.first_us).min()?;
            let last = pairs.iter().map(|pair| pair.receiver.end_us()).max()?;
            last.saturating_sub(first).saturating_add(u64::from(rtt_min_us) / 2)
        }
    };
    let streams: Vec<_> = pairs.iter().map(|pair| pair.told(duration_us)).collect();
    let mut cwnds: Vec<_> = all().map(|row| u64::from(row.cwnd)).collect();
    cwnds.sort_unstable();
    let shares = Shares::mean(&streams.iter().filter_map(|stream| stream.shares).collect::<Vec<_>>());
    let rtt = Delays::of(all().filter(|row| row.rtt_us > 0).map(|row| f64::from(row.rtt_us)).collect());
    let waits = Delays::of(rows.iter().flat_map(|rows| waits(rows)).collect());
    let first = pairs.first()?;
    let mut load = Load {
        way,
        bytes,
        duration_us,
        goodput_bit_s: rate(bytes, duration_us),
        tenths_bytes: tenths(pairs),
        retransmits: streams.iter().map(|stream| stream.retransmits).sum(),
        delivered_segments: rows.iter().filter_map(|rows| rows.last()).map(|row| u64::from(row.delivered)).sum(),
        rtt_min_us: rtt_min_us.into(),
        rtt,
        cwnd_p50_segments: cwnds.get(cwnds.len() / 2).copied().unwrap_or_default(),
        write_to_ack: (waits.count > 0).then_some(waits),
        shares,
        path_limit: None,
        streams,
        sampler_late: Delays::of(first.sender.end.late_us.iter().map(|late| f64::from(*late)).collect()),
        sender_cpu_us: total(pairs.iter().map(|pair| pair.sender.end.cpu_us)),
        receiver_cpu_us: total(pairs.iter().map(|pair| pair.receiver.end.cpu_us)),
    };
    let peaks: &[Peak] = match pairs {
        [only] => &only.receiver.end.peaks,
        _ => &[],
    };
    load.path_limit = verdict::path_limit(&load, &rows, peaks, latency.idle.min_us);
    let pacing_bit_s = asked.get().pacing_bit_s.unwrap_or(u64::MAX).saturating_mul(asked.get().streams.into());
    // Headers are paced, too.
    if load.path_limit.is_some() && load.goodput_bit_s > pacing_bit_s / 10 * 8 {
        load.path_limit = Some(PathLimit::Pacing);
    }
    Some(load)
}

impl Pair<'_> {
    /// The samples of the sender while it had something to send.
    fn active(&self) -> &[Row] {
        let rows = &self.sender.rows;
        let end_us = self.sender.end_us();
        let sent = self.sender.end.bytes;
        // What was written last is under way when the writing ends.
        let over =
            rows.iter().position(|row| row.at_us > end_us && (row.kernel_bytes >= sent || !self.ends_by_bytes()));
        &rows[..over.map_or(rows.len(), |over| over + 1)]
    }

    fn ends_by_bytes(&self) -> bool {
        self.sender.end.bytes == self.receiver.end.bytes
    }

    fn told(&self, duration_us: u64) -> StreamLoad {
        let rows = self.active();
        let mut limits = Limits::default();
        for row in rows {
            limits.add(row.at_us, &info(row, self.sender.end.mss_bytes));
        }
        let bytes = self.receiver.end.bytes;
        StreamLoad {
            bytes,
            goodput_bit_s: rate(bytes, duration_us),
            retransmits: rows.last().map_or(0, |row| row.retransmits.into()),
            shares: limits.shares(),
        }
    }
}

/// What limits are judged by.
fn info(row: &Row, mss_bytes: u32) -> TcpInfo {
    TcpInfo {
        mss_bytes,
        cwnd_segments: row.cwnd,
        ssthresh_segments: row.ssthresh,
        unacked_segments: row.unacked,
        lost_segments: row.lost,
        unsent_bytes: row.unsent,
        busy_us: row.busy_us,
        window_limited_us: row.window_limited_us,
        buffer_limited_us: row.buffer_limited_us,
        // Full or empty: more is not asked.
        send_memory_bytes: row.is_buffer_full.into(),
        send_memory_most_bytes: 1,
        ..TcpInfo::default()
    }
}

fn rate(bytes: u64, duration_us: u64) -> u64 {
    (u128::from(bytes) * 8_000_000)
        .checked_div(duration_us.into())
        .map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// A sum; the greatest number where it is greater.
fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn tenths(pairs: &[Pair<'_>]) -> Vec<u64> {
    let longest = pairs.iter().map(|pair| pair.receiver.end.tenths_bytes.len()).max().unwrap_or_default();
    let of = |tenth: usize| total(pairs.iter().filter_map(|pair| pair.receiver.end.tenths_bytes.get(tenth)).copied());
    (0..longest).map(of).collect()
}

/// From writing a byte to its acknowledgement, at each sample, in microseconds.
fn waits(rows: &[Row]) -> Vec<f64> {
    let mut waits = Vec::new();
    let mut written = 0;
    for row in rows {
        // The first sample by which that byte had been written.
        while written + 1 < rows.len() && rows[written].program_bytes < row.kernel_bytes {
            written += 1;
        }
        let at = &rows[written];
        if row.kernel_bytes > 0 && at.at_us < row.at_us {
            waits.push((row.at_us - at.at_us) as f64);
        }
    }
    waits
}

/// The senders' samples, as those of a lab or a simulation: in the order of time, streams of the directions as flows.
pub fn samples(measured: &Measured) -> Vec<Sample> {
    let mut samples = Vec::new();
    for way in [Way::Forth, Way::Back] {
        for pair in pairs(measured, way) {
            let flow = way.word().into();
            let received = |at_us: u64| {
                let rows = &pair.receiver.rows;
                let next = rows.partition_point(|row| row.at_us <= at_us);
                next.checked_sub(1).map_or(0, |last| rows[last].program_bytes)
            };
            samples.extend(pair.sender.rows.iter().map(|row| Sample {
                at_us: row.at_us,
                flow: std::sync::Arc::clone(&flow),
                connection: pair.sender.stream,
                received_bytes: received(row.at_us),
                acked_bytes: row.kernel_bytes,
                cwnd_segments: row.cwnd,
                // As the kernel says that there is none.
                ssthresh_segments: (row.ssthresh < i32::MAX as u32).then_some(row.ssthresh),
                unacked_segments: row.unacked,
                window_bytes: row.window.into(),
                rtt_us: row.rtt_us.into(),
                rtt_min_us: row.rtt_min_us.into(),
                retransmits: row.retransmits.into(),
                delivery_bit_s: row.delivery_bytes_s.saturating_mul(8),
            }));
        }
    }
    samples.sort_by_key(|sample: &Sample| sample.at_us);
    samples
}
