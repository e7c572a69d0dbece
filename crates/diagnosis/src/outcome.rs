//! From what both ends saw to what is told of a load.

use ekiden_record::{Delays, Latency, Load, PathLimit, Sample, Shares, StreamLoad, Way};
use ekiden_tcp_info::TcpInfo;
use ekiden_units::quantile;

use crate::hole::Hole;
use crate::limit::Limits;
use crate::measured::Measured;
use crate::verdict::Added;
use crate::{latency, plausible, verdict};
use ekiden_measure_proto::message::Peak;
use ekiden_measure_proto::row::Row;
use ekiden_measure_proto::seen::{LoadSeen, Side};
use ekiden_measure_proto::settings::Asked;

/// A stream's two ends.
struct Pair<'a> {
    sender: &'a LoadSeen,
    receiver: &'a LoadSeen,
}

/// What came, came within a round trip, or nothing came.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "the load {} was too short to say how fast it was: {bytes} bytes in {ms:.3} ms, and a round trip {rtt_ms:.3} ms; measure for longer, with more bytes",
    way.word()
)]
pub struct TooShort {
    /// The direction.
    pub way: Way,
    /// The bytes that came.
    pub bytes: u64,
    /// The time in which they came, in milliseconds.
    pub ms: f64,
    /// A round trip of the idle path, in milliseconds.
    pub rtt_ms: f64,
}

/// What each direction carried, in the order in which they were asked for; and the latency beside.
///
/// # Errors
/// About a direction whose rate cannot be told.
pub fn told(asked: &Asked, measured: &Measured) -> Result<(Vec<Load>, Latency), TooShort> {
    let (loads, latency) = loads(asked, measured);
    let rtt_us = |load: &Load| base_us(&latency, load.rtt_min_us as f64);
    let is_short = |load: &&Load| load.bytes == 0 || load.duration_us == 0 || (load.duration_us as f64) < rtt_us(load);
    match loads.iter().filter(|load| load.lost_segment_bytes.is_none()).find(is_short) {
        Some(load) => Err(TooShort {
            way: load.way,
            bytes: load.bytes,
            ms: load.duration_us as f64 / 1e3,
            rtt_ms: rtt_us(load) / 1e3,
        }),
        None => Ok((loads, latency)),
    }
}

/// The round trip of the idle path: by this end's clock if probes were answered, else what a sender's kernel says.
fn base_us(latency: &Latency, sender_us: f64) -> f64 {
    if latency.idle.count > 0 { latency.idle.min_us } else { sender_us }
}

pub(crate) fn loads(asked: &Asked, measured: &Measured) -> (Vec<Load>, Latency) {
    let latency = latency::latency(&measured.answers, measured.began_ns, measured.ended_ns);
    let of = |way: &Way| load(asked, *way, &pairs(measured, *way), &latency, measured.hole(*way));
    (asked.get().ways.iter().filter_map(of).collect(), latency)
}

fn pairs(measured: &Measured, way: Way) -> Vec<Pair<'_>> {
    let (senders, receivers) = match Side::Near.sends(way) {
        true => (&measured.near_seen, &measured.far_seen),
        false => (&measured.far_seen, &measured.near_seen),
    };
    let of = |sender: &'_ &LoadSeen| sender.way == way;
    let pair = |sender| {
        let receiver = receivers.iter().find(|receiver| same(receiver, sender))?;
        Some(Pair { sender, receiver })
    };
    senders.iter().filter(of).filter_map(pair).collect()
}

fn same(a: &LoadSeen, b: &LoadSeen) -> bool {
    (a.way, a.stream) == (b.way, b.stream)
}

fn load(asked: &Asked, way: Way, pairs: &[Pair<'_>], latency: &Latency, hole: Option<Hole>) -> Option<Load> {
    let rows: Vec<&[Row]> = pairs.iter().map(Pair::active).collect();
    let all = || rows.iter().copied().flatten();
    let bytes = total(pairs.iter().map(|pair| pair.receiver.end.bytes));
    let rtt_min_us = all().map(|row| row.rtt_min_us).filter(|rtt| *rtt < u32::MAX && *rtt > 0).min().unwrap_or(0);
    let duration_us = duration_us(asked, way, pairs, base_us(latency, rtt_min_us.into()))?;
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
        cwnd_p50_segments: quantile::above(&cwnds, 50).unwrap_or_default(),
        write_to_ack: (waits.count > 0).then_some(waits),
        shares,
        path_limit: None,
        lost_segment_bytes: hole.map(|hole| hole.bytes),
        streams,
        sampler_late: Delays::of(first.sender.end.late_us.iter().map(|late| f64::from(*late)).collect()),
        sender_cpu_us: total(pairs.iter().map(|pair| pair.sender.end.cpu_us)),
        receiver_cpu_us: total(pairs.iter().map(|pair| pair.receiver.end.cpu_us)),
    };
    // Of what else limits the path such a load says nothing.
    if hole.is_some() {
        return Some(load);
    }
    let peaks: &[Peak] = match pairs {
        [only] => &only.receiver.end.peaks,
        _ => &[],
    };
    let added = Added::of(latency, way);
    load.path_limit = verdict::path_limit(&load, &rows, peaks, latency.idle.min_us, added);
    let pacing_bit_s = asked.get().pacing_bit_s.unwrap_or(u64::MAX).saturating_mul(asked.get().streams.into());
    // Headers are paced, too.
    if load.goodput_bit_s > pacing_bit_s / 10 * 8 {
        load.path_limit = Some(PathLimit::Pacing);
    }
    Some(load)
}

/// The time in which what counts came.
fn duration_us(asked: &Asked, way: Way, pairs: &[Pair<'_>], rtt_us: f64) -> Option<u64> {
    let by_time_us = asked.get().duration_us.unwrap_or(u64::MAX);
    let longest_us = pairs.iter().map(|pair| pair.receiver.end.duration_us).max()?;
    if longest_us >= by_time_us {
        return Some(by_time_us);
    }
    // Bytes or a limit have ended it. From the first write to the last arrival: what lies before the first arrival is half a round trip.
    let first = pairs.iter().map(|pair| pair.receiver.end.first_us).min()?;
    let last = pairs.iter().map(|pair| pair.receiver.end_us()).max()?;
    let told_us = last.saturating_sub(first).saturating_add((rtt_us / 2.0) as u64);
    Some(told_us.max(seen_us(way, pairs)).min(by_time_us))
}

/// The time for which this end has seen that it went on, where this end is the sender.
fn seen_us(way: Way, pairs: &[Pair<'_>]) -> u64 {
    if !Side::Near.sends(way) {
        return 0;
    }
    let spans = || pairs.iter().filter_map(|pair| plausible::span_us(pair.sender, pair.receiver.end.bytes));
    let from = spans().map(|(from, _)| from).min().unwrap_or_default();
    spans().map(|(_, until)| until).max().unwrap_or_default().saturating_sub(from)
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

#[cfg(test)]
mod tests {
    use ekiden_record::{EndSettings, LoadSettings};

    use super::*;
    use crate::latency::Answer;
    use ekiden_measure_proto::message::StreamEnd;

    /// A load forth with a duration and a number of bytes; its last byte came `came_us` after its first one. A round trip takes 40 ms.
    fn told_of(duration_us: Option<u64>, bytes: u64, came_us: u64, rows: Vec<Row>) -> Result<Load, TooShort> {
        let asked = LoadSettings { duration_us, bytes: Some(bytes), ..Asked::default().get().clone() };
        let seen = |duration_us, rows| LoadSeen {
            way: Way::Forth,
            stream: 0,
            end: StreamEnd { bytes, duration_us, ..StreamEnd::default() },
            rows,
        };
        let measured = Measured {
            from: ([127, 0, 0, 1], 1).into(),
            far: EndSettings::default(),
            near_seen: vec![seen(100, rows)],
            far_seen: vec![seen(came_us, Vec::new())],
            answers: vec![Answer { sent_ns: 1, there_ns: 0, back_ns: 40_000_001 }],
            began_ns: 50_000_000,
            ended_ns: 90_000_000,
            bytes_most: None,
        };
        told(&Asked::new(asked).unwrap(), &measured).map(|(loads, _)| loads.into_iter().next().unwrap())
    }

    #[test]
    fn a_load_that_bytes_end_counts_from_its_first_write_with_a_duration_or_without() {
        for duration_us in [None, Some(1_000_000)] {
            let load = told_of(duration_us, 1_000_000, 180_000, Vec::new()).unwrap();
            assert_eq!((load.duration_us, load.goodput_bit_s), (200_000, 40_000_000));
        }
        let by_time = told_of(Some(1_000_000), 1_000_000, 1_000_000, Vec::new()).unwrap();
        assert_eq!(by_time.duration_us, 1_000_000);
    }

    #[test]
    fn a_load_that_came_at_once_is_too_short() {
        for (bytes, came_us) in [(1_000, 0), (20_000, 19_000)] {
            for duration_us in [None, Some(1_000_000)] {
                let said = told_of(duration_us, bytes, came_us, Vec::new()).unwrap_err().to_string();
                assert!(said.contains("a round trip 40.000 ms"), "{said}");
            }
        }
    }

    #[test]
    fn what_this_end_sent_for_long_took_as_long() {
        let row = |at_us, bytes| Row { at_us, kernel_bytes: bytes, sent_bytes: bytes, ..Row::default() };
        let rows =
            vec![row(0, 0), row(100_000, 9_000), row(600_000, 900_000), row(620_000, 950_000), row(640_000, 1_000_000)];
        assert_eq!(told_of(None, 1_000_000, 1, rows).unwrap().duration_us, 500_000);
    }
}
