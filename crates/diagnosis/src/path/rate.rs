//! The line's rate: how fast packets come while a queue delays them.

use ekiden_record::Finding;
use ekiden_units::quantile;

use super::base::Base;
use super::held::held;
use super::trace::{Delay, Trace};

/// A stretch of arrivals at the line's rate is no shorter than this, and has no fewer packets.
const STRETCH_LEAST_US: f64 = 3_000.0;
const STRETCH_PACKETS: f64 = 6.0;
/// Threshold of a pause: this multiple of the median time between packets, plus this time in microseconds.
const PAUSE: f64 = 4.0;
const PAUSE_US: f64 = 1_000.0;
/// A stretch at less than this part of the fastest one is not at the line's rate.
const SLOWEST: f64 = 0.9;
/// Where the halves of stretches differ by more than this part, what came first may be a shaper's burst, and no rate is seen.
const FALLING: f64 = 0.3;
/// A rate whose range is wider than this part of it has not stood.
const STANDING: f64 = 0.3;
/// Threshold as a multiple of the time for which a faster rate was seen: a slower rate that was seen for longer is not just a slower pass.
const OUTLASTS: f64 = 4.0;
/// A rate that fell by more than this factor after the first losses, and stayed there, is not the path's.
const FALLS: f64 = 1.2;
/// Why a path has no single rate.
const SHAPER: &str = "a shaper with a burst, or other traffic";
/// Only stretches of at least this part of the longest decide which is the fastest.
const LONG: f64 = 0.3;
/// How exactly the ends of a stretch are known, in microseconds.
pub const EDGE_US: f64 = 150.0;
/// A stretch whose halves differ by more than this part is not a line's: other traffic, jitter, or a second line.
const HALVES_MOST: f64 = 0.2;
/// Limit on the factor by which packets may come faster than the line carries them, after a host was late, and the least interval, in
/// microseconds, over which it holds.
const PEAK_MOST: f64 = 1.1;
const PEAK_US: f64 = 10_000.0;
/// How long packets may be held up on the way and then arrive together, in microseconds, beside the time by which an end was late at most.
const HELD_US: f64 = 3_000.0;
/// The shortest interval for a bound of the rate, in microseconds, and the number of intervals, each twice as long as the one before.
const WIDTH_LEAST_US: f64 = 1_000.0;
const WIDTHS: u32 = 11;
/// Jitter, or an end that was late, of more than this part of the time in which a rate was seen may have made it.
const JITTER_MOST: f64 = 0.25;
/// How late a packet may be, as a multiple of [`Base::spread_us`].
const JITTER_UNSURE: f64 = 1.5;
/// Least relative uncertainty of a rate.
const UNSURE_LEAST: f64 = 0.006;

/// The parts of a stretch between pauses. A line with a queue makes no pauses, but a late sample may be mistaken for a queue.
fn without_gaps(stretch: &[Delay]) -> impl Iterator<Item = &[Delay]> {
    let mut gaps: Vec<_> = stretch.windows(2).map(|pair| pair[1].at_us - pair[0].at_us).collect();
    gaps.sort_by(f64::total_cmp);
    let most_us = quantile::above(&gaps, 50).unwrap_or_default() * PAUSE + PAUSE_US;
    stretch.chunk_by(move |before, after| after.at_us - before.at_us <= most_us)
}

/// Arrivals while a queue stood.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    bytes: f64,
    span_us: f64,
    /// By how much the rates of its halves differ, as a part.
    halves: f64,
}

impl Stretch {
    fn of(trace: &Trace<'_>, delays: &[Delay]) -> Option<Self> {
        let (first, last) = (delays.first()?, delays.last()?);
        let span_us = last.at_us - first.at_us;
        let bytes = trace.carried_bytes(first, last);
        if delays.len() < 3 || span_us < STRETCH_LEAST_US || bytes < STRETCH_PACKETS * trace.packet_bytes {
            return None;
        }
        let middle = &delays[delays.len() / 2];
        let rate = |from: &Delay, to: &Delay| trace.carried_bytes(from, to) / (to.at_us - from.at_us).max(1.0);
        let (a, b) = (rate(first, middle), rate(middle, last));
        let halves = (a - b).abs() / a.max(b).max(f64::MIN_POSITIVE);
        // The ends of halves are known no better than those of the whole.
        let edges = 4.0 * EDGE_US / span_us + 4.0 * trace.packet_bytes / bytes;
        (halves < HALVES_MOST + edges).then_some(Self { bytes, span_us, halves })
    }

    fn rate(&self) -> f64 {
        self.bytes / self.span_us
    }
}

/// An estimate and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    low: f64,
    high: f64,
    /// The longest time in which it was seen, in microseconds.
    longest_us: f64,
    /// By how much the rates of halves differ, as a part.
    halves: f64,
}

/// The rate at which packets come while a queue delays them.
pub fn line_rate(trace: &Trace<'_>, delays: &[Delay], base: Base) -> Option<Estimate> {
    let least_us = base.queue_least_us();
    let queued = delays.split(|delay| delay.queued_us < least_us);
    let mut stretches: Vec<_> =
        queued.flat_map(without_gaps).filter_map(|stretch| Stretch::of(trace, stretch)).collect();
    // Not every delay is the line's queue: a late host delays, too, and then the rate is lower. No rate is higher than the line's, but
    // a short stretch may seem faster than it was if a sample was late.
    let longest_us = |stretches: &[Stretch]| stretches.iter().map(|stretch| stretch.span_us).fold(0.0, f64::max);
    let long_us = longest_us(&stretches) * LONG;
    let long = stretches.iter().filter(|stretch| stretch.span_us >= long_us);
    let fastest = long.map(Stretch::rate).max_by(f64::total_cmp)?;
    stretches.retain(|stretch| (fastest * SLOWEST..fastest / SLOWEST).contains(&stretch.rate()));
    let longest_us = longest_us(&stretches);
    let sum = |of: fn(&Stretch) -> f64| stretches.iter().map(of).sum::<f64>();
    if base.spread_us.max(trace.latest_us()) > JITTER_MOST * longest_us {
        return None;
    }
    let (bytes, time_us) = (sum(|stretch| stretch.bytes), sum(|stretch| stretch.span_us).max(1.0));
    let value = bytes * 8e6 / time_us;
    if surely_carried(trace, base, longest_us.max(PEAK_US), 0.0) > PEAK_MOST * value {
        return None;
    }
    // Both halves of a stretch are the line's: what they differ by is what is not known. Less comes where a host was late, and then the
    // line may be faster than both; more where the first was a shaper's burst, and then what holds is slower than both.
    let differ = sum(|stretch| stretch.halves * stretch.span_us) / time_us;
    let halves = differ / 2.0;
    let edges = (EDGE_US + JITTER_UNSURE * base.spread_us) * (stretches.len() as f64).sqrt() / time_us;
    let unsure = UNSURE_LEAST + edges.max(halves) + edges;
    Some(Estimate {
        value,
        low: value * (1.0 - unsure - halves).max(0.0),
        high: value * (1.0 + unsure + halves),
        longest_us,
        halves: differ,
    })
}

/// What the line carried at least in the best time of a width, in bit/s: a look sees a packet more at each end, or is late, jitter brings
/// packets together that were apart, and something may have held them up for `held_us`.
pub fn surely_carried(trace: &Trace<'_>, base: Base, width_us: f64, held_us: f64) -> f64 {
    let unsure_us = 2.0 * EDGE_US + trace.late_us + base.spread_us + held_us;
    (trace.most_bytes_within(width_us) - 2.0 * trace.packet_bytes).max(0.0) * 8e6 / (width_us + unsure_us)
}

/// The line's rate, from both passes.
pub fn rate(first: &Trace<'_>, second: Option<&Trace<'_>>, delays: &[Delay], base: Base, policer: &Finding) -> Finding {
    let of_second = second.map(Trace::delays).unwrap_or_default();
    let passes = [Some((first, delays)), second.map(|trace| (trace, &of_second[..]))];
    let found: Vec<_> =
        passes.into_iter().flatten().filter_map(|(trace, delays)| line_rate(trace, delays, base)).collect();
    // A pass that was slower was not at the line's rate. The longer it was seen, the better it is known.
    let fastest = found.iter().map(|estimate| estimate.value).fold(0.0, f64::max);
    let (found, slower): (Vec<_>, Vec<_>) = found.into_iter().partition(|estimate| estimate.value >= SLOWEST * fastest);
    let shown = |longest_us: f64, value: f64| format!("{:.2} Mbit/s for {:.0} ms", value / 1e6, longest_us / 1e3);
    let longest = found.iter().max_by(|a, b| a.longest_us.total_cmp(&b.longest_us));
    // A queue that stood for longer at much less: a shaper lets a burst through at the line's rate, and then its own.
    if let (Some(fast), Some(slow)) = (longest, slower.first())
        && slow.longest_us > OUTLASTS * fast.longest_us
    {
        let [fast, at] = [fast, slow].map(|seen| shown(seen.longest_us, seen.value));
        return Finding::AtLeast {
            value: slow.low,
            evidence: format!("a queue stood at {fast} and at {at}: {SHAPER}"),
        };
    }
    let found = found.into_iter();
    if let Some(estimate) = found.max_by(|a, b| a.longest_us.total_cmp(&b.longest_us)) {
        let Estimate { value, low, high, longest_us, halves } = estimate;
        let then = second.and_then(|second| held(second, base)).filter(|_| policer.value().is_none());
        if let Some(then) = then.filter(|then| low > FALLS * then.rate * (1.0 + then.unsure)) {
            let (fast, came) = (shown(longest_us, value), then.rate / 1e6);
            let evidence = format!("a queue stood at {fast}, and then {came:.2} Mbit/s came: {SHAPER}");
            return Finding::AtLeast { value: then.rate * (1.0 - then.unsure).max(0.0), evidence };
        }
        // What a policer lets through at once comes as it was sent. Beyond a policer's, only a rate that stood is the line's.
        let is_beyond = policer.value().is_some_and(|policer| low > FALLS * policer);
        let has_stood = high - low <= STANDING * value;
        if halves <= FALLING && (has_stood || !is_beyond) {
            let evidence =
                format!("packets came at this rate for {:.1} ms while a queue delayed them", longest_us / 1e3);
            return Finding::Observed { value, low, high, evidence };
        }
    }
    if let Some(value) = policer.value() {
        let evidence = format!("a policer lets {:.1} Mbit/s through; the line behind it is faster", value / 1e6);
        return Finding::AtLeast { value, evidence };
    }
    let carried = |trace: &Trace<'_>| {
        let held_us = HELD_US + trace.latest_us();
        let widths_us = (0..WIDTHS).map(|doubled| WIDTH_LEAST_US * f64::from(1 << doubled));
        let each = widths_us.map(|width_us| (surely_carried(trace, base, width_us, held_us), width_us));
        each.max_by(|(a, _), (b, _)| a.total_cmp(b))
    };
    let best = [Some(first), second].into_iter().flatten().filter_map(carried).max_by(|(a, _), (b, _)| a.total_cmp(b));
    match best {
        Some((value, width_us)) if value > 0.0 => {
            let evidence = format!("so much came within {:.0} ms; no queue was seen that tells more", width_us / 1e3);
            Finding::AtLeast { value, evidence }
        }
        _ => Finding::NotObservable { reason: "too little was sent to see it".into() },
    }
}
