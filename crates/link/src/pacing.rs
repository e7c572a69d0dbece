//! How fast a tunnel's connection may send, so that the path's own queue stays short.
//!
//! A loss-based congestion control fills the queue of the path until that drops. Each loss then stops all that is inside the
//! tunnel for a round trip. So once the round-trip time has grown, the connection is paced at the rate that the path delivers,
//! a little more or less by how long the path's queue is. What does not go waits in front of the connection, in a queue that is
//! managed.
//!
//! Where others fill the path's queue, such a connection would give way to them until nothing is left. If the queue stays long
//! although it gives way, it is not paced for a while, and its congestion control gets its share.

use std::collections::VecDeque;

use ekiden_units::Time;

/// The delay in the path's queue that is aimed at.
const TARGET: Time = Time::ms(10);
/// By how much that delay may grow in a round; twice as much if it has grown in the round before and the path has delivered all of
/// it.
const GROWTH: Time = Time::ms(15);
/// A round is a round trip, but no shorter than this.
const ROUND_LEAST: Time = Time::ms(40);
/// Of so many rounds the largest delivery rate counts.
const ROUNDS: usize = 4;
/// How far the rate is from the delivered one at most.
const GAINS: [f64; 2] = [0.75, 1.5];
/// Others fill the queue if it stays long for so many rounds, and at least for this time.
const FOREIGN_ROUNDS: u32 = 10;
const FOREIGN_LEAST: Time = Time::secs(2);
/// How long the connection is not paced then: the first time, and at most.
const SHARING: [Time; 2] = [Time::secs(10), Time::secs(80)];

/// What is seen of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The smoothed round-trip time.
    pub rtt: Time,
    /// The least round-trip time.
    pub rtt_min: Time,
    /// Bytes that have arrived at the other end, in all.
    pub delivered: u64,
    /// Bytes that may be sent in a round in any case.
    pub least: u64,
    /// Whether packets wait for the connection.
    pub is_awaited: bool,
}

/// Decides a connection's pacing rate.
#[derive(Debug, Clone)]
pub struct Pacing {
    mode: Mode,
    round: Option<Round>,
    /// Delivery rates of the last rounds, in bytes per second.
    rates: VecDeque<f64>,
    /// How long it is not paced when others fill the queue the next time.
    sharing: Time,
}

/// What was seen since the rate was last decided.
#[derive(Debug, Clone, Copy)]
struct Round {
    begin: Time,
    delivered: u64,
    /// The least smoothed round-trip time.
    rtt: Time,
    looks: u32,
    awaited: u32,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    /// The path's queue has not been long so far, or others fill it, at least until then.
    Free { until: Time },
    Paced(Paced),
}

#[derive(Debug, Clone, Copy)]
struct Paced {
    /// In bytes per second.
    rate: f64,
    /// For so many rounds in a row the queue has been long, and since then.
    long: u32,
    since: Time,
    /// The rate has grown in the round before.
    has_grown: bool,
}

impl Default for Pacing {
    fn default() -> Self {
        Self::new()
    }
}

impl Pacing {
    /// For a connection that begins.
    pub fn new() -> Self {
        Self { mode: Mode::Free { until: Time(0) }, round: None, rates: VecDeque::new(), sharing: SHARING[0] }
    }

    /// The connection is looked at, which should happen several times in a round trip. Returns the rate from now on, in bytes per
    /// second, or `None` for no limit. Times are those of any one clock.
    pub fn look(&mut self, now: Time, seen: Seen) -> Option<u64> {
        let round = self.round.get_or_insert(Round::new(now, seen));
        round.rtt = round.rtt.min(seen.rtt);
        round.looks += 1;
        round.awaited += u32::from(seen.is_awaited);
        if now >= round.begin + seen.rtt.max(ROUND_LEAST) {
            let ended = *round;
            self.round = Some(Round::new(now, seen));
            self.decide(now, seen, ended);
        }
        match self.mode {
            Mode::Free { .. } => None,
            Mode::Paced(Paced { rate, .. }) => Some(rate as u64),
        }
    }

    fn decide(&mut self, now: Time, seen: Seen, round: Round) {
        let lasted = seconds(now) - seconds(round.begin);
        self.rates.push_back(seen.delivered.saturating_sub(round.delivered) as f64 / lasted);
        if self.rates.len() > ROUNDS {
            self.rates.pop_front();
        }
        let delivered = self.rates.iter().copied().fold(0.0, f64::max);
        // A burst passes, a queue stays. A connection that is paced sends no bursts.
        let rtt = if matches!(self.mode, Mode::Free { .. }) { round.rtt } else { seen.rtt };
        let delay = Time(rtt.0.saturating_sub(seen.rtt_min.0));
        self.mode = match self.mode {
            Mode::Free { until } if now >= until && delay > TARGET => {
                Mode::Paced(Paced { rate: delivered, long: 0, since: now, has_grown: false })
            }
            Mode::Free { until } => Mode::Free { until },
            Mode::Paced(paced) => self.paced(now, paced.after(delay, now)),
        };
        if let Mode::Paced(paced) = &mut self.mode {
            // A connection for which nothing has waited has not shown what the path can do.
            let is_awaited = 2 * round.awaited >= round.looks;
            paced.turn(delay, delivered, lasted, is_awaited);
            paced.rate = paced.rate.max(seen.least as f64 / seconds(seen.rtt.max(ROUND_LEAST)));
        }
    }

    /// Goes on with pacing, unless others fill the queue.
    fn paced(&mut self, now: Time, paced: Paced) -> Mode {
        if paced.long == 0 {
            self.sharing = SHARING[0];
        }
        if paced.long < FOREIGN_ROUNDS || now < paced.since + FOREIGN_LEAST {
            return Mode::Paced(paced);
        }
        let until = now + self.sharing;
        self.sharing = Time(self.sharing.0 * 2).min(SHARING[1]);
        Mode::Free { until }
    }
}

impl Paced {
    /// Counts a round in which the queue's delay was this.
    fn after(self, delay: Time, now: Time) -> Self {
        match delay > Time(TARGET.0 * 2) {
            true if self.long > 0 => Self { long: self.long + 1, ..self },
            true => Self { long: 1, since: now, ..self },
            false => Self { long: 0, ..self },
        }
    }

    /// Turns the rate so that the queue's delay comes to the target.
    fn turn(&mut self, delay: Time, delivered: f64, lasted: f64, is_awaited: bool) {
        let is_ours = is_awaited || 2.0 * delivered >= self.rate;
        if delay > TARGET {
            self.has_grown = false;
            if is_ours {
                self.rate = delivered * gain((seconds(TARGET) - seconds(delay)) / 2.0, lasted);
            }
        } else if is_awaited {
            let doubles = self.has_grown && 1.1 * delivered >= self.rate;
            self.rate = delivered * gain(seconds(GROWTH) * if doubles { 2.0 } else { 1.0 }, lasted);
            self.has_grown = true;
        } else {
            self.has_grown = false;
        }
    }
}

impl Round {
    fn new(now: Time, seen: Seen) -> Self {
        Self { begin: now, delivered: seen.delivered, rtt: seen.rtt, looks: 0, awaited: 0 }
    }
}

/// By what to multiply a rate so that the queue's delay changes by this time within that one.
fn gain(change: f64, within: f64) -> f64 {
    (1.0 + change / within).clamp(GAINS[0], GAINS[1])
}

fn seconds(time: Time) -> f64 {
    time.0 as f64 / 1e9
}
