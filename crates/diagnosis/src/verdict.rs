//! One sentence about a load: what it carried, and what limited it.

#[cfg(test)]
mod tests;

use ekiden_record::{Latency, Load, LoadSettings, PathLimit, Shares, Way};

use crate::episodes::episodes;
use crate::hole::Hole;
use ekiden_measure_proto::message::Peak;
use ekiden_measure_proto::row::Row;

/// Threshold of a queue: round trips grow by this part of the base, and by at least this time in microseconds.
const QUEUE_PART: f64 = 0.05;
const QUEUE_LEAST_US: f64 = 500.0;
/// Limit on round trips behind a policer: this multiple of the base, plus this time in microseconds, which a window sent in one burst
/// causes by itself. A buffer that overflows makes them longer.
const POLICED_RTT: f64 = 1.3;
const POLICED_US: f64 = 1_000.0;
/// Where messages wait, in the median, for less than this part of a packet's transmission time, no buffer is used.
const WAIT_PART: f64 = 0.1;
/// Limit on the delivery rate of a full line, as a multiple of the mean rate.
const OUTRUN: f64 = 2.0;
/// A load stands still at times if its median tenth of a second brought less than this part of its best one. A full line does not.
const LULL_PART: f64 = 1.0 / 3.0;
/// Least number of tenths that tell.
const TENTHS_LEAST: usize = 5;
/// About the size of a full segment over Ethernet, in bytes.
const SEGMENT: u64 = 1_500;
/// Longest interval between two samples of a connection, in microseconds.
const LOOK_US: u64 = 20_000;
/// Threshold as a multiple of the base: a queue that makes round trips longer than this belongs to a full line.
const DEEP: f64 = 1.5;
/// Threshold of uneven arrivals, as a multiple of the mean per interval, for short intervals in which the mean is no less than these bytes.
const UNEVEN: f64 = 1.7;
const BURST_BYTES_LEAST: f64 = 7_000.0;
/// Least number of loss episodes that shows whether they come from one buffer: then their windows differ by less than this part of
/// their mean.
const ONSETS_LEAST: usize = 4;
const ONSETS_SPREAD: f64 = 0.2;
/// A line is full if the rate grows by less than this power of the window, where windows differ by more than this factor.
const GROWTH_MOST: f64 = 0.5;
const WINDOWS_DIFFER: f64 = 1.15;
/// Thresholds of the first episode of losses where a rate is exceeded: the lost part of what is sent meanwhile, and the number of segments.
/// Random loss takes less.
const OVERSHOOT_PART: f64 = 0.1;
const OVERSHOOT_LEAST: u32 = 8;
/// Where there is a queue, a lost part of this size already exceeds random loss.
const OVERFLOW_PART: f64 = 0.02;

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

/// Whether lost segments held a load up for much of its time, as runs of losses do.
fn stands_still(load: &Load) -> bool {
    let mut tenths = load.tenths_bytes.clone();
    tenths.sort_unstable();
    let best = tenths.last().copied().unwrap_or_default() as f64;
    load.retransmits > 0 && tenths.len() >= TENTHS_LEAST && (tenths[tenths.len() / 2] as f64) < best * LULL_PART
}

/// A full line, unless the load left it empty at times.
fn full_line(load: &Load) -> Option<PathLimit> {
    (!stands_still(load)).then_some(PathLimit::Line)
}

/// What of the path limited a load, where the path did.
///
/// `rows` are the samples of each sender, `peaks` how evenly the only receiver's bytes came. A queue that grows under load shows a line;
/// losses without a queue show a policer where an episode takes much of a window at once, and random loss where it takes single segments.
/// `added` is what small messages took longer.
pub fn path_limit(
    load: &Load,
    rows: &[&[Row]],
    peaks: &[Peak],
    idle_us: f64,
    added: Option<Added>,
) -> Option<PathLimit> {
    let Shares { path, application, receive_window, send_buffer } = load.shares?;
    if path < application.max(receive_window).max(send_buffer) {
        return None;
    }
    let base_us = match (load.rtt_min_us as f64, idle_us) {
        (tcp, idle) if tcp > 0.0 && idle > 0.0 => tcp.min(idle),
        (tcp, idle) => tcp.max(idle),
    };
    let of_the_other_way_us = of_the_other_way(load.rtt.p50_us - base_us, added);
    let base_us = base_us + of_the_other_way_us;
    let is_uneven = is_uneven(load, peaks, base_us);
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
    let all = together(rows);
    // Round trips that another queue makes say nothing of how much this way carries in one.
    let is_saturated = if of_the_other_way_us > 0.0 { Some(stands) } else { is_saturated(&all) };
    let onsets = onsets(&all);
    let firsts: Vec<_> = rows.iter().filter_map(|rows| first_episode(rows, base_us)).collect();
    // In a short load nearly all losses are slow start's, so they decide.
    let is_short = onsets.len() < ONSETS_LEAST;
    let has_overflowed = || firsts.iter().any(|first| first.is_overflow(base_us));
    if is_short && (is_saturated != Some(false) || onsets.is_empty()) && has_overflowed() {
        return full_line(load);
    }
    // A window that is sent at once makes a queue of its own, also where the line is not full.
    let outruns = outruns(rows, load.goodput_bit_s);
    let is_full = || is_saturated.unwrap_or(stands) || (!outruns && is_of_buffer(&onsets, base_us));
    // A median round trip of this length shows a line that is full at least half of the time, however unevenly its packets came.
    let deep_us = DEEP * base_us + QUEUE_LEAST_US;
    if load.rtt.p50_us > deep_us || (is_uneven != Some(true) && is_full()) {
        return full_line(load);
    }
    // On a line that is little faster than the policer, even few segments make round trips longer by themselves.
    let short_us = if outruns { deep_us } else { policed_us(base_us) };
    let is_policed = firsts.iter().any(|first| first.is_policed(short_us)) && are_alike(&onsets) != Some(false);
    // Chance takes segments at any window of a stream; windows of several together differ less.
    let is_at_one_window = rows.len() == 1 && are_alike(&onsets) == Some(true);
    // Where packets pass much faster than the mean, no line was full. A policer delays nothing, unlike a buffer of a few packets.
    let nothing_waits = added.is_some_and(|added| added.own_us < WAIT_PART * packet_us(load));
    Some(match is_policed {
        true if outruns || nothing_waits => PathLimit::Policer,
        true => PathLimit::ShortBufferOrPolicer,
        false if is_at_one_window => PathLimit::ShortBufferOrPolicer,
        false => PathLimit::Loss,
    })
}

/// The median delay that small messages had in addition beside a load, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Added {
    /// In the direction of the load.
    pub own_us: f64,
    /// In the other one.
    pub other_us: f64,
}

impl Added {
    /// For a load of a direction. `None` if there were no messages.
    pub fn of(latency: &Latency, way: Way) -> Option<Self> {
        let (own, other) = match way {
            Way::Forth => (&latency.added_forth, &latency.added_back),
            Way::Back => (&latency.added_back, &latency.added_forth),
        };
        (own.count > 0).then_some(Self { own_us: own.p50_us, other_us: other.p50_us })
    }
}

/// The part of the growth of round trips that a queue of the other direction causes, in microseconds: messages wait there, and not here.
fn of_the_other_way(grown_us: f64, added: Option<Added>) -> f64 {
    let is_there = |added: &Added| {
        grown_us > 2.0 * QUEUE_LEAST_US && added.own_us < grown_us / 4.0 && added.other_us > grown_us / 2.0
    };
    added.filter(is_there).map_or(0.0, |added| grown_us - added.own_us.max(0.0))
}

/// How long a full packet takes at the rate that was carried, in microseconds.
fn packet_us(load: &Load) -> f64 {
    1_500.0 * 8e6 / load.goodput_bit_s.max(1) as f64
}

/// Whether data came in bursts with pauses between them, so that no line was full. `None` where a round trip has too few packets to tell.
fn is_uneven(load: &Load, peaks: &[Peak], base_us: f64) -> Option<bool> {
    let bytes_us = load.goodput_bit_s as f64 / 8e6;
    let even = |peak: &Peak| bytes_us * f64::from(peak.width_ms) * 1e3;
    let tells = |peak: &&Peak| f64::from(peak.width_ms) * 1e3 <= base_us / 2.0 && even(peak) >= BURST_BYTES_LEAST;
    let peak = peaks.iter().filter(tells).min_by_key(|peak| peak.width_ms)?;
    Some(peak.bytes as f64 > UNEVEN * even(peak))
}

/// Whether a stream's data was delivered much faster, for a while after the first losses, than all streams' in the mean: no line was full.
fn outruns(rows: &[&[Row]], goodput_bit_s: u64) -> bool {
    let lossy = rows.iter().flat_map(|rows| rows.iter()).filter(|row| row.retransmits > 0);
    let most = lossy.map(|row| row.delivery_bytes_s).max().unwrap_or(0);
    most as f64 * 8.0 > OUTRUN * goodput_bit_s as f64
}

/// The streams as one: their windows together, and the mean of their round trips, look by look.
fn together(rows: &[&[Row]]) -> Vec<Row> {
    let looks = rows.iter().map(|rows| rows.len()).min().unwrap_or(0);
    let sum = |at: usize, of: fn(&Row) -> u32| rows.iter().map(|rows| u64::from(of(&rows[at]))).sum::<u64>();
    let short = |sum: u64| u32::try_from(sum).unwrap_or(u32::MAX);
    let row = |at: usize| Row {
        cwnd: short(sum(at, |row| row.cwnd)),
        retransmits: short(sum(at, |row| row.retransmits)),
        lost: short(sum(at, |row| row.lost)),
        rtt_us: short(sum(at, |row| row.rtt_us) / rows.len() as u64),
        ..rows[0][at]
    };
    (0..looks).map(row).collect()
}

/// Whether a line is full, after the first losses: a larger window then carries no more, for round trips grow with it. `None` if the
/// windows differ too little to tell.
fn is_saturated(rows: &[Row]) -> Option<bool> {
    let lossy = rows.iter().skip_while(|row| row.retransmits == 0).filter(|row| row.lost == 0 && row.rtt_us > 0);
    let mut seen: Vec<_> =
        lossy.map(|row| (f64::from(row.cwnd), f64::from(row.cwnd) / f64::from(row.rtt_us))).collect();
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
    let quarter = seen.len() / 4;
    if quarter < 3 {
        return None;
    }
    let mean = |part: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| part.iter().map(of).sum::<f64>() / part.len() as f64;
    let (low, high) = (&seen[..quarter], &seen[seen.len() - quarter..]);
    let windows = mean(high, |seen| seen.0) / mean(low, |seen| seen.0).max(1.0);
    let rates = mean(high, |seen| seen.1) / mean(low, |seen| seen.1).max(f64::MIN_POSITIVE);
    (windows > WINDOWS_DIFFER).then(|| rates.ln() < windows.ln() * GROWTH_MOST)
}

/// The window and the round trip at which an episode of losses began, in segments and microseconds.
struct Onset {
    window: f64,
    rtt_us: f64,
}

/// Of all episodes but the first, which is slow start's.
fn onsets(rows: &[Row]) -> Vec<Onset> {
    let before = episodes(rows, LOOK_US).into_iter().skip(1).map(|episode| &rows[episode.before]);
    before.map(|row| Onset { window: row.cwnd.into(), rtt_us: row.rtt_us.into() }).collect()
}

/// Whether losses come at one window, as where a buffer is full or a policer drops. By chance they come at any. `None` if they are too few
/// to tell.
fn are_alike(onsets: &[Onset]) -> Option<bool> {
    if onsets.len() < ONSETS_LEAST {
        return None;
    }
    let mean = |of: &dyn Fn(&Onset) -> f64| onsets.iter().map(of).sum::<f64>() / onsets.len() as f64;
    let window = mean(&|onset| onset.window);
    let variance = mean(&|onset| (onset.window - window).powi(2));
    // A window of few segments cannot be nearer to another than a segment.
    Some(variance.sqrt() < (ONSETS_SPREAD * window).max(1.0))
}

/// Whether losses come at the window of a full buffer, which makes round trips longer than a policer does.
fn is_of_buffer(onsets: &[Onset], base_us: f64) -> bool {
    let rtt_us = onsets.iter().map(|onset| onset.rtt_us).sum::<f64>() / onsets.len().max(1) as f64;
    are_alike(onsets) == Some(true) && rtt_us > policed_us(base_us)
}

/// The two round trips after the first loss.
struct FirstEpisode {
    /// Segments sent again.
    lost: u32,
    /// Segments delivered.
    delivered: u32,
    /// The longest smoothed round trip, in microseconds.
    rtt_us: u32,
}

fn first_episode(rows: &[Row], base_us: f64) -> Option<FirstEpisode> {
    let episode = *episodes(rows.iter(), LOOK_US).first()?;
    let (before, first) = (rows.get(episode.before)?, rows.get(episode.first)?);
    let until_us = first.at_us.saturating_add((2.0 * base_us) as u64).saturating_add(2 * LOOK_US);
    let rows = &rows[episode.first..];
    let rows = &rows[..rows.iter().position(|row| row.at_us > until_us).unwrap_or(rows.len())];
    let last = rows.last()?;
    Some(FirstEpisode {
        lost: last.retransmits.saturating_sub(before.retransmits),
        delivered: last.delivered.saturating_sub(before.delivered),
        rtt_us: rows.iter().map(|row| row.rtt_us).max()?.max(before.rtt_us),
    })
}

/// The longest round trip behind a policer, in microseconds.
fn policed_us(base_us: f64) -> f64 {
    base_us * POLICED_RTT + POLICED_US
}

impl FirstEpisode {
    /// Whether more was lost at once than this part of what was sent meanwhile.
    fn took(&self, part: f64) -> bool {
        let sent = f64::from(self.lost) + f64::from(self.delivered);
        self.lost >= OVERSHOOT_LEAST && f64::from(self.lost) > sent * part
    }

    /// Whether something dropped much at once, and had no buffer that filled before.
    fn is_policed(&self, short_us: f64) -> bool {
        self.took(OVERSHOOT_PART) && f64::from(self.rtt_us) < short_us
    }

    /// Whether a full buffer dropped.
    fn is_overflow(&self, base_us: f64) -> bool {
        self.took(OVERFLOW_PART) && f64::from(self.rtt_us) >= policed_us(base_us)
    }
}

/// The remark about a window or a buffer that only limits the queue of a full line.
const FULL: &str = "but a queue stands, so the line is full, and a larger one would only make the queue longer";

/// The remark about a window or a buffer that fills because what is lost in front of it has not come again.
fn held_up(load: &Load) -> String {
    format!("but losses held it up: {} segments were sent again, and it fills until they have come", load.retransmits)
}

/// Whether round trips are long for the path, and not by a queue of the other direction, whatever kept the sender back.
fn has_queue(load: &Load, added: Option<Added>) -> bool {
    let base_us = load.rtt_min_us as f64;
    let base_us = base_us + of_the_other_way(load.rtt.p50_us - base_us, added);
    load.rtt.p50_us > base_us * (1.0 + 2.0 * QUEUE_PART) + 2.0 * QUEUE_LEAST_US
}

/// Whether small messages wait beside the load for much of their round trip. Through a relay they go the whole way, and the load's own round
/// trips only to the relay.
fn messages_wait(latency: &Latency, way: Way) -> bool {
    let enough_us = latency.idle.p50_us * 2.0 * QUEUE_PART + 2.0 * QUEUE_LEAST_US;
    Added::of(latency, way).is_some_and(|added| added.own_us > enough_us)
}

/// Whether less than a segment was asked for: then acknowledgements are delayed, and round trips are long without a queue.
fn is_less_than_a_segment(asked: Option<u64>) -> bool {
    asked.is_some_and(|bytes| bytes < SEGMENT)
}

/// One sentence for people.
pub fn sentence(load: &Load, asked: &LoadSettings, latency: Option<&Latency>) -> String {
    let waits = latency.is_some_and(|latency| messages_wait(latency, load.way));
    let has_queue = waits || has_queue(load, latency.and_then(|latency| Added::of(latency, load.way)));
    let carried = format!("{:.1} Mbit/s {}", load.goodput_bit_s as f64 / 1e6, load.way.word());
    if let Some(bytes) = load.lost_segment_bytes {
        return format!("{carried}: {}", Hole { way: load.way, bytes });
    }
    let Some((shares, cause)) = load.shares.zip(cause(load)) else { return carried };
    let percent = |share: f64| (share * 100.0).round();
    match cause {
        Cause::Application => {
            format!("{carried}: the sending program limited it {} % of the time", percent(shares.application))
        }
        Cause::ReceiveWindow => format!(
            "{carried}: the receiver's window limited it {} % of the time; {}",
            percent(shares.receive_window),
            match (asked.window_bytes.map(u64::from), asked.receive_buffer_bytes) {
                _ if stands_still(load) => held_up(load),
                (window, buffer) if has_queue && !is_less_than_a_segment(window.or(buffer)) => FULL.into(),
                (Some(window), Some(buffer)) if buffer < window => "--receive-buffer asked for it".into(),
                (Some(_), _) => "--window asked for it".into(),
                (None, Some(_)) => "--receive-buffer asked for it".into(),
                (None, None) => "a larger receive buffer (tcp_rmem) helps".into(),
            }
        ),
        Cause::SendBuffer => format!(
            "{carried}: the send buffer limited it {} % of the time; {}",
            percent(shares.send_buffer),
            match asked.send_buffer_bytes {
                _ if stands_still(load) => held_up(load),
                buffer if has_queue && !is_less_than_a_segment(buffer) => FULL.into(),
                Some(_) => "--send-buffer asked for it".into(),
                None => "a larger one (tcp_wmem) helps".into(),
            }
        ),
        Cause::Path(limit) => {
            let what = match limit {
                Some(PathLimit::Line) => "the line's rate: a queue grows",
                Some(PathLimit::Loss) => "single losses: by chance, or of a buffer of few packets",
                Some(PathLimit::Policer) => {
                    "a policer, or what drops like one (a buffer of a packet or two): what is too fast is dropped, and nothing waits"
                }
                Some(PathLimit::ShortBufferOrPolicer) => {
                    "a policer or a buffer of few packets: what is too fast is dropped without a queue"
                }
                Some(PathLimit::SlowStart) => "slow start, which had not ended",
                Some(PathLimit::Pacing) => "the pacing that was asked for",
                None => "the congestion window",
            };
            format!("{carried}: the path limited it {} % of the time, by {what}", percent(shares.path))
        }
    }
}
