//! What the traces of a direction say of it.

use ekiden_record::{Finding, Judgement, PathDirection};

use crate::message::Row;

use super::trace::{Delay, QUEUE_LEAST_US, Trace};

/// A stretch of arrivals at the line's rate is no shorter than this, and has no fewer packets.
const STRETCH_LEAST_US: f64 = 3_000.0;
const STRETCH_PACKETS: f64 = 6.0;
/// A pause is longer than so many times the median between packets, and so much more, in microseconds.
const PAUSE: f64 = 4.0;
const PAUSE_US: f64 = 1_000.0;
/// A stretch at less than this part of the fastest one is not at the line's rate.
const SLOWEST: f64 = 0.9;
/// Stretches of this part of the longest say which is the fastest.
const LONG: f64 = 0.3;
/// How exactly the ends of a stretch are known, in microseconds.
const EDGE_US: f64 = 150.0;
/// An overflow takes more than this part of the window, and more than this many segments; random loss takes fewer.
const OVERFLOW_PART: f64 = 0.08;
const OVERFLOW_LEAST: u32 = 6;
/// So many overflows tell how many segments one takes.
const OVERFLOWS_LEAST: usize = 3;
/// A policer lets more than this times its rate through before it drops.
const BURST: f64 = 1.3;

/// So many steps of time are looked at, whatever the clocks of the ends say.
pub const STEPS_MOST: u32 = 100_000;

/// What was known beforehand, and is the same for both directions.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    /// The least round trip of idle probes, in microseconds.
    pub rtt_us: f64,
}

/// What ended a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// No segment was lost.
    NoLoss,
    /// Much of a window was lost at once: a full buffer, or a policer.
    Overflow,
    /// Few segments were lost.
    FewLosses,
}

/// What ended a pass.
pub fn end(trace: &Trace<'_>) -> End {
    match trace.losses() {
        (0, _) => End::NoLoss,
        (lost, _) => {
            let window = trace.window_before_loss();
            let much = lost > OVERFLOW_LEAST && f64::from(lost) > f64::from(window) * OVERFLOW_PART;
            if much { End::Overflow } else { End::FewLosses }
        }
    }
}

/// An estimate and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Estimate {
    value: f64,
    low: f64,
    high: f64,
}

/// The parts of a stretch between pauses: a line with a queue makes none, and a look that was late may feign a queue.
fn without_gaps(stretch: &[Delay]) -> impl Iterator<Item = &[Delay]> {
    let mut gaps: Vec<_> = stretch.windows(2).map(|pair| pair[1].at_us - pair[0].at_us).collect();
    gaps.sort_by(f64::total_cmp);
    let most_us = gaps.get(gaps.len() / 2).copied().unwrap_or_default() * PAUSE + PAUSE_US;
    stretch.chunk_by(move |before, after| after.at_us - before.at_us <= most_us)
}

/// The rate at which packets come while a queue delays them: the line's.
fn line_rate(trace: &Trace<'_>, delays: &[Delay]) -> Option<(Estimate, f64)> {
    let mut stretches = Vec::new();
    let queued = delays.split(|delay| delay.queued_us < QUEUE_LEAST_US);
    for stretch in queued.flat_map(without_gaps) {
        let (Some(first), Some(last)) = (stretch.first(), stretch.last()) else { continue };
        let span_us = last.at_us - first.at_us;
        let came = trace.came_bytes(first.row, last.row);
        if span_us >= STRETCH_LEAST_US && came >= STRETCH_PACKETS * trace.packet_bytes {
            stretches.push((came, span_us));
        }
    }
    // Not every delay is the line's queue: a host that was late delays, too, and then less comes. Nothing comes faster than the line.
    // A short stretch may look faster than it was, by a look that was late.
    let long_us = stretches.iter().map(|(_, span_us)| *span_us).fold(0.0, f64::max) * LONG;
    let long = stretches.iter().filter(|(_, span_us)| *span_us >= long_us);
    let fastest = long.map(|(came, span_us)| came / span_us).max_by(f64::total_cmp)?;
    stretches.retain(|(came, span_us)| (fastest * SLOWEST..fastest / SLOWEST).contains(&(came / span_us)));
    let (bytes, time_us) = stretches.iter().fold((0.0, 0.0), |(bytes, time), (came, span)| (bytes + came, time + span));
    let longest_us = stretches.iter().map(|(_, span_us)| *span_us).fold(0.0, f64::max);
    let rate = |time_us: f64| bytes * 8e6 / time_us.max(1.0);
    let unsure = EDGE_US * (stretches.len() as f64).sqrt();
    Some((Estimate { value: rate(time_us), low: rate(time_us + unsure), high: rate(time_us - unsure) }, longest_us))
}

/// The direction's findings from its passes: the first with Reno, and one that does not heed loss where there is one.
pub fn direction(first: &Trace<'_>, second: Option<&Trace<'_>>, base: Base, hops: Finding) -> PathDirection {
    let delays = first.delays();
    let ended = end(first);
    let policer = policer(first, &delays, ended, base);
    let rate = rate(first, second, &delays, base, &policer);
    let buffer = buffer(first, &delays, ended, rate.value(), &policer);
    let bdp = match &rate {
        Finding::Observed { value, low, high, .. } => {
            let of = |rate: &f64| rate * base.rtt_us / 8e6;
            Finding::Observed {
                value: of(value),
                low: of(low),
                high: of(high),
                evidence: format!("rate × {:.2} ms", base.rtt_us / 1e3),
            }
        }
        _ => Finding::NotObservable { reason: "the rate was not seen".into() },
    };
    let passes = [Some(first), second];
    let passes = || passes.iter().flatten();
    PathDirection {
        hops,
        mtu_bytes: mtu(first),
        buffer_bytes: buffer,
        bdp_bytes: bdp,
        drop_tail: drop_tail(first, ended, &policer),
        drops_per_overflow: Finding::NotObservable { reason: "it needs three overflows: --long".into() },
        random_loss: random_loss(first, second, ended, base),
        policer_bit_s: policer,
        window_bytes: Finding::NotObservable { reason: "the ends have not said their limits".into() },
        sent_bytes: passes().map(|trace| trace.sent_bytes).fold(0, u64::saturating_add),
        duration_us: passes().filter_map(|trace| trace.sent.last()).map(|row| row.at_us).fold(0, u64::saturating_add),
        rate_bit_s: rate,
    }
}

fn mtu(trace: &Trace<'_>) -> Finding {
    match trace.mtu_bytes {
        0 => Finding::NotObservable { reason: "the sender's kernel does not say".into() },
        mtu => {
            let value = f64::from(mtu);
            let evidence = format!("segments of {} bytes passed", trace.mss_bytes);
            Finding::Observed { value, low: value, high: value, evidence }
        }
    }
}

/// A limit that drops without a queue: much was lost while nothing waited, and more had passed before than passes then.
fn policer(trace: &Trace<'_>, delays: &[Delay], ended: End, base: Base) -> Finding {
    let queued_us = delays.last().map_or(0.0, |delay| delay.queued_us);
    let most_us = delays.iter().map(|delay| delay.queued_us).max_by(f64::total_cmp).unwrap_or(0.0);
    match ended {
        End::NoLoss => {
            Finding::NotObservable { reason: "nothing was lost; it may have a burst larger than was sent".into() }
        }
        End::FewLosses => Finding::NotObservable { reason: "few segments were lost".into() },
        End::Overflow => {
            let Some(hole) = trace.first_hole() else {
                return Finding::NotObservable { reason: "the receiver saw no gap".into() };
            };
            let at_us = trace.arrived[hole].at_us as f64;
            let after = trace.rate_between(at_us, at_us + base.rtt_us.max(20_000.0));
            let before = trace.peak_bit_s(base.rtt_us.clamp(4_000.0, 50_000.0) / 2.0, hole);
            match after.zip(before) {
                Some((after, before)) if before > BURST * after && queued_us < most_us.max(2.0 * QUEUE_LEAST_US) => {
                    let evidence = format!(
                        "{:.1} Mbit/s passed, then {:.1} Mbit/s with losses and {:.1} ms of queue",
                        before / 1e6,
                        after / 1e6,
                        queued_us / 1e3
                    );
                    Finding::Observed { value: after, low: after * 0.9, high: after * 1.1, evidence }
                }
                _ => {
                    let evidence = format!("a queue of {:.1} ms stood when segments were lost", queued_us / 1e3);
                    Finding::Absent { evidence }
                }
            }
        }
    }
}

fn rate(first: &Trace<'_>, second: Option<&Trace<'_>>, delays: &[Delay], base: Base, policer: &Finding) -> Finding {
    let of_second = second.map(Trace::delays).unwrap_or_default();
    let found = [Some((first, delays)), second.map(|trace| (trace, &of_second[..]))];
    let found = found.into_iter().flatten().filter_map(|(trace, delays)| line_rate(trace, delays));
    // The longer it was seen, the better it is known.
    if let Some((estimate, longest_us)) = found.max_by(|a, b| a.1.total_cmp(&b.1)) {
        let Estimate { value, low, high } = estimate;
        let evidence = format!("packets came at this rate for {:.1} ms while a queue delayed them", longest_us / 1e3);
        return Finding::Observed { value, low, high, evidence };
    }
    if let Some(value) = policer.value() {
        let evidence = format!("a policer lets {:.1} Mbit/s through; the line behind it is faster", value / 1e6);
        return Finding::AtLeast { value, evidence };
    }
    if let Some((trace, plateau)) = second.and_then(|trace| Some((trace, plateau(trace, base)?))) {
        let evidence = format!(
            "deliveries did not grow for {:.1} round trips while the window did",
            plateau.time_us / base.rtt_us.max(1.0)
        );
        let unsure = trace.packet_bytes * 16e6 / plateau.time_us;
        let value = plateau.rate;
        return Finding::Observed { value, low: value * 0.97 - unsure, high: value * 1.03 + unsure, evidence };
    }
    let peak = |trace: &Trace<'_>| trace.peak_bit_s(base.rtt_us.max(10_000.0), trace.arrived.len());
    let best = [Some(first), second].into_iter().flatten().filter_map(peak).max_by(f64::total_cmp);
    match best {
        Some(value) => Finding::AtLeast { value, evidence: "no queue grew: the line was not full".into() },
        None => Finding::NotObservable { reason: "too little was sent to see it".into() },
    }
}

struct Plateau {
    rate: f64,
    time_us: f64,
}

/// The time in which deliveries stay at their height: the two halves of the best three round trips carry the same.
fn plateau(trace: &Trace<'_>, base: Base) -> Option<Plateau> {
    let width_us = (3.0 * base.rtt_us).max(30_000.0);
    let last_us = trace.arrived.last()?.at_us as f64;
    let mut best: Option<Plateau> = None;
    let first_us = trace.arrived.first()?.at_us as f64;
    for step in 0..STEPS_MOST {
        let from_us = first_us + f64::from(step) * width_us / 8.0;
        if from_us + width_us > last_us {
            break;
        }
        let half_us = width_us / 2.0;
        let halves = trace
            .rate_between(from_us, from_us + half_us)
            .zip(trace.rate_between(from_us + half_us, from_us + width_us));
        if let Some((a, b)) = halves.filter(|(a, b)| (a - b).abs() < 0.05 * a.max(*b)) {
            let rate = (a + b) / 2.0;
            if best.as_ref().is_none_or(|best| rate > best.rate) {
                best = Some(Plateau { rate, time_us: width_us });
            }
        }
    }
    // A plateau below what came at other times is none.
    let best = best?;
    let peak = trace.peak_bit_s(width_us / 2.0, trace.arrived.len())?;
    (best.rate > 0.93 * peak).then_some(best)
}

/// The losses of an overflow, as the sender saw them, in the round trip after the first.
struct Episode {
    /// The longest queue meanwhile, in microseconds.
    queued_us: f64,
    /// Segments lost before the queue was near that.
    early: u32,
    /// Segments lost in all.
    lost: u32,
}

/// A queue of this part of the longest counts as full.
const FULL: f64 = 0.8;

fn episode(trace: &Trace<'_>) -> Option<Episode> {
    let first = trace.sent.iter().position(|row| row.lost > 0)?;
    let until_us = trace.sent[first].at_us.saturating_add(u64::from(trace.sent[first].rtt_us) * 3 / 2);
    let rows = &trace.sent[first..];
    let rows = &rows[..rows.partition_point(|row| row.at_us <= until_us)];
    let base_us = trace.sent.iter().map(|row| row.rtt_min_us).filter(|rtt| *rtt > 0).min()?;
    let queued_us = |rtt_us: u32| f64::from(rtt_us.saturating_sub(base_us));
    let most_us = rows.iter().map(|row| queued_us(row.rtt_us)).max_by(f64::total_cmp)?;
    let early = rows.iter().take_while(|row| queued_us(row.rtt_us) < FULL * most_us).map(|row| row.lost).last();
    let lost = rows.iter().map(|row| row.lost).max()?;
    Some(Episode { queued_us: most_us, early: early.unwrap_or(0), lost })
}

impl Episode {
    /// Whether what was lost before the queue was full is no more than chance.
    fn is_drop_tail(&self, trace: &Trace<'_>) -> bool {
        let by_chance = (f64::from(trace.window_before_loss()) * 0.03).max(3.0);
        f64::from(self.early) <= by_chance
    }
}

fn buffer(trace: &Trace<'_>, delays: &[Delay], ended: End, rate: Option<f64>, policer: &Finding) -> Finding {
    let not = |reason: &str| Finding::NotObservable { reason: reason.into() };
    let Some(rate) = rate else { return not("the rate was not seen") };
    if policer.value().is_some() {
        return not("a policer drops before a queue grows");
    }
    let most_us = delays.iter().map(|delay| delay.queued_us).max_by(f64::total_cmp).unwrap_or(0.0);
    let of = |queued_us: f64| queued_us * rate / 8e6;
    let at_least = |evidence: String| Finding::AtLeast { value: of(most_us), evidence };
    match ended {
        End::NoLoss => at_least(format!("a queue of {:.1} ms lost nothing", most_us / 1e3)),
        End::FewLosses => {
            at_least(format!("the first loss came by chance, at a queue of up to {:.1} ms", most_us / 1e3))
        }
        End::Overflow => {
            // What came last before the first gap saw a queue that was nearly full, unless that gap was one of chance.
            let last = delays.iter().rev().take(5).map(|delay| delay.queued_us).max_by(f64::total_cmp).unwrap_or(0.0);
            let later = episode(trace).map_or(0.0, |episode| episode.queued_us);
            let (queued_us, unsure_us) = if later > last / FULL { (later, later * 0.05) } else { (last, EDGE_US) };
            if queued_us < 2.0 * QUEUE_LEAST_US {
                let less = of(2.0 * QUEUE_LEAST_US);
                return Finding::AtMost {
                    value: less,
                    evidence: "losses came without a queue that could be seen".into(),
                };
            }
            let unsure = of(unsure_us) + trace.packet_bytes;
            // The next packet did not fit: on average half of one.
            let value = of(queued_us) + trace.packet_bytes / 2.0;
            let evidence = format!("segments were lost when a queue of {:.1} ms stood", queued_us / 1e3);
            Finding::Observed { value, low: (value - unsure).max(0.0), high: value + unsure, evidence }
        }
    }
}

fn drop_tail(trace: &Trace<'_>, ended: End, policer: &Finding) -> Judgement {
    let not = |reason: &str| Judgement::NotObservable { reason: reason.into() };
    if policer.value().is_some() {
        return not("a policer drops before a queue grows");
    }
    if ended != End::Overflow {
        return not("no buffer overflowed");
    }
    let Some(episode) = episode(trace) else { return not("the sender saw no loss") };
    if episode.queued_us < 2.0 * QUEUE_LEAST_US {
        return not("no queue could be seen when segments were lost");
    }
    let Episode { queued_us, early, lost } = episode;
    let evidence = format!(
        "{early} of {lost} segments were lost before the queue was near its longest, {:.1} ms",
        queued_us / 1e3
    );
    match episode.is_drop_tail(trace) {
        true => Judgement::Yes { evidence },
        false => Judgement::No { evidence },
    }
}

fn random_loss(first: &Trace<'_>, second: Option<&Trace<'_>>, ended: End, base: Base) -> Finding {
    // The pass that does not heed loss has seen most; what it lost while a queue stood may be the queue's.
    if let Some(second) = second {
        let (lost, delivered) = without_queue(second, base);
        if delivered >= 100 {
            return of_counts(lost, delivered);
        }
    }
    let (lost, delivered) = first.losses();
    match ended {
        End::NoLoss => of_counts(0, delivered),
        End::FewLosses => of_counts(lost, delivered),
        End::Overflow => {
            let until = first.sent.iter().position(|row| row.retransmits > 0).unwrap_or(first.sent.len());
            let before = first.sent[..until].last().map_or(0, |row| row.delivered);
            of_counts(0, before)
        }
    }
}

/// The segments lost in each episode but the first, which is slow start's.
pub fn drops(sent: &[Row]) -> Finding {
    let (mut episodes, mut last_us): (Vec<f64>, Option<u64>) = (Vec::new(), None);
    for pair in sent.windows(2) {
        let lost = pair[1].retransmits.saturating_sub(pair[0].retransmits);
        if lost == 0 {
            continue;
        }
        let is_new = last_us.is_none_or(|last_us| pair[1].at_us > last_us + 2 * u64::from(pair[0].rtt_us));
        last_us = Some(pair[1].at_us);
        match episodes.last_mut().filter(|_| !is_new) {
            Some(episode) => *episode += f64::from(lost),
            None => episodes.push(f64::from(lost)),
        }
    }
    let counted = episodes.get(1..).unwrap_or_default();
    if counted.len() < OVERFLOWS_LEAST {
        let reason = format!("the buffer overflowed {} times after slow start in the time", counted.len());
        return Finding::NotObservable { reason };
    }
    let mean = counted.iter().sum::<f64>() / counted.len() as f64;
    let low = counted.iter().copied().fold(f64::INFINITY, f64::min);
    let high = counted.iter().copied().fold(0.0, f64::max);
    let evidence = format!("{} overflows after slow start: {counted:?} segments", counted.len());
    Finding::Observed { value: mean, low, high, evidence }
}

/// Segments lost and delivered while round trips were near the base.
fn without_queue(trace: &Trace<'_>, base: Base) -> (u32, u32) {
    let near_us = base.rtt_us * 1.25 + 1_000.0;
    let pairs = trace.sent.windows(2).filter(|pair| f64::from(pair[1].rtt_us) < near_us);
    pairs.fold((0, 0), |(lost, delivered), pair| {
        let grown = |of: fn(&Row) -> u32| of(&pair[1]).saturating_sub(of(&pair[0]));
        (lost.saturating_add(grown(|row| row.retransmits)), delivered.saturating_add(grown(|row| row.delivered)))
    })
}

/// A part with its 95 % interval: of few events that of Poisson's distribution, by its approximation with a square root.
fn of_counts(lost: u32, delivered: u32) -> Finding {
    let all = f64::from(lost) + f64::from(delivered);
    if all < 20.0 {
        return Finding::NotObservable { reason: "too few segments were sent".into() };
    }
    let evidence = format!("{lost} of {all} segments");
    if lost == 0 {
        return Finding::AtMost { value: 3.0 / all, evidence };
    }
    let root = f64::from(lost).sqrt();
    let [low, high] = [(root - 0.98).max(0.0), root + 0.98].map(|root| root * root / all);
    Finding::Observed { value: f64::from(lost) / all, low, high: high.min(1.0), evidence }
}
