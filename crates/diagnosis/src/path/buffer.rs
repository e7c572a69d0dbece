//! The buffer in front of the line, and whether it drops only when it is full.

use ekiden_record::{Finding, Judgement};

use super::base::{Base, QUEUE_LEAST_US};
use super::ended::{End, FULL, last_us};
use super::rate::EDGE_US;
use super::trace::{Delay, Trace, longest_us};

/// Least relative uncertainty of a queue, and of one that is known by smoothed round trips.
const UNSURE: f64 = 0.02;
const LATER_UNSURE: f64 = 0.05;
/// Where the queue grows by this factor after a first loss, smoothed round trips are far behind it.
const GROWS: f64 = 2.0;
/// Smoothed round trips of a queue that grows lag behind it by up to this part.
const LAGS: f64 = 0.25;

/// Limit on jitter, as a part of the queue: with more there is no finding about the queue.
const JITTER_MOST: f64 = 0.25;

/// Losses at a queue of less than this part of the longest are early: a drop-tail queue makes none, though random loss may make a run.
const EARLY: f64 = 0.5;

/// The losses of an overflow, as the sender saw them, in the round trip after the first.
struct Episode {
    /// The longest queue meanwhile, in microseconds.
    queued_us: f64,
    /// Segments lost before the queue was near that.
    early: u32,
    /// Segments lost in all.
    lost: u32,
    /// Segments that came while they were lost.
    came: u32,
}

/// A full buffer drops a part within this range of what is sent meanwhile: slow start sends twice what leaves the buffer. A run of random
/// losses takes all segments, and several runs take only few of those sent between the first and the last.
const OVERFLOWING: std::ops::RangeInclusive<f64> = 0.15..=0.85;
/// More segments than this are missing at once in an overflow.
const LOST_AT_ONCE: u32 = 2;
/// Limit on a run of random losses, in segments. Where more are lost, as a part within this range of what is sent in a round trip, a buffer
/// has overflowed.
const RUN_MOST: u32 = 100;
const SURELY_OVERFLOWING: std::ops::RangeInclusive<f64> = 0.2..=0.8;
/// Least number of segments that arrive in an overflow. After a run, three more segments show what was lost (RFC 6675, 3), and each of
/// its last ones needs one more.
const CAME_LEAST: u32 = 6;
/// The part of an episode's losses at which the segments that arrived are counted.
const RIPE: f64 = 0.9;

/// The first losses that are more than random loss takes at once.
fn episode(trace: &Trace<'_>, base: Base) -> Option<Episode> {
    let many = trace.sent.iter().position(|row| row.lost > LOST_AT_ONCE)?;
    let first = trace.sent[..many].iter().rposition(|row| row.lost == 0).map_or(0, |before| before + 1);
    let until_us = trace.sent[first].at_us.saturating_add(u64::from(trace.sent[first].rtt_us) * 3 / 2);
    let rows = &trace.sent[first..];
    let rows = &rows[..rows.partition_point(|row| row.at_us <= until_us)];
    let queued_us = |rtt_us: u32| (f64::from(rtt_us) - base.rtt_us).max(0.0);
    let most_us = rows.iter().map(|row| queued_us(row.rtt_us)).max_by(f64::total_cmp)?;
    let early = rows.iter().take_while(|row| queued_us(row.rtt_us) < FULL * most_us).map(|row| row.lost).last();
    let lost = rows.iter().map(|row| row.lost).max()?;
    let ripe = rows.iter().find(|row| f64::from(row.lost) >= RIPE * f64::from(lost))?;
    let came = ripe.delivered.saturating_sub(trace.sent[first].delivered);
    Some(Episode { queued_us: most_us, early: early.unwrap_or(0), lost, came })
}

impl Episode {
    /// Whether the losses are spread over what was sent as a full buffer spreads them.
    fn is_overflow(&self) -> bool {
        let [lost, came] = [self.lost, self.came].map(f64::from);
        self.came >= CAME_LEAST && OVERFLOWING.contains(&(lost / (lost + came)))
    }

    /// Whether more was lost than a run of random losses takes, however long the queue was.
    fn is_surely_overflow(&self) -> bool {
        let [lost, came] = [self.lost, self.came].map(f64::from);
        self.lost > RUN_MOST && SURELY_OVERFLOWING.contains(&(lost / (lost + came)))
    }

    /// Whether the queue grew much while segments were lost: slow start makes a full buffer's stand. `last_us`: the queue before the first gap.
    fn has_grown(&self, last_us: f64, trace: &Trace<'_>) -> bool {
        self.queued_us > last_us / FULL + 2.0 * EDGE_US + trace.late_us
    }

    /// Whether losses before the queue was full are no more than random loss explains.
    fn is_drop_tail(&self, trace: &Trace<'_>) -> bool {
        let by_chance = (f64::from(trace.window_before_loss()) * 0.03).max(3.0);
        f64::from(self.early) <= by_chance
    }
}

/// How much the buffer holds.
pub fn buffer(
    trace: &Trace<'_>,
    delays: &[Delay],
    base: Base,
    ended: End,
    rate: &Finding,
    policer: &Finding,
    by_chance: bool,
) -> Finding {
    let not = |reason: &str| Finding::NotObservable { reason: reason.into() };
    let Finding::Observed { value: rate, low, high, .. } = *rate else { return not("the rate was not seen") };
    if ended == End::Overflow && !matches!(policer, Finding::Absent { .. }) {
        return not("what dropped is, or may be, a policer: not a full buffer");
    }
    let most_us = longest_us(delays);
    let of = |queued_us: f64| queued_us * rate / 8e6;
    // The part of a delay, in microseconds, that may have other causes than the queue.
    let unsure_us = 2.0 * EDGE_US + trace.late_us + base.spread_us;
    // A packet that is being sent has left the buffer, but adds to the delay.
    let at_least = |evidence: String| match (most_us - unsure_us) * low / 8e6 - trace.packet_bytes {
        value if value > 0.0 => Finding::AtLeast { value, evidence },
        _ => not("no queue could be seen beyond jitter"),
    };
    match ended {
        End::NoLoss => at_least(format!("a queue of {:.1} ms lost nothing", most_us / 1e3)),
        End::FewLosses => {
            let why = if by_chance { "by chance" } else { "by chance or of a short buffer" };
            at_least(format!("the first loss came {why}, at a queue of up to {:.1} ms", most_us / 1e3))
        }
        End::Overflow => {
            // The last segment before the first gap met a queue that was nearly full, unless the gap was a random loss.
            let Some(episode) = episode(trace, base) else {
                return at_least(format!(
                    "few segments were lost at once, at a queue of up to {:.1} ms",
                    most_us / 1e3
                ));
            };
            if !episode.is_overflow() {
                return at_least(format!(
                    "what was lost at a queue of up to {:.1} ms may be a run by chance",
                    most_us / 1e3
                ));
            }
            let (last, later) = (last_us(delays), episode.queued_us);
            // Smoothed round trips of a host that is late are longer than the queue.
            let is_later = episode.has_grown(last, trace);
            if episode.queued_us < FULL * last - EDGE_US {
                return at_least(format!(
                    "what was lost at a queue of up to {:.1} ms may be a run by chance: the queue grew shorter",
                    last / 1e3
                ));
            }
            if is_later && !episode.is_surely_overflow() {
                return at_least(format!(
                    "what was lost at a queue of {:.1} ms may be a run by chance: the queue grew further",
                    last / 1e3
                ));
            }
            // Where much was lost before the longer queue, the buffer was full before it; either may be how much it holds.
            let (queued_us, unsure_us, more_us) = match is_later {
                true if episode.is_drop_tail(trace) => (later, later * LATER_UNSURE + 2.0 * base.spread_us, 0.0),
                is_later => {
                    let most = if is_later { later * (1.0 + LAGS) } else { later };
                    (last, last * UNSURE + EDGE_US + trace.late_us + base.spread_us, (most - last).max(0.0))
                }
            };
            if is_later && later > GROWS * last {
                return at_least(format!(
                    "segments were lost when a queue of {:.1} ms stood, and one as it grew",
                    later / 1e3
                ));
            }
            if base.spread_us > JITTER_MOST * queued_us {
                return not("jitter was not much less than the queue when segments were lost");
            }
            if queued_us < 2.0 * QUEUE_LEAST_US {
                let less = of(2.0 * QUEUE_LEAST_US);
                return Finding::AtMost {
                    value: less,
                    evidence: "losses came without a queue that could be seen".into(),
                };
            }
            let packet = trace.packet_bytes;
            let unsure = of(unsure_us) + of(queued_us) * (high - low) / 2.0 / rate.max(1.0) + packet;
            // What came last took a packet's room in the buffer beside those before it, of which one was being sent; and the next did not
            // fit: so up to two packets more.
            let value = of(queued_us) + packet;
            let evidence = format!("segments were lost when a queue of {:.1} ms stood", queued_us / 1e3);
            Finding::Observed {
                value,
                low: (value - unsure - packet / 2.0).max(0.0),
                high: value + unsure + of(more_us),
                evidence,
            }
        }
    }
}

/// Whether it drops only when it is full.
pub fn drop_tail(trace: &Trace<'_>, delays: &[Delay], base: Base, ended: End, policer: &Finding) -> Judgement {
    let not = |reason: &str| Judgement::NotObservable { reason: reason.into() };
    if ended == End::Overflow && !matches!(policer, Finding::Absent { .. }) {
        return not("what dropped is, or may be, a policer: not a full buffer");
    }
    if ended != End::Overflow {
        return not("no buffer overflowed");
    }
    let Some(episode) = episode(trace, base) else { return not("too few segments were lost at once") };
    if !episode.is_overflow() {
        return not("what was lost at once may be a run by chance");
    }
    if base.spread_us > JITTER_MOST * episode.queued_us {
        return not("jitter was not much less than the queue when segments were lost");
    }
    if episode.queued_us < 2.0 * QUEUE_LEAST_US {
        return not("no queue could be seen when segments were lost");
    }
    if episode.has_grown(last_us(delays), trace) && !episode.is_surely_overflow() {
        return not("the queue grew after the first losses, which may be a run by chance");
    }
    let Episode { queued_us, early, lost, .. } = episode;
    let evidence = format!(
        "{early} of {lost} segments were lost before the queue was near its longest, {:.1} ms",
        queued_us / 1e3
    );
    if episode.is_drop_tail(trace) {
        return Judgement::Yes { evidence };
    }
    // Smoothed round trips lag behind the queue, what comes does not.
    let (last, longest) = (last_us(delays), longest_us(delays));
    let [last_ms, longest_ms] = [last, longest].map(|us| us / 1e3);
    let stood = format!("a queue of {last_ms:.1} ms of at most {longest_ms:.1} ms stood when the first was");
    match last < EARLY * longest && early > RUN_MOST {
        true => Judgement::No { evidence: format!("{evidence}; {stood}") },
        false if last >= FULL * longest.max(queued_us) => {
            Judgement::Yes { evidence: format!("segments were lost; {stood}") }
        }
        false => Judgement::NotObservable { reason: format!("round trips lag behind the queue: {evidence}; {stood}") },
    }
}
