//! How fast a connection may send, so that the path's own queue stays short.
//!
//! A loss-based congestion control fills the queue of the path until that drops. Each loss then stops all that is inside the
//! tunnel for a round trip. So once the round-trip time has grown, the connection is paced at the rate that the path delivers,
//! a little more or less by how long the path's queue is.
//!
//! Where others fill that queue, pacing would give way to them until nothing is left. If the queue stays long although this
//! connection gives way, it is not paced for a while, and its congestion control gets its share.

use std::collections::VecDeque;
use std::time::Duration;

/// The delay in the path's queue that is aimed at.
const TARGET: Duration = Duration::from_millis(10);
/// By how much that delay may grow in a round trip.
const GROWTH: Duration = Duration::from_millis(30);
/// The rate changes once a round trip, but no sooner than this.
const ROUND_LEAST: Duration = Duration::from_millis(40);
/// How often a connection is to be looked at.
pub const LOOKING: Duration = Duration::from_millis(10);
/// Of so many rounds the largest delivery rate counts.
const ROUNDS: usize = 4;
/// How far the rate is from the delivered one at most.
const GAINS: [f64; 2] = [0.75, 1.5];
/// The queue is not ours if it stays long for so many rounds, and at least for this time.
const FOREIGN_ROUNDS: u32 = 10;
const FOREIGN_LEAST: Duration = Duration::from_secs(2);
/// How long others are then competed with before the queue is looked at again: the first time, and the longest.
const SHARING: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(80)];

/// What is seen of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The least.
    pub rtt_min: Duration,
    /// Bytes that have arrived at the other end, in all.
    pub delivered: u64,
    /// Bytes that may be sent in a round trip in any case.
    pub least: f64,
    /// Packets wait for the connection.
    pub is_awaited: bool,
}

/// Decides a connection's pacing rate. Times are since any one moment.
#[derive(Debug)]
pub struct Pacing {
    mode: Mode,
    round: Round,
    /// Delivery rates of the last rounds, in bytes per second.
    rates: VecDeque<f64>,
    sharing: Duration,
}

/// What was seen since the rate was last decided.
#[derive(Debug, Clone, Copy)]
struct Round {
    begin: Duration,
    delivered: u64,
    /// The least smoothed round-trip time: bursts pass, a queue stays.
    rtt: Duration,
    looks: u32,
    awaited: u32,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    /// The path's queue was not long so far, or others fill it until then.
    Free { until: Duration },
    /// At this rate in bytes per second. For so many rounds the queue has been long, since then.
    Paced { rate: f64, long: u32, since: Duration, grown: u32 },
}

impl Pacing {
    /// A connection that begins.
    pub fn new(now: Duration, seen: Seen) -> Self {
        let mode = Mode::Free { until: Duration::ZERO };
        Self { mode, round: Round::new(now, seen), rates: VecDeque::new(), sharing: SHARING[0] }
    }

    /// The connection is looked at. Returns the rate from now on, in bytes per second, or `None` for no limit.
    pub fn look(&mut self, now: Duration, seen: Seen) -> Option<u64> {
        let round = &mut self.round;
        round.rtt = round.rtt.min(seen.rtt);
        round.looks += 1;
        round.awaited += u32::from(seen.is_awaited);
        if now >= round.begin + seen.rtt.max(ROUND_LEAST) {
            let ended = *round;
            *round = Round::new(now, seen);
            self.decide(ended, now, seen);
        }
        match self.mode {
            Mode::Free { .. } => None,
            Mode::Paced { rate, .. } => Some(rate as u64),
        }
    }

    fn decide(&mut self, round: Round, now: Duration, seen: Seen) {
        let lasted = (now - round.begin).as_secs_f64();
        self.rates.push_back(seen.delivered.saturating_sub(round.delivered) as f64 / lasted);
        if self.rates.len() > ROUNDS {
            self.rates.pop_front();
        }
        let delivered = self.rates.iter().copied().fold(0.0, f64::max);
        let waits = round.rtt.saturating_sub(seen.rtt_min);
        let is_long = waits > 2 * TARGET;
        match self.mode {
            Mode::Free { until } if now >= until && waits > TARGET => {
                self.mode = Mode::Paced { rate: delivered, long: 0, since: now, grown: 0 };
            }
            Mode::Free { .. } => {}
            Mode::Paced { long, since, .. }
                if is_long && long >= FOREIGN_ROUNDS && now - since >= FOREIGN_LEAST =>
            {
                self.mode = Mode::Free { until: now + self.sharing };
                self.sharing = (self.sharing * 2).min(SHARING[1]);
            }
            Mode::Paced { rate, long, since, grown } => {
                let (long, since) = match (is_long, long) {
                    (false, _) => (0, now),
                    (true, 0) => (1, now),
                    (true, _) => (long + 1, since),
                };
                if !is_long {
                    self.sharing = SHARING[0];
                }
                // A connection for which nothing has waited has not shown what the path can do.
                let is_used = 2 * round.awaited >= round.looks;
                let is_ours = is_used || 2.0 * delivered >= rate;
                let (rate, grown) = match waits > TARGET {
                    true if is_ours => (delivered * gain(TARGET.as_secs_f64() - waits.as_secs_f64(), 2.0 * lasted), 0),
                    false if is_used => {
                        let growth = GROWTH * (1 << grown.min(4));
                        (delivered * gain(growth.as_secs_f64(), lasted), grown + 1)
                    }
                    _ => (rate, 0),
                };
                let rate = rate.max(seen.least / seen.rtt.max(ROUND_LEAST).as_secs_f64());
                self.mode = Mode::Paced { rate, long, since, grown };
            }
        }
    }
}

/// By what to multiply a rate so that the queue changes by this time within that time.
fn gain(change_s: f64, within_s: f64) -> f64 {
    (1.0 + change_s / within_s).clamp(GAINS[0], GAINS[1])
}

impl Round {
    fn new(now: Duration, seen: Seen) -> Self {
        Self { begin: now, delivered: seen.delivered, rtt: seen.rtt, looks: 0, awaited: 0 }
    }
}
