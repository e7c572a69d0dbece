//! How fast a tunnel's connection may send, so that the path's own queue stays short.
//!
//! A loss-based congestion control fills the queue of the path until that drops. Each loss then stops all that is inside the
//! tunnel for a round trip. So once the round-trip time has grown, or data were lost, the connection gets a window of its own:
//! what the path delivers in its least round-trip time and a little more, as in TCP Vegas (Brakmo and Peterson, IEEE JSAC 13(8),
//! 1995) and FAST. It is paced at that window for each round trip. What does not go waits in front of the connection, in a queue
//! that is managed.
//!
//! Where others fill the path's queue, such a connection would give way to them until nothing is left. If the queue stays long
//! although it gives way, it is not limited for a while, and its congestion control gets its share.

use ekiden_units::Time;

/// How often a connection is to be looked at while packets are sent.
pub const LOOKING: Time = Time::ms(10);
/// The delay in the path's queue that is aimed at: at first, and the least to which losses lower it.
const DELAYS: [Time; 2] = [Time::ms(20), Time::ms(5)];
/// On a slow path the queue may have so many bytes, if their delay is no longer than this.
const SLOW_BYTES: f64 = 12_000.0;
const SLOW_DELAY: Time = Time::ms(200);
/// What is left after a round of the rate that was the fastest.
const FASTEST_STAYS: f64 = 0.99;
/// While the window is used up and the queue is short, it grows: by so much more each time, by no more than makes so long a queue,
/// and by no more than this part.
const GROWTH_STEP: f64 = 0.1;
const GROWTH: Time = Time::ms(20);
const GROWTH_MOST: f64 = 0.5;
/// The window changes once a round trip, but no sooner than this.
const ROUND_LEAST: Time = Time::ms(20);
/// The smallest window.
const WINDOW_LEAST: f64 = 15_000.0;
/// Others fill the queue if it stays twice as long as aimed at for so many rounds, and at least for this time.
const FOREIGN_ROUNDS: u32 = 8;
const FOREIGN_LEAST: Time = Time::ms(500);
/// How long the connection is not limited then.
const SHARING: Time = Time::secs(10);

/// What is seen of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The smoothed round-trip time.
    pub rtt: Time,
    /// The least round-trip time.
    pub rtt_min: Time,
    /// Bytes that have arrived at the other end, in all.
    pub delivered: u64,
    /// Segments sent again, in all.
    pub retransmits: u64,
    /// Whether packets wait for the connection.
    pub is_awaited: bool,
}

/// Decides a connection's pacing rate.
#[derive(Debug, Clone)]
pub struct Pacing {
    /// In bytes. `None`: no limit.
    window: Option<f64>,
    delay: Time,
    round: Option<Round>,
    /// In bytes per second.
    fastest: f64,
    /// For so many rounds in a row the queue has been twice as long as aimed at, and since then.
    long: u32,
    since: Time,
    /// For so many rounds in a row the window was used up and the queue short.
    grown: u32,
    /// Others fill the queue, at least until then.
    free_until: Time,
}

/// What was seen since the window was last decided.
#[derive(Debug, Clone, Copy)]
struct Round {
    begin: Time,
    seen: Seen,
    rtt_least: Time,
    looks: u32,
    awaited: u32,
}

impl Default for Pacing {
    fn default() -> Self {
        Self::new()
    }
}

impl Pacing {
    /// For a connection that begins.
    pub fn new() -> Self {
        let (window, round) = Default::default();
        Self { window, delay: DELAYS[0], round, fastest: 0.0, long: 0, grown: 0, since: Time(0), free_until: Time(0) }
    }

    /// The connection is looked at, which should happen often in a round trip. Returns the rate from now on, in bytes per second,
    /// or `None` for no limit. Times are those of any one clock.
    pub fn look(&mut self, now: Time, seen: Seen) -> Option<u64> {
        let round = self.round.get_or_insert(Round::new(now, seen));
        round.rtt_least = round.rtt_least.min(seen.rtt);
        round.looks += 1;
        round.awaited += u32::from(seen.is_awaited);
        if now >= round.begin + seen.rtt.max(ROUND_LEAST) {
            let ended = *round;
            self.round = Some(Round::new(now, seen));
            self.decide(now, seen, ended);
        }
        self.window.map(|window| (window / seconds(seen.rtt)) as u64)
    }

    fn decide(&mut self, now: Time, seen: Seen, round: Round) {
        let rate = seen.delivered.saturating_sub(round.seen.delivered) as f64 / seconds(now.since(round.begin));
        let has_lost = seen.retransmits > round.seen.retransmits;
        self.delay = match has_lost {
            true => Time(self.delay.0 / 2).max(DELAYS[1]),
            false => Time(self.delay.0 + self.delay.0 / 64).min(DELAYS[0]),
        };
        // By the rate of a while ago: where others take more and more, the path is no slower.
        self.fastest = rate.max(self.fastest * FASTEST_STAYS);
        let slow = (SLOW_BYTES / self.fastest.max(1.0)).min(seconds(SLOW_DELAY));
        let delay = seconds(self.delay).max(slow);
        // Without a window a burst makes the queue long for a part of the round.
        let rtt = if self.window.is_some() { seen.rtt } else { round.rtt_least };
        let is_long = seconds(rtt) > seconds(seen.rtt_min) + delay;
        let target = rate * (seconds(seen.rtt_min) + delay);
        // What is its own goes to the target.
        let is_longer = self.window.is_some() && seconds(rtt) > seconds(seen.rtt_min) + 2.0 * delay;
        (self.long, self.since) = match is_longer {
            true if self.long > 0 => (self.long + 1, self.since),
            true => (1, now),
            false => (0, now),
        };
        let is_foreign = self.long >= FOREIGN_ROUNDS && now >= self.since + FOREIGN_LEAST;
        if self.window.is_some() && is_foreign {
            (self.window, self.free_until) = (None, now + SHARING);
        }
        if now < self.free_until {
            return;
        }
        // A connection for which nothing has waited has not shown what the path can do.
        let is_used = 2 * round.awaited >= round.looks;
        let waits = seconds(seen.rtt) - seconds(seen.rtt_min);
        let grows = is_used && waits < delay / 2.0;
        self.grown = if grows { self.grown + 1 } else { 0 };
        let growth =
            (GROWTH_STEP * f64::from(self.grown)).min(seconds(GROWTH) / seconds(seen.rtt_min)).min(GROWTH_MOST);
        self.window = match self.window {
            Some(_) if grows => Some((target * (1.0 + growth)).max(WINDOW_LEAST)),
            None if is_long || has_lost => Some(target.max(WINDOW_LEAST)),
            Some(window) if is_used || is_long => Some(((window + target) / 2.0).max(WINDOW_LEAST)),
            window => window,
        };
    }
}

impl Round {
    fn new(now: Time, seen: Seen) -> Self {
        Self { begin: now, seen, rtt_least: seen.rtt, looks: 0, awaited: 0 }
    }
}

fn seconds(time: Time) -> f64 {
    time.0.max(1) as f64 / 1e9
}

#[cfg(test)]
mod tests;
