//! The findings about a direction, from its traces.

use std::collections::VecDeque;

use ekiden_record::{Finding, Judgement, PathDirection};
use ekiden_units::quantile;

use crate::episodes::episodes;
use crate::hole::Hole;
use ekiden_measure_proto::row::Row;

use super::base::{Base, QUEUE_LEAST_US};
use super::buffer::{buffer, drop_tail};
use super::ended::{End, end, last_us, loses_much};
use super::policer::policer;
use super::rate::rate;
use super::trace::{Delay, Trace};

/// Least number of overflows that shows how many segments one overflow drops.
const OVERFLOWS_LEAST: usize = 3;

/// The direction's findings from its passes: the first with Reno, and where there is one a second that does not react to single losses.
pub fn direction(first: &Trace<'_>, second: Option<&Trace<'_>>, base: Base, hops: Finding) -> PathDirection {
    let delays = first.delays();
    let ended = end(first, &delays, base);
    let policer = policer(first, second, &delays, ended, base);
    let rate = rate(first, second, &delays, base, &policer);
    let by_chance = is_by_chance(&delays, second, base);
    let buffer = said_late(buffer(first, &delays, base, ended, &rate, &policer, by_chance), first);
    let passes = [Some(first), second];
    let passes = || passes.iter().flatten();
    PathDirection {
        hops,
        mtu_bytes: mtu(first),
        buffer_bytes: buffer,
        bdp_bytes: Finding::NotObservable { reason: "the rate was not seen".into() },
        drop_tail: drop_tail(first, &delays, base, ended, &policer),
        drops_per_overflow: Finding::NotObservable { reason: "it needs three overflows: --long".into() },
        random_loss: match policer.value() {
            Some(_) if ended == End::FewLosses => {
                Finding::NotObservable { reason: "a policer may have dropped what was lost".into() }
            }
            _ if ended == End::FewLosses && !by_chance => Finding::NotObservable {
                reason: "what few segments were lost, chance or a short buffer may have dropped".into(),
            },
            _ if ended == End::Overflow && !matches!(policer, Finding::Absent { .. }) => Finding::NotObservable {
                reason: "what dropped at first may be a policer, a full buffer or chance".into(),
            },
            _ => random_loss(first, second, ended, base),
        },
        policer_bit_s: policer,
        window_bytes: Finding::NotObservable { reason: "the ends have not said their limits".into() },
        sent_bytes: passes().map(|trace| trace.sent_bytes).fold(0, u64::saturating_add),
        duration_us: passes().filter_map(|trace| trace.sent.last()).map(|row| row.at_us).fold(0, u64::saturating_add),
        rate_bit_s: rate,
    }
}

/// With how late an end looked, where that could have passed for a queue.
fn said_late(mut finding: Finding, trace: &Trace<'_>) -> Finding {
    let (Finding::Observed { evidence: said, .. }
    | Finding::AtLeast { evidence: said, .. }
    | Finding::AtMost { evidence: said, .. }
    | Finding::Absent { evidence: said }
    | Finding::NotObservable { reason: said }) = &mut finding;
    if let Some(late_us) = trace.stalled_us() {
        said.push_str(&format!("; an end looked up to {:.1} ms late", late_us / 1e3));
    }
    finding
}

fn mtu(trace: &Trace<'_>) -> Finding {
    let mtu = trace.mtu_bytes;
    let not_observable = |reason: &str| Finding::NotObservable { reason: reason.into() };
    let Some(arrived) = trace.arrived_mss_bytes else {
        return not_observable("the ends cannot tell how long the segments were that arrived whole");
    };
    if mtu == 0 {
        return not_observable("the sender's kernel does not say");
    }
    let value = arrived + trace.packet_bytes - trace.mss_bytes;
    let evidence = format!("segments of {arrived} bytes passed");
    if value >= f64::from(mtu) {
        let value = f64::from(mtu);
        return Finding::Observed { value, low: value, high: value, evidence };
    }
    let why = match trace.begins_short {
        true => {
            "the sender's kernel begins with short ones and looks for longer ones by itself (net.ipv4.tcp_mtu_probing = 2)"
        }
        false if arrived < trace.mss_bytes => "longer ones were not seen to arrive",
        false => "an end, or a router on the way, allows TCP no larger ones (MSS)",
    };
    Finding::AtLeast { value, evidence: format!("{evidence}; {why}, though packets of {mtu} fit the first link") }
}

/// The findings of a direction whose long segments do not arrive: of the rest its load says nothing.
pub fn holed(trace: &Trace<'_>, hole: Hole, hops: Finding) -> PathDirection {
    let none = || Finding::NotObservable { reason: "long segments did not arrive".into() };
    let mtu_bytes = match trace.arrived_mss_bytes {
        Some(arrived) => Finding::AtLeast {
            value: arrived + trace.packet_bytes - trace.mss_bytes,
            evidence: format!("segments of {arrived} bytes passed; {hole}"),
        },
        None => Finding::NotObservable { reason: hole.to_string() },
    };
    PathDirection {
        hops,
        mtu_bytes,
        buffer_bytes: none(),
        bdp_bytes: none(),
        drop_tail: Judgement::NotObservable { reason: "long segments did not arrive".into() },
        drops_per_overflow: none(),
        random_loss: none(),
        policer_bit_s: none(),
        window_bytes: none(),
        sent_bytes: trace.sent_bytes,
        duration_us: trace.sent.last().map_or(0, |row| row.at_us),
        rate_bit_s: none(),
    }
}

fn random_loss(first: &Trace<'_>, second: Option<&Trace<'_>>, ended: End, base: Base) -> Finding {
    // The pass that does not heed loss has seen most; what it lost while a queue stood may be the queue's.
    if let Some(second) = second.filter(|_| ended == End::FewLosses) {
        let (lost, delivered) = without_queue(second, base);
        if loses_much(second) {
            return at_most(&lost, delivered);
        }
        if delivered >= 100 {
            return of_counts(&lost, delivered);
        }
    }
    let (lost, delivered) = first.losses();
    match ended {
        End::NoLoss => of_counts(&[], delivered),
        End::FewLosses => of_counts(&[lost], delivered),
        End::Overflow => {
            let until = first.sent.iter().position(|row| row.retransmits > 0).unwrap_or(first.sent.len());
            let before = first.sent[..until].last().map_or(0, |row| row.delivered);
            of_counts(&[], before)
        }
    }
}

/// Threshold as a multiple of the queue at the first losses: a buffer that holds more was not full then.
const HOLDS_MORE: f64 = 1.5;

/// A buffer that holds more than this part of a round trip, and this many microseconds more, is no short one: a burst fills that at once.
const SHORT_PART: f64 = 0.3;
const SHORT_US: f64 = 1_000.0;

/// Whether few losses came by chance: the second pass had a much longer queue than stood then, and one longer than a short buffer's.
fn is_by_chance(delays: &[Delay], second: Option<&Trace<'_>>, base: Base) -> bool {
    // A few round trips are longer where a host was late.
    let mut rtts_us: Vec<_> = second.map_or_else(Vec::new, |second| second.sent.iter().map(|row| row.rtt_us).collect());
    rtts_us.sort_unstable();
    let long_us = quantile::above(&rtts_us, 95);
    let queued_us = long_us.map_or(0.0, f64::from) - base.rtt_us - base.spread_us;
    queued_us > (HOLDS_MORE * last_us(delays) + QUEUE_LEAST_US).max(SHORT_PART * base.rtt_us + SHORT_US)
}

/// The segments lost in each episode but the first, which is slow start's.
pub fn drops(sent: &[Row]) -> Finding {
    let counted: Vec<_> = episodes(sent, 0).iter().skip(1).map(|episode| f64::from(episode.lost)).collect();
    if counted.len() < OVERFLOWS_LEAST {
        let reason = format!("the buffer overflowed {} times after slow start in the time", counted.len());
        return Finding::NotObservable { reason };
    }
    let mean = counted.iter().sum::<f64>() / counted.len() as f64;
    let low = counted.iter().copied().fold(f64::INFINITY, f64::min);
    let high = counted.iter().copied().fold(0.0, f64::max);
    let each: Vec<_> = counted.iter().map(|lost| format!("{lost:.0}")).collect();
    let evidence = format!("{} overflows after slow start lost {} segments", counted.len(), each.join(", "));
    Finding::Observed { value: mean, low, high, evidence }
}

/// Segments lost, in runs, and delivered while round trips were near the base. A segment is sent again a round trip after it was lost, when a short
/// queue may be empty again: it counts with the longest round trip since then.
fn without_queue(trace: &Trace<'_>, base: Base) -> (Vec<u32>, u32) {
    let most_us = trace.sent.iter().map(|row| row.rtt_us).max().map_or(0.0, f64::from);
    // A short buffer is full before round trips are much longer.
    let near_us = (base.rtt_us * 1.25 + 1_000.0).min((base.rtt_us + most_us) / 2.0);
    let (mut lost, mut delivered, mut last_rtt) = (Vec::new(), 0_u32, VecDeque::new());
    let (mut long_until_us, mut run_until_us) = (0, 0);
    for pair in trace.sent.windows(2) {
        let grown = |of: fn(&Row) -> u32| of(&pair[1]).saturating_sub(of(&pair[0]));
        let row = &pair[1];
        if f64::from(row.rtt_us) >= near_us {
            // What was lost in the last round trip is sent again while the queue stands.
            last_rtt.clear();
            long_until_us = row.at_us.saturating_add(u64::from(row.rtt_us) * 3 / 2);
        } else if row.at_us > long_until_us {
            let resent = grown(|row| row.retransmits);
            match lost.last_mut().filter(|_| row.at_us <= run_until_us) {
                Some(run) => *run = u32::saturating_add(*run, resent),
                None if resent > 0 => lost.push(resent),
                None => {}
            }
            if resent > 0 {
                run_until_us = row.at_us.saturating_add(RUN_US);
            }
            last_rtt.push_back((row.at_us, grown(|row| row.delivered)));
            while let Some((at_us, came)) = last_rtt.pop_front() {
                if row.at_us < u64::saturating_add(at_us, row.rtt_us.into()) {
                    last_rtt.push_front((at_us, came));
                    break;
                }
                delivered = u32::saturating_add(delivered, came);
            }
        }
    }
    (lost, delivered)
}

/// Longest pause, in microseconds, between retransmissions of segments that were lost in one run.
const RUN_US: u64 = 2_000;
/// Assumed longest run of losses, in segments, where no loss was seen that would show it.
const RUN: f64 = 15.0;
/// Limit on the expected number of runs where none was seen: with more, that happens by chance in less than one case of a thousand
/// (Poisson distribution, -ln 0.001).
const UNSEEN: f64 = 7.0;
/// An upper bound on the lost part that exceeds this says nothing.
const BOUND_MOST: f64 = 0.2;
/// Half the width of a 99 % interval of the square root of a count.
const WIDTH: f64 = 1.3;

/// The lost part of the segments and its 99 % interval, by the runs in which segments were lost and by the number of those delivered. The
/// interval is that of a Poisson distribution, approximated with a square root, and is wider if the lengths of runs differ.
fn of_counts(runs: &[u32], delivered: u32) -> Finding {
    let lost = f64::from(runs.iter().copied().fold(0, u32::saturating_add));
    let all = lost + f64::from(delivered);
    if all < 20.0 {
        return Finding::NotObservable { reason: "too few segments were sent".into() };
    }
    let evidence = format!("{lost} of {all} segments");
    if lost == 0.0 {
        let value = UNSEEN * RUN / all;
        return match value <= BOUND_MOST {
            true => Finding::AtMost { value, evidence: format!("{evidence}, if they come in runs of up to {RUN}") },
            false => {
                Finding::NotObservable { reason: format!("{evidence} is too few to tell, where losses come in runs") }
            }
        };
    }
    let count = runs.len() as f64;
    let squares: f64 = runs.iter().map(|run| f64::from(*run).powi(2)).sum();
    let width = WIDTH * (squares * count / lost.powi(2)).sqrt();
    // A single run says little about the length of others.
    let each = lost / count;
    let longest = if count < 4.0 { each.max(RUN) } else { each };
    let low = (count.sqrt() - width).max(0.0).powi(2) * each / all;
    let high = ((count + 1.0).sqrt() + width).powi(2) * longest / all;
    Finding::Observed { value: lost / all, low, high: high.min(1.0), evidence }
}

/// An upper bound on random loss, from losses that a policer may have caused, too.
fn at_most(runs: &[u32], delivered: u32) -> Finding {
    match of_counts(runs, delivered) {
        Finding::Observed { high, evidence, .. } if high <= BOUND_MOST => {
            Finding::AtMost { value: high, evidence: format!("{evidence}; a policer may have dropped some") }
        }
        Finding::Observed { evidence, .. } => {
            Finding::NotObservable { reason: format!("{evidence} were lost: so much a policer may have dropped") }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_were_not_seen_are_bounded_by_what_hardly_happens() {
        // A path of 783 Mbit/s that loses 0.12 % in runs of 17 lost none of 77,016 segments, as happens once in 250 times.
        let Finding::AtMost { value, .. } = of_counts(&[], 77_016) else { panic!() };
        assert!((0.001_22..0.002).contains(&value), "{value}");
        assert!(matches!(of_counts(&[], 500), Finding::NotObservable { .. }));
    }
}
