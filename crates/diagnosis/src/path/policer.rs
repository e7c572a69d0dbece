//! A policer: a limit that drops without a queue.

use ekiden_record::Finding;

use super::base::{Base, SHORT_QUEUE_US};
use super::ended::{End, is_queue_full, last_us, loses_much};
use super::held::held;
use super::rate::{line_rate, surely_carried};
use super::trace::{Delay, Trace};

/// A policer lets more than this times its rate through before it drops.
const BURST: f64 = 1.3;
/// Without a policer the rate after the first losses is lower than before by no more than this factor, and by what one packet more or less
/// changes. A policer of less than nine tenths of the line's rate changes it more.
const AS_MUCH: f64 = 1.11;
/// A policer is reported as absent only if one of less than this part of the line's rate would have shown itself.
const EXCLUDED_LEAST: f64 = 0.7;
/// Interval after the first losses, in parts of a round trip: the last segments before the sender's reaction were sent in it, and the
/// queue that they met is taken from its samples.
const LEFT_FROM: f64 = 0.5;
const LEFT_UNTIL: f64 = 0.95;
/// A queue that delays by less than this part of a round trip may be no queue.
const SHORT_QUEUE: f64 = 0.1;
/// Least number of packets, and least time in microseconds, that show whether the rate after the first losses is that before them.
const AFTER_PACKETS: f64 = 8.0;
const SUSPECTED_LEAST_US: f64 = 4_000.0;
/// Least relative uncertainty of a policer's rate: retransmissions leave some of it unused, and a burst exceeds it.
const UNSURE: f64 = 0.25;
/// Limit on the rate before the first losses, as a multiple of the rate that holds after them: behind a queue, a rate within it is
/// a shaper's.
const SHAPED: f64 = 1.25;
/// Longest pause behind a policer, as the time of this many packets at its rate. A policer lets packets through all the time, so a longer
/// pause shows a run of losses.
const PAUSE_PACKETS: f64 = 12.0;
/// A policer that lets fewer packets than this through at once drops from every burst, however rare bursts are: it may let more through if
/// packets come evenly.
const AT_ONCE_PACKETS: f64 = 10.0;
/// Of what was sent again, no more than this part may have come twice.
const TWICE_MOST: f64 = 0.2;

/// Whether something other than a full buffer may have dropped: where a buffer overflows, there is a queue, and the line delivers as much
/// as before, because the buffer stays full.
pub fn is_suspected(trace: &Trace<'_>, delays: &[Delay], ended: End, base: Base) -> bool {
    ended == End::Overflow
        && trace.first_hole().is_some()
        && !(has_queue(delays, base) && after_first(trace, delays, base).is_some_and(After::is_no_policer))
}

/// What came after the first losses until the sender's answer to them did: a round trip and the queue later. `None` if too few packets can
/// come until then, or the trace ends before.
fn after_first(trace: &Trace<'_>, delays: &[Delay], base: Base) -> Option<After> {
    let at_us = trace.arrived.get(trace.first_hole()?)?.at_us as f64;
    // Where no queue showed the line's rate, what came before may be any part of it.
    line_rate(trace, delays, base)?;
    let before = before(trace, delays, base);
    let queued_us = last_us(delays);
    let answer_us = (base.rtt_us + queued_us).max(SUSPECTED_LEAST_US);
    let enough_us = AFTER_PACKETS * trace.packet_bytes * 8e6 / before.max(1.0);
    let after = trace.passed_bit_s(at_us, at_us + answer_us).filter(|_| answer_us >= enough_us)?;
    let after = After::of(before, after, answer_us, trace.packet_bytes);
    // Behind a policer a queue goes on at the line's rate while it grows shorter.
    let by_rate = after.enough * answer_us / (answer_us + queued_us);
    let by_queue = queue_after(trace, base, queued_us).map_or(0.0, |left_us| {
        let shorter_us = (queued_us - left_us).max(0.0) + trace.packet_bytes * 8e6 / before.max(1.0);
        1.0 - shorter_us / (LEFT_FROM * answer_us)
    });
    Some(After { excluded: by_rate.max(by_queue.min(after.enough)), ..after })
}

/// The shortest queue, in microseconds, that what was sent in the last part of the round trip before the sender's answer met.
fn queue_after(trace: &Trace<'_>, base: Base, queued_us: f64) -> Option<f64> {
    let lost = trace.sent.iter().find(|row| row.lost > 0 || row.retransmits > 0)?;
    let since = |part: f64| lost.at_us as f64 + part * (base.rtt_us + queued_us);
    let rows = trace.sent.iter().filter(|row| (since(LEFT_FROM)..since(LEFT_UNTIL)).contains(&(row.at_us as f64)));
    rows.map(|row| (f64::from(row.rtt_us) - base.rtt_us).max(0.0)).min_by(f64::total_cmp)
}

/// What came after the first losses, beside what came before.
#[derive(Debug, Clone, Copy, PartialEq)]
struct After {
    /// The rate after them as a part of that before.
    part: f64,
    /// From this part on the rates count as equal.
    enough: f64,
    /// A policer of a smaller part would have shown itself.
    excluded: f64,
}

impl After {
    /// From the rates before and after, in bit/s; `over_us` is the time for which the later one was seen.
    fn of(before: f64, after: f64, over_us: f64, packet_bytes: f64) -> Self {
        let packets = after * over_us / 8e6 / packet_bytes;
        let enough = 1.0 / (AS_MUCH + 1.5 / packets.max(1.0)).min(BURST);
        Self { part: after / before.max(1.0), enough, excluded: enough }
    }

    fn is_no_policer(self) -> bool {
        self.part >= self.enough && self.excluded >= EXCLUDED_LEAST
    }

    /// No policer, as far as that can be told: one with a larger burst than came before the first losses drops later.
    fn absent(self, trace: &Trace<'_>, why: &str) -> Finding {
        let burst_kb = trace.first_hole().map_or(0.0, |hole| trace.came_bytes(0, hole)) / 1e3;
        let part = self.excluded * 100.0;
        Finding::Absent {
            evidence: format!(
                "{why}: none of less than {part:.0} % of the rate with a burst of up to {burst_kb:.0} kB"
            ),
        }
    }
}

fn has_queue(delays: &[Delay], base: Base) -> bool {
    last_us(delays) > (SHORT_QUEUE * base.rtt_us).max(SHORT_QUEUE_US) + 2.0 * base.spread_us
}

/// The rate before the first losses, in bit/s: the greater of its peak and the rate at which packets came while a queue delayed them.
fn before(trace: &Trace<'_>, delays: &[Delay], base: Base) -> f64 {
    let hole = trace.first_hole().unwrap_or(trace.arrived.len());
    let peak = trace.peak_bit_s(base.rtt_us.clamp(4_000.0, 50_000.0) / 2.0, hole).unwrap_or(0.0);
    line_rate(trace, delays, base).map_or(peak, |line| line.value.max(peak))
}

/// What the second pass shows where the first lost few segments: that much is lost and no queue stands.
fn is_policed(second: &Trace<'_>, base: Base) -> bool {
    loses_much(second) && !is_queue_full(&second.delays(), base)
}

/// Decides on a suspicion by the second pass: a sender that reacts to losses sends less after them, whatever dropped.
pub fn policer(first: &Trace<'_>, second: Option<&Trace<'_>>, delays: &[Delay], ended: End, base: Base) -> Finding {
    let not = |reason: &str| Finding::NotObservable { reason: reason.into() };
    match ended {
        End::NoLoss => return not("nothing was lost; it may have a burst larger than was sent"),
        End::FewLosses if !second.is_some_and(|second| is_policed(second, base)) => {
            return not("few segments were lost");
        }
        End::Overflow if first.first_hole().is_none() => return not("the receiver saw no gap"),
        End::FewLosses | End::Overflow => {}
    }
    let after_first = after_first(first, delays, base);
    if ended == End::Overflow
        && !is_suspected(first, delays, ended, base)
        && let Some(after) = after_first
    {
        let queued_ms = last_us(delays) / 1e3;
        return after.absent(
            first,
            &format!("as much came after the first losses, with a queue of {queued_ms:.1} ms, as before"),
        );
    }
    let Some(second) = second else {
        return not(match after_first {
            Some(_) => "less came after the first losses than before, or no queue stood; only BBR could tell more",
            None => {
                "no queue stood for long before the first losses, or too few packets came after them; only BBR could tell more"
            }
        });
    };
    let Some(held) = held(second, base) else {
        return not("less came after the first losses than before, but it did not hold for three round trips");
    };
    let burst = [first, second].into_iter().map(|trace| burst(trace, base)).fold(0.0, f64::max);
    // Nothing passes faster than the line: what seems to was seen by an end that was late.
    let burst = line_rate(first, delays, base).map_or(burst, |line| burst.min(line.value));
    let of_held = After::of(
        before(first, delays, base).max(before(second, &second.delays(), base)),
        held.rate,
        base.rtt_us,
        second.packet_bytes,
    );
    if burst > BURST * held.rate * (1.0 + held.unsure) {
        if base.spread_us > base.rtt_us {
            return not("jitter is longer than a round trip");
        }
        if !loses_much(second) {
            return not("less came after the first losses than before, but few segments were lost then");
        }
        if f64::from(second.came_twice()) > TWICE_MOST * f64::from(second.losses().0) {
            return not("packets overtook each other, and what that makes looks like a policer's rate");
        }
        if held.has_queue {
            return not("less came after the first losses than before, but a queue stood: a policer makes none");
        }
        let of_second = second.delays();
        if is_shaped(first, delays, base, held.rate) || is_shaped(second, &of_second, base, held.rate) {
            return not(
                "less came after the first losses than before, but a queue was full then that a shaper may have",
            );
        }
        let at_once = first.first_hole().map_or(0.0, |hole| first.came_bytes(0, hole));
        if at_once < AT_ONCE_PACKETS * first.packet_bytes {
            return not("so little passed before the first losses that bursts of a few packets may have been dropped");
        }
        let pause_us = PAUSE_PACKETS * second.packet_bytes * 8e6 / held.rate.max(1.0);
        if held.pause_us > pause_us + base.spread_us + second.latest_us() {
            return not(
                "less came after the first losses than before, but with pauses: runs of losses may have made them",
            );
        }
        let [before, rate] = [burst, held.rate].map(|rate| rate / 1e6);
        let evidence = format!("{before:.1} Mbit/s passed, then {rate:.1} Mbit/s with losses");
        let unsure = UNSURE + held.unsure;
        let (low, high) = (held.rate * (1.0 - unsure).max(0.0), held.most * (1.0 + unsure));
        return Finding::Observed { value: held.rate, low, high, evidence };
    }
    match has_queue(delays, base) {
        true if of_held.is_no_policer() && after_first.is_some() => {
            of_held.absent(first, "as much came after the first losses as before")
        }
        true => not(
            "a little less came after the first losses than before: a policer of nearly the line's rate would do that, too",
        ),
        false => not("hardly a queue stood when segments were lost, and no burst passed before"),
    }
}

/// Whether there was a queue before the first losses, and the rate while the last segment waited in it was about `rate` or less.
fn is_shaped(trace: &Trace<'_>, delays: &[Delay], base: Base, rate: f64) -> bool {
    let queued_us = last_us(delays);
    let Some(last) = delays.last().filter(|_| has_queue(delays, base)) else { return false };
    let waited = &delays[delays.partition_point(|delay| delay.at_us < last.at_us - queued_us)..];
    let Some(first) = waited.first().filter(|first| first.at_us < last.at_us) else { return false };
    trace.carried_bytes(first, last) * 8e6 / (last.at_us - first.at_us) <= SHAPED * rate
}

/// What surely passed before the first losses in the best of some round trips, in bit/s. Where an end was late, packets came together.
fn burst(trace: &Trace<'_>, base: Base) -> f64 {
    let (width_us, held_us) = ((base.rtt_us / 2.0).clamp(2_000.0, 25_000.0), trace.latest_us());
    [1.0, 2.0, 4.0].map(|times| surely_carried(trace, base, times * width_us, held_us)).into_iter().fold(0.0, f64::max)
}
