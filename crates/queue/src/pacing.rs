//! The sending rate of a tunnel's connection, so that the path's own queue stays short.
//!
//! A loss-based congestion control fills the queue of the path until the queue drops packets. Each loss then stops all that
//! is inside the tunnel for a round trip. So once the round-trip time has grown, or data were lost, the connection gets a
//! window of its own: what the path delivers in its least round-trip time and a little more, as in TCP Vegas (Brakmo and
//! Peterson, IEEE JSAC 13(8), 1995) and FAST. It is paced at that window for each round trip. The rest waits in front of the
//! connection, in a managed queue.
//!
//! Round-trip times also vary where there is no queue: hosts are late, and so are radio links. A window that followed each
//! of them would shrink, deliver less for it, and shrink again. So the path's delivery rate is the greatest of several
//! rounds, as in BBR (draft-ietf-ccwg-bbr, section 5.5), and every few rounds a larger window probes whether the path
//! delivers more.
//!
//! If cross traffic fills the path's queue, such a connection would give way until it has nothing left. If the queue stays
//! long although the connection gives way, the connection is not limited for a while, and its congestion control gets its
//! share.
//!
//! Connections of one tunnel share the path and its queue, and none could distinguish its siblings from cross traffic. So
//! either all of them are limited or none, and all begin again together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ekiden_units::Time;

/// The interval at which a connection is to be looked at while packets are sent.
pub const LOOKING: Time = Time::ms(10);
/// The target delay of the path's queue: at first, and the least to which losses lower it.
const DELAYS: [Time; 2] = [Time::ms(20), Time::ms(5)];
/// On a slow path the target of the queue is this many bytes of all siblings together, if their delay is at most
/// `SLOW_DELAY`.
const SLOW_BYTES: f64 = 12_000.0;
const SLOW_DELAY: Time = Time::ms(200);
/// The number of rounds whose greatest rate is the path's delivery rate: usually, and while the queue is long, when the path
/// may have become slower.
const ROUNDS: usize = 10;
const ROUNDS_LONG: usize = 2;
/// Rounds with a short queue and a used-up window before the window grows. Its growth rises by `GROWTH_STEP` with each
/// further round, up to a queue of `GROWTH`, and up to the part `GROWTH_MOST`. In one of `ASKING_ROUNDS` rounds the window
/// grows although the queue seems long.
const GROWTH_AFTER: u32 = 3;
const GROWTH_STEP: f64 = 0.1;
const GROWTH: Time = Time::ms(20);
const GROWTH_MOST: f64 = 0.5;
const ASKING_ROUNDS: u32 = 8;
/// The interval at which the queue is emptied, by one round with less than the path delivers: otherwise the least round-trip
/// time would contain a queue. All siblings do so at once: one alone would see the queue of the others.
const EMPTYING: Time = Time::secs(10);
const EMPTYING_PART: f64 = 0.7;
const EMPTYING_LEAST: f64 = 3_000.0;
/// The least round-trip time is that of the last one or two periods of this length: a route can become longer, and a radio
/// link worse.
const LEAST_OF: Time = Time::secs(15);
/// The window changes once a round trip, and is spread over one. This is the minimum of both.
const ROUND_LEAST: Time = Time::ms(20);
/// The window is spread over a round trip, but at most over this many target round trips: a path that has held packets for
/// seconds then delivers them at once.
const SPREAD_MOST: f64 = 4.0;
/// The smallest window.
const WINDOW_LEAST: f64 = 4_500.0;
/// The queue belongs to cross traffic if the rounds in which it was twice its target exceed the other rounds by
/// `OTHERS_ROUNDS`, over at least `OTHERS_LEAST`. While the connection has more in flight than its window and the part
/// `OTHERS_PART` of it, the queue is still its own.
const OTHERS_ROUNDS: u32 = 8;
const OTHERS_LEAST: Time = Time::ms(500);
const OTHERS_PART: f64 = 0.5;
/// The minimum time for which no sibling is then limited. It goes on until the queue is next emptied.
const SHARING: Time = Time::secs(5);

/// The measured state of a connection.
#[derive(Debug, Clone, Copy)]
pub struct PathSeen {
    /// The smoothed round-trip time.
    pub rtt: Time,
    /// Bytes acknowledged by the other end in all, selectively acknowledged ones included.
    pub acked: u64,
    /// Segments that have arrived at the other end in all, as bytes: as if all were full.
    pub arrived: u64,
    /// Segments sent again, in all.
    pub retransmits: u64,
    /// Bytes in flight.
    pub in_flight: u64,
}

/// Connections that share a path, and what one of them has found for all.
#[derive(Debug)]
pub struct Siblings {
    number: f64,
    /// The time until which cross traffic fills the path's queue, at least, in nanoseconds.
    shares_until: AtomicU64,
}

impl Siblings {
    /// For `number` connections, all from one host to one other host.
    pub fn new(number: usize) -> Arc<Self> {
        Arc::new(Self { number: number.max(1) as f64, shares_until: AtomicU64::default() })
    }
}

/// Decides a connection's pacing rate.
#[derive(Debug)]
pub struct Pacing {
    siblings: Arc<Siblings>,
    /// In bytes. `None`: no limit.
    window: Option<f64>,
    /// The maximum time over which the window is spread.
    spread_most: Time,
    delay: Time,
    round: Option<Round>,
    /// Since when nothing waits for the connection.
    idle_since: Option<Time>,
    /// The least round-trip times of the present and the previous period, and when the present one began.
    least: [Time; 2],
    least_since: Time,
    /// The rates of the last rounds, the latest first, in bytes per second.
    rates: [f64; ROUNDS],
    /// By how many the rounds with a queue of twice its target exceed the other rounds, and since when.
    long: u32,
    long_since: Time,
    /// The number of rounds in a row in which the window was used up and the queue short.
    grown: u32,
    /// Rounds since the window last exceeded what the path had delivered.
    unasked: u32,
    /// When the queue was last emptied.
    emptied: Time,
}

/// What was seen since the window was last decided.
#[derive(Debug, Clone, Copy)]
struct Round {
    begin: Time,
    seen: PathSeen,
    rtt_least: Time,
    /// The time in which nothing waited for the connection.
    idle: Time,
}

impl Pacing {
    /// For a connection that begins.
    pub fn new(siblings: Arc<Siblings>) -> Self {
        let (window, round, idle_since) = Default::default();
        let [spread_most, least_since, long_since, emptied] = [Time(0); 4];
        let [long, grown, unasked] = [0; 3];
        let (delay, least, rates) = (DELAYS[0], [Time(u64::MAX); 2], [0.0; ROUNDS]);
        Self {
            siblings,
            window,
            spread_most,
            delay,
            round,
            idle_since,
            least,
            least_since,
            rates,
            long,
            long_since,
            grown,
            unasked,
            emptied,
        }
    }

    /// Takes whether packets wait for the connection now. To be called whenever some were sent. Times are those of one clock
    /// that all connections share.
    pub fn waiting(&mut self, now: Time, is_waiting: bool) {
        if !is_waiting {
            self.idle_since.get_or_insert(now);
        } else if let (Some(since), Some(round)) = (self.idle_since.take(), &mut self.round) {
            round.idle.0 += now.since(since.max(round.begin)).0;
        }
    }

    /// Takes the state of the connection, several times in a round trip. Returns the rate from now on, in bytes per second,
    /// or `None` for no limit.
    pub fn look(&mut self, now: Time, seen: PathSeen) -> Option<u64> {
        if now >= self.least_since + LEAST_OF {
            (self.least, self.least_since) = ([seen.rtt, self.least[0]], now);
        }
        self.least[0] = self.least[0].min(seen.rtt);
        if self.round.is_none() {
            self.emptied = now;
        }
        let round = self.round.get_or_insert(Round::new(now, seen));
        round.rtt_least = round.rtt_least.min(seen.rtt);
        // The round trip when the round began: in a growing queue the present one may grow as fast as time passes.
        if now >= round.begin + round.seen.rtt.max(ROUND_LEAST) {
            let mut ended = *round;
            if let Some(since) = self.idle_since {
                ended.idle.0 += now.since(since.max(ended.begin)).0;
            }
            self.round = Some(Round::new(now, seen));
            self.decide(now, seen, ended);
        }
        self.window.map(|window| (window / seconds(seen.rtt.min(self.spread_most).max(ROUND_LEAST))) as u64)
    }

    fn decide(&mut self, now: Time, seen: PathSeen, round: Round) {
        let has_lost = seen.retransmits > round.seen.retransmits;
        self.delay = match has_lost {
            true => Time(self.delay.0 / 2).max(DELAYS[1]),
            false => Time(self.delay.0 + self.delay.0 / 64).min(DELAYS[0]),
        };
        // A connection for which nothing has waited has not shown what the path can do.
        let is_used = 2 * round.idle.0 <= now.since(round.begin).0;
        self.remember(round.rate(now, seen), is_used);
        let least = seconds(self.least[0].min(self.least[1]));
        let slow = |bytes: f64| bytes / self.fastest(ROUNDS);
        let delay = seconds(self.delay).max(slow(SLOW_BYTES / self.siblings.number).min(seconds(SLOW_DELAY)));
        // Each sibling may have as much in the queue, and has at least the smallest window.
        let own = slow(SLOW_BYTES).min(seconds(SLOW_DELAY)).max(slow(WINDOW_LEAST));
        let longer = 2.0 * seconds(DELAYS[0]).max(own);
        // The least of the round: a burst makes the queue long for a part of it.
        let waits = seconds(round.rtt_least) - least;
        let is_longer = self.window.is_some() && waits > longer;
        (self.long, self.long_since) = match (is_longer, self.long) {
            (true, _) if self.fills(seen) => (self.long, self.long_since),
            (true, 0) => (1, now),
            (true, long) => (long + 1, self.long_since),
            (false, long) => (long.saturating_sub(1), self.long_since),
        };
        if self.long >= OTHERS_ROUNDS && now >= self.long_since + OTHERS_LEAST {
            // All siblings empty the queue then: a connection without a limit empties nothing.
            self.siblings.shares_until.store(((now + SHARING).0 / EMPTYING.0 + 1) * EMPTYING.0, Ordering::Relaxed);
        }
        if now.0 < self.siblings.shares_until.load(Ordering::Relaxed) {
            (self.window, self.long) = (None, 0);
            return;
        }
        // A loss of a connection with little to send says nothing about the path's capacity.
        let begins = waits > delay || has_lost && is_used;
        if self.window.is_none() && !begins {
            return;
        }
        let growth = match is_used {
            true => self.growth(waits < delay / 2.0, least + delay),
            false => 0.0,
        };
        let path = self.fastest(if is_longer { ROUNDS_LONG } else { ROUNDS });
        let window = if now.0 / EMPTYING.0 != self.emptied.0 / EMPTYING.0 {
            self.emptied = now;
            // The sum of each sibling's greatest rate is more than the path delivers.
            let path = if self.siblings.number > 1.0 { self.usual() } else { path };
            (path * least * EMPTYING_PART).max(EMPTYING_LEAST)
        } else {
            (path * (least + delay) * (1.0 + growth)).max(WINDOW_LEAST)
        };
        self.window = Some(window);
        self.spread_most = Time(((least + delay) * SPREAD_MOST * 1e9) as u64);
    }

    /// Whether the connection has more in flight than it should: data sent before its window became smaller.
    fn fills(&self, seen: PathSeen) -> bool {
        let spread = seconds(seen.rtt) / seconds(self.spread_most);
        self.window.is_some_and(|window| seen.in_flight as f64 > window * spread.max(1.0) * (1.0 + OTHERS_PART))
    }

    fn remember(&mut self, rate: f64, is_used: bool) {
        if is_used {
            self.rates.rotate_right(1);
            self.rates[0] = rate;
        } else {
            self.rates[0] = self.rates[0].max(rate);
        }
    }

    /// The greatest rate that the path has delivered in the last rounds.
    fn fastest(&self, rounds: usize) -> f64 {
        self.rates[..rounds].iter().copied().fold(1.0, f64::max)
    }

    /// The mean rate that the path has delivered in the last rounds.
    fn usual(&self) -> f64 {
        let known = self.rates.iter().filter(|rate| **rate > 0.0);
        known.clone().sum::<f64>() / known.count().max(1) as f64
    }

    /// The part by which the window exceeds what the path has delivered in a round `trip`, in seconds.
    fn growth(&mut self, is_short: bool, trip: f64) -> f64 {
        self.grown = if is_short { self.grown + 1 } else { 0 };
        self.unasked += 1;
        let most = (seconds(GROWTH) / trip).min(GROWTH_MOST);
        let growth = match self.unasked >= ASKING_ROUNDS {
            true => most,
            false => (GROWTH_STEP * f64::from(self.grown.saturating_sub(GROWTH_AFTER))).min(most),
        };
        if growth > 0.0 {
            self.unasked = 0;
        }
        growth
    }
}

impl Round {
    fn new(now: Time, seen: PathSeen) -> Self {
        Self { begin: now, seen, rtt_least: seen.rtt, idle: Time(0) }
    }

    /// In bytes per second, the lesser of two counts: acknowledged bytes leap when an unknown gap closes, and segments are
    /// not all full.
    fn rate(&self, now: Time, seen: PathSeen) -> f64 {
        let acked = seen.acked.saturating_sub(self.seen.acked);
        let arrived = seen.arrived.saturating_sub(self.seen.arrived);
        acked.min(arrived) as f64 / seconds(now.since(self.begin))
    }
}

fn seconds(time: Time) -> f64 {
    time.0.max(1) as f64 / 1e9
}

#[cfg(test)]
mod tests;
