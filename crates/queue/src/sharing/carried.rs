//! The rate that all streams of a leg may send together, so that the leg stays full and its queue short.
//!
//! The round-trip time shows the queue, and the rate of acknowledgements while there is a queue shows what the leg carries.
//! The streams may send that rate, a little more while the queue is shorter than its target, and less while it is longer. A
//! small difference is corrected slowly, since the round-trip time shows a queue only a round trip later, and the smoothed
//! one later still.

use ekiden_units::Time;

/// The target of the queue: this part of the least round-trip time, within the limits `QUEUE` in seconds.
const QUEUE_PART: f64 = 0.25;
const QUEUE: [f64; 2] = [0.005, 0.02];
/// Where streams wait for others, a leg is full with a longer queue than this, in seconds.
const FULL: f64 = 0.0025;
/// If something is lost while there is a queue, the queue is too long for the leg: the target is halved, down to the lesser
/// limit, and then grows again by this part in each round.
const AIM_GROWTH: f64 = 1.0 / 64.0;
/// The target of the queue on a slow leg, in bytes, if they wait at most `SLOW_QUEUE` seconds.
const SLOW_BYTES: f64 = 12_000.0;
const SLOW_QUEUE: f64 = 0.2;
/// The rate is decided once a round trip, but at least this time apart.
const ROUND_LEAST: Time = Time::ms(150);
/// The time in which a difference of the queue from its target is to be corrected, in round trips, and the least such time
/// in seconds. In less time the queue oscillates: a decision shows a round trip later, and in a smoothed round-trip time
/// later still.
const CORRECTED_IN: f64 = 4.0;
const CORRECTED_IN_LEAST: f64 = 0.5;
/// The part by which the correction increases with each round in a row in which the queue was short although there was
/// something to send: the leg may have become faster.
const IMPATIENCE: f64 = 0.25;
/// The rate differs from what the leg carries by at most these parts, down and up.
const CHANGE: [f64; 2] = [-0.4, 0.25];
/// The number of rounds whose greatest rate is what the leg carries: usually, and while the queue is far too long, when the
/// leg may have become slower.
const ROUNDS: usize = 8;
const ROUNDS_LONG: usize = 2;
/// The queue is far too long at this multiple of its target.
const LONG: f64 = 2.0;
/// The threshold of loss, as a part of the segments, from which on the streams send too much: while there is a queue, and
/// while the queue is too short to show. Other losses are the leg's own. `BY_CHANCE` segments may be lost by chance.
const LOSS: [f64; 2] = [0.02, 0.1];
const BY_CHANCE: f64 = 2.0;
const SEGMENT_BYTES: f64 = 1_448.0;
/// The time after such a loss in which the rate does not grow.
const NO_GROWTH: Time = Time::secs(1);
/// The interval at which the queue is emptied: otherwise the least round-trip time would contain a queue. For a round the
/// streams may send less: by `EMPTIED` times what is in the queue, and at least by the part `EMPTYING_LEAST`.
const EMPTYING: Time = Time::secs(10);
const EMPTIED: f64 = 1.25;
const EMPTYING_LEAST: f64 = 0.3;
const EMPTYING_MOST: f64 = 0.9;
/// The least round-trip time is the lesser of what connections remember (Linux: of 300 s, `net.ipv4.tcp_min_rtt_wlen`), and
/// of the least smoothed one in once or twice this time.
const LEAST_OF: Time = Time::secs(15);
const RATE_LEAST: f64 = 3_000.0;
/// A queue belongs to cross traffic if it stays longer than `STAYS` times its target, for `STAYS_FOR` and `STAYS_TRIPS`
/// round trips, although the streams give way; and if it is `OTHERS` times the target of a leg without loss, or the streams
/// get less than the part `GIVEN_WAY` of the most that they got. Giving way would then cost more than it gains: the streams
/// are not limited for `UNLIMITED[0]`, and for twice as long each further time, up to `UNLIMITED[1]`.
const STAYS: f64 = 1.5;
const STAYS_FOR: Time = Time::secs(2);
const STAYS_TRIPS: u64 = 8;
const OTHERS: f64 = 3.0;
const GIVEN_WAY: f64 = 0.5;
const UNLIMITED: [Time; 2] = [Time::secs(30), Time::secs(480)];
/// After that, the round-trip times that connections remember do not count for as long as they remember them: the route may
/// have become longer. The queue is emptied for `EMPTYING_ROUNDS` rounds.
const REMEMBERED: Time = Time::secs(300);
const EMPTYING_ROUNDS: u32 = 4;
/// A queue that has shrunk to this part is about to become short.
const SHORTER: f64 = 0.75;
/// The factor by which the most that the streams got decays each second.
const FORGOTTEN: f64 = 0.99;

/// All streams of a leg as if they were one. Its counts grow for as long as the leg is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct All {
    /// The smoothed round-trip time of the stream with the shortest.
    pub rtt: Time,
    /// The least round-trip time of any stream.
    pub rtt_least: Time,
    /// Bytes that have arrived.
    pub acked: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Whether data waits in a send buffer.
    pub is_waiting: bool,
    /// Whether streams wait for others: while those that go first cannot use the leg yet, it carries less than it could.
    pub is_ordered: bool,
}

/// What a leg carries.
#[derive(Debug)]
pub struct Carried {
    round: Option<Round>,
    /// The least round-trip times of the present and the previous period, and when the present one began.
    least: [Time; 2],
    least_since: Time,
    /// The time until which the round-trip times that connections remember may be another route's.
    doubts: Time,
    /// For how many more rounds the queue is emptied.
    emptying: u32,
    /// The rates of the last rounds, the latest first, in bytes per second.
    rates: [f64; ROUNDS],
    /// In bytes per second; `None`: no limit.
    rate: Option<f64>,
    /// The number of rounds in a row in which the queue was short although there was something to send.
    short: u32,
    /// Whether the queue was not far too long in the last round.
    has_room: bool,
    lost: Option<Time>,
    /// The part of the queue's target that is left after losses.
    aimed: f64,
    emptied: Time,
    /// Since when the queue stays too long, and how long it was then, in seconds.
    long: Option<(Time, f64)>,
    /// The most that the streams got.
    most: f64,
    /// Until when they are not limited, and for how long the next time.
    unlimited: Time,
    next: Time,
}

/// What was seen since the rate was last decided.
#[derive(Debug, Clone, Copy)]
struct Round {
    begin: Time,
    all: All,
    rtt_least: Time,
    looks: u32,
    waited: u32,
}

impl Default for Carried {
    fn default() -> Self {
        Self {
            round: None,
            least: [Time(u64::MAX); 2],
            least_since: Time(0),
            doubts: Time(0),
            emptying: 0,
            rates: [0.0; ROUNDS],
            rate: None,
            short: 0,
            has_room: true,
            lost: None,
            aimed: 1.0,
            emptied: Time(0),
            long: None,
            most: 0.0,
            unlimited: Time(0),
            next: UNLIMITED[0],
        }
    }
}

impl Carried {
    /// Takes the state of the streams, several times in a round trip. Returns the rate that they may send together from now
    /// on, in bytes per second; `None` until the leg is full for the first time, and while cross traffic fills it.
    pub fn look(&mut self, now: Time, all: All) -> Option<f64> {
        if now >= self.least_since + LEAST_OF {
            (self.least, self.least_since) = ([all.rtt, self.least[0]], now);
        }
        self.least[0] = self.least[0].min(all.rtt);
        let round = self.round.get_or_insert_with(|| Round::new(now, all));
        round.rtt_least = round.rtt_least.min(all.rtt);
        round.looks += 1;
        round.waited += u32::from(all.is_waiting);
        if now >= round.begin + round.all.rtt.max(ROUND_LEAST) {
            let ended = *round;
            self.round = Some(Round::new(now, all));
            self.decide(now, &all, &ended);
        }
        self.rate
    }

    /// Whether the queue was not far too long in the last round.
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    fn decide(&mut self, now: Time, all: &All, round: &Round) {
        let lasted = now.since(round.begin).as_secs();
        let gets = all.acked.saturating_sub(round.all.acked) as f64 / lasted;
        // Streams for which nothing has waited have not shown what the leg can carry.
        let is_used = 2 * round.waited >= round.looks;
        let remembered = if now < self.doubts { Time(u64::MAX) } else { all.rtt_least };
        let least = self.least[0].min(self.least[1]).min(remembered).as_secs();
        let queue = round.rtt_least.as_secs() - least;
        if is_used && (!all.is_ordered || queue > FULL) {
            self.rates.rotate_right(1);
            self.rates[0] = gets;
        } else {
            self.rates[0] = self.rates[0].max(gets);
        }
        let slow = (SLOW_BYTES / self.carries(ROUNDS)).min(SLOW_QUEUE);
        let most = (least * QUEUE_PART).clamp(QUEUE[0], QUEUE[1]);
        let resent = all.retransmits.saturating_sub(round.all.retransmits) as f64;
        self.aimed = match resent > 0.0 && queue > most * self.aimed / 2.0 {
            true => (self.aimed / 2.0).max(QUEUE[0] / most),
            false => (self.aimed * (1.0 + AIM_GROWTH)).min(1.0),
        };
        let aim = (most * self.aimed).max(slow);
        let loses = |part: f64| resent > BY_CHANCE + part * gets * lasted / SEGMENT_BYTES;
        let has_lost = loses(LOSS[1]) || loses(LOSS[0]) && queue > aim / 2.0;
        self.lost = if has_lost { Some(now) } else { self.lost };
        self.most = (self.most * FORGOTTEN.powf(lasted)).max(gets);
        let is_low = is_used && gets < self.most * GIVEN_WAY;
        let stays = (queue > STAYS * aim).then_some((queue, queue > OTHERS * most.max(slow) || is_low));
        if self.gives_up(now, all.rtt, stays) {
            return;
        }
        self.has_room = queue <= LONG * aim;
        let begins = queue > aim || has_lost || self.emptying > 0;
        if self.rate.is_none() && !(begins && is_used) {
            return;
        }
        self.short = if queue < aim / 2.0 && is_used { self.short + 1 } else { 0 };
        let correction = (aim - queue) / (CORRECTED_IN * least).max(CORRECTED_IN_LEAST);
        let mut change = (correction * (1.0 + f64::from(self.short) * IMPATIENCE)).clamp(CHANGE[0], CHANGE[1]);
        if !is_used || self.lost.is_some_and(|lost| now.since(lost) < NO_GROWTH) {
            change = change.min(0.0);
        }
        if now.0 / EMPTYING.0 != self.emptied.0 / EMPTYING.0 {
            self.emptied = now;
            change = change.min(-(EMPTIED * queue / lasted).clamp(EMPTYING_LEAST, EMPTYING_MOST));
        }
        let is_long = queue > LONG * aim || self.emptying > 0;
        if self.emptying > 0 && is_used {
            (self.emptying, change) = (self.emptying - 1, CHANGE[0]);
        }
        let carries = self.carries(if is_long { ROUNDS_LONG } else { ROUNDS });
        self.rate = Some((carries * (1.0 + change)).max(RATE_LEAST));
    }

    /// In bytes per second. Acknowledgements arrive in clumps, so that a single round may show too much.
    fn carries(&self, rounds: usize) -> f64 {
        let of_two = |two: &[f64]| if two[1] == 0.0 { two[0] } else { (two[0] + two[1]) / 2.0 };
        self.rates[..rounds].windows(2).map(of_two).fold(1.0, f64::max)
    }

    /// Whether the streams are not to be limited, because cross traffic fills the queue. `stays`: the length of the queue,
    /// if it is too long, and whether it looks like that of cross traffic.
    fn gives_up(&mut self, now: Time, rtt: Time, stays: Option<(f64, bool)>) -> bool {
        if now < self.unlimited {
            return true;
        }
        let stays = stays.filter(|_| self.rate.is_some());
        self.long = stays.map(|(queue, _)| match self.long {
            Some((since, then)) if queue > then * SHORTER => (since, then),
            _ => (now, queue),
        });
        let for_long = STAYS_FOR.max(Time(STAYS_TRIPS * rtt.0));
        if self.long.is_some_and(|(since, _)| now.since(since) >= for_long)
            && stays.is_some_and(|(_, is_others)| is_others)
        {
            self.unlimited = now + self.next;
            self.next = Time(self.next.0 * 2).min(UNLIMITED[1]);
            (self.long, self.rate, self.most) = (None, None, 0.0);
            (self.doubts, self.emptying) = (now + REMEMBERED, EMPTYING_ROUNDS);
            (self.least, self.least_since) = ([Time(u64::MAX); 2], now);
            return true;
        }
        if self.rate.is_some() && now.since(self.unlimited) >= UNLIMITED[1] {
            self.next = UNLIMITED[0];
        }
        false
    }
}

impl Round {
    fn new(begin: Time, all: All) -> Self {
        Self { begin, all, rtt_least: all.rtt, looks: 0, waited: 0 }
    }
}
