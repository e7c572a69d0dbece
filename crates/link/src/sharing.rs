//! How streams of several service classes share one leg: as the weights of their classes say, while the leg is full.
//!
//! Each stream has a TCP connection of its own, and connections share a line by how aggressive each is and how many there are. So the
//! sender paces them. [`Pacing`] sees all connections of the leg as one, and says how much the leg carries while its queue stays short.
//! That is divided between the classes, and what a class gets between its streams. What one does not use goes to the others.

use std::collections::{BTreeMap, BTreeSet};

use ekiden_units::{BitRate, Time};

use crate::pacing::{Pacing, Seen, Siblings};

/// A leg is divided while streams of two classes are open on it, and for so long after.
const KEPT: Time = Time::secs(10);
/// Whoever gets less than this part of what it may have does not want more: the line, or its program, holds it back.
const USED: f64 = 0.85;
/// It is left so much more than it gets, to grow.
const ROOM: f64 = 1.25;
/// What a stream gets is seen over a round trip, and over no less than this.
const ROUND_LEAST: Time = Time::ms(100);
/// How much the last round counts in what a stream gets.
const NEW_PART: f64 = 0.4;
/// No stream is held to less, in bytes per second.
const RATE_LEAST: f64 = 1_500.0;
/// Where others fill the queue, giving way to them costs more than it gains: if all streams together get less than this part of the most
/// that they got, for so long, they are not paced for so long, and for twice as long each time that it happens again.
const GIVEN_WAY: f64 = 0.5;
const GIVEN_WAY_FOR: Time = Time::secs(2);
const UNPACED: [Time; 2] = [Time::secs(30), Time::secs(480)];
/// The most that they got counts less with each second that passes.
const FORGOTTEN: f64 = 0.99;

/// What a class of streams is to get of a leg.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Its part of a full leg, in relation to the weights of the other classes there.
    pub weight: u32,
    /// The most that its streams get of a leg, together.
    pub ceiling: Option<BitRate>,
    /// What they get, together, where the leg carries so much, whatever the weights say.
    pub floor: Option<BitRate>,
}

/// A connection that carries a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamSeen {
    /// The same for the same stream at each look.
    pub stream: u64,
    /// Its class, as a place in the list of services.
    pub class: usize,
    /// What the connection shows. Counts are since it began.
    pub seen: Seen,
    /// Its least round-trip time.
    pub rtt_least: Time,
    /// Whether data waits in its send buffer.
    pub is_waiting: bool,
}

/// A leg and the streams on it.
#[derive(Debug, Default)]
pub struct Sharing {
    streams: BTreeMap<u64, Stream>,
    /// Of each class, how many streams are open, and when one was last there.
    classes: BTreeMap<usize, (u32, Time)>,
    /// All connections as if they were one, since the leg is divided.
    all: Option<(Pacing, Seen)>,
    /// Whether they were paced for that at the last look.
    is_paced: bool,
    others: Others,
}

/// Whether others fill the queue of the line.
#[derive(Debug)]
struct Others {
    /// When all streams were last counted, and what was acknowledged of them since.
    round: Time,
    acked: u64,
    /// The most that they got, in bytes per second.
    most: f64,
    /// Since when they get little.
    low: Option<Time>,
    /// Until when they are not paced, and for how long the next time.
    unpaced: Time,
    next: Time,
}

impl Default for Others {
    fn default() -> Self {
        Self { round: Time(0), acked: 0, most: 0.0, low: None, unpaced: Time(0), next: UNPACED[0] }
    }
}

#[derive(Debug)]
struct Stream {
    before: Seen,
    round: Time,
    acked_at_round: u64,
    /// Whether data has waited in this round.
    has_waited: bool,
    /// What it gets, and what it wants, in bytes per second; 0 in its first round.
    gets: f64,
    wants: f64,
    /// What it may send, in bytes per second, and the least of that in this round.
    may: f64,
    may_least: f64,
}

/// Who wants a part of something.
#[derive(Debug, Clone, Copy)]
struct Wish {
    weight: f64,
    floor: f64,
    /// No more is wanted.
    most: f64,
}

impl Sharing {
    /// Whether anything is to be divided: two classes have, or have just had, streams on the leg, or one has a ceiling.
    pub fn is_needed(&self, services: &[Service], now: Time) -> bool {
        let limited = |class: &usize| services.get(*class).is_some_and(|service| service.ceiling.is_some());
        let there = || self.classes.iter().filter(|(_, of)| is_there(of, now)).map(|(class, _)| class);
        there().count() > 1 || there().any(limited)
    }

    /// Whether streams are there, or were a short while ago.
    pub fn has_streams(&self, now: Time) -> bool {
        self.classes.values().any(|of| is_there(of, now))
    }

    /// A stream of a class begins. Returns whether the leg is to be looked at from now on.
    pub fn begins(&mut self, class: usize, services: &[Service], now: Time) -> bool {
        let (open, since) = self.classes.entry(class).or_insert((0, now));
        (*open, *since) = (*open + 1, now);
        self.is_needed(services, now)
    }

    /// A stream of a class ends.
    pub fn ends(&mut self, class: usize, now: Time) {
        if let Some((open, since)) = self.classes.get_mut(&class) {
            (*open, *since) = (open.saturating_sub(1), now);
        }
    }

    /// All streams of the leg are looked at, which should happen often in a round trip. Returns for each, in the same order, the rate
    /// from now on in bytes per second; `None` for no limit.
    pub fn look(&mut self, now: Time, services: &[Service], shown: &[StreamSeen]) -> Vec<Option<u64>> {
        let there: BTreeSet<u64> = shown.iter().map(|of| of.stream).collect();
        self.streams.retain(|id, _| there.contains(id));
        self.classes.retain(|class, of| is_there(of, now) && *class < services.len());
        let total = self.total(now, shown).unwrap_or(f64::INFINITY);
        let of_class = |class: usize| {
            let streams = shown.iter().filter(move |of| of.class == class);
            streams.filter_map(|of| Some((of.stream, self.streams.get(&of.stream)?.wants)))
        };
        let wish = |class: &usize| {
            let service = services[*class];
            let ceiling = service.ceiling.map_or(f64::INFINITY, bytes_s);
            let wanted: f64 = of_class(*class).map(|(_, wants)| wants).sum();
            Wish { weight: service.weight.into(), floor: service.floor.map_or(0.0, bytes_s), most: wanted.min(ceiling) }
        };
        let wishes: Vec<Wish> = self.classes.keys().map(wish).collect();
        let ceiling = |class: &usize| services[*class].ceiling.map_or(f64::INFINITY, bytes_s);
        // What each class gets when all want more: one that wants little now may begin to want more at any time.
        let hungry = |(wish, class): (&Wish, &usize)| Wish { most: ceiling(class), ..*wish };
        let hungry: Vec<Wish> = wishes.iter().zip(self.classes.keys()).map(hungry).collect();
        let parts = divide(total, &wishes).into_iter().zip(divide(total, &hungry)).map(|(now, then)| now.max(then));
        let mut rates = BTreeMap::new();
        for (class, part) in self.classes.keys().zip(parts).filter(|(_, part)| part.is_finite()) {
            let (ids, wants): (Vec<u64>, Vec<f64>) = of_class(*class).unzip();
            // Streams that together want less than their class may have are not held back: each may take all that is left.
            let left = (part - wants.iter().sum::<f64>()).max(0.0);
            let even = part / wants.len().max(1) as f64;
            let wishes: Vec<Wish> = wants.iter().map(|wants| Wish { weight: 1.0, floor: 0.0, most: *wants }).collect();
            let given = divide(part, &wishes).into_iter().map(|given| (given + left).max(even).max(RATE_LEAST));
            rates.extend(ids.into_iter().zip(given));
        }
        for (id, stream) in &mut self.streams {
            stream.may = rates.get(id).copied().unwrap_or(f64::INFINITY);
            stream.may_least = stream.may_least.min(stream.may);
        }
        shown.iter().map(|of| rates.get(&of.stream).map(|rate| *rate as u64)).collect()
    }

    /// What the leg carries, in bytes per second, while several classes are there and it is full.
    fn total(&mut self, now: Time, shown: &[StreamSeen]) -> Option<f64> {
        let mut newly_acked = 0;
        let nothing = Seen { rtt: Time(u64::MAX), acked: 0, arrived: 0, retransmits: 0, in_flight: 0 };
        let before = self.all.as_ref().map_or(nothing, |(_, seen)| *seen);
        let mut all = Seen { rtt: Time(u64::MAX), in_flight: 0, ..before };
        for of in shown {
            let stream = self.streams.entry(of.stream).or_insert_with(|| Stream::new(now, of));
            let acked = of.seen.acked.saturating_sub(stream.before.acked);
            all.acked += acked;
            newly_acked += acked;
            all.arrived += of.seen.arrived.saturating_sub(stream.before.arrived);
            all.retransmits += of.seen.retransmits.saturating_sub(stream.before.retransmits);
            all.in_flight += of.seen.in_flight;
            if acked > 0 {
                all.rtt = all.rtt.min(of.seen.rtt);
            }
            stream.look(now, of);
        }
        let is_waiting = shown.iter().any(|of| of.is_waiting);
        let is_left = self.others.fill(now, newly_acked, is_waiting, self.is_paced);
        self.is_paced = false;
        if self.classes.len() < 2 || is_left {
            self.all = None;
            return None;
        }
        // Where nothing was acknowledged, nothing is new.
        all.rtt = if all.rtt.0 == u64::MAX { before.rtt } else { all.rtt };
        let least = shown.iter().map(|of| of.rtt_least).min().filter(|_| all.rtt.0 != u64::MAX)?;
        let (pacing, seen) = self.all.get_or_insert_with(|| (Pacing::of_path(Siblings::new(1), least), all));
        *seen = all;
        pacing.waiting(now, is_waiting);
        let rate = pacing.look(now, all);
        self.is_paced = rate.is_some();
        rate.map(|rate| rate as f64)
    }
}

impl Others {
    /// Counts what was acknowledged since the look before. Returns whether the streams are not to be paced.
    fn fill(&mut self, now: Time, acked: u64, is_waiting: bool, is_paced: bool) -> bool {
        self.acked += acked;
        let lasted = now.since(self.round);
        if lasted >= Time::ms(500) {
            let rate = self.acked as f64 / lasted.as_secs();
            (self.round, self.acked) = (now, 0);
            self.most = (self.most * FORGOTTEN.powf(lasted.as_secs().min(10.0))).max(rate);
            let is_low = is_paced && is_waiting && rate < self.most * GIVEN_WAY;
            self.low = if is_low { self.low.or(Some(now)) } else { None };
        }
        if self.low.is_some_and(|since| now.since(since) >= GIVEN_WAY_FOR) {
            self.unpaced = now + self.next;
            self.next = Time(self.next.0 * 2).min(UNPACED[1]);
            (self.low, self.most) = (None, 0.0);
        } else if is_paced && now.since(self.unpaced) >= UNPACED[1] {
            self.next = UNPACED[0];
        }
        now < self.unpaced
    }
}

impl Stream {
    fn new(now: Time, of: &StreamSeen) -> Self {
        let Seen { acked, .. } = of.seen;
        let (gets, wants, may) = (0.0, 0.0, f64::INFINITY);
        let (before, round, acked_at_round, has_waited) = (of.seen, now, acked, false);
        Self { before, round, acked_at_round, has_waited, gets, wants, may, may_least: may }
    }

    fn look(&mut self, now: Time, of: &StreamSeen) {
        self.before = of.seen;
        self.has_waited |= of.is_waiting;
        let lasted = now.since(self.round);
        if lasted < of.seen.rtt.max(ROUND_LEAST) {
            return;
        }
        let gets = of.seen.acked.saturating_sub(self.acked_at_round) as f64 / lasted.as_secs();
        self.gets = if self.gets == 0.0 { gets } else { self.gets + (gets - self.gets) * NEW_PART };
        // What neither its limit nor its program holds back, the line does.
        let is_held_by_limit = self.may_least.is_infinite() || self.gets >= self.may_least * USED;
        self.wants = if self.has_waited && is_held_by_limit { f64::INFINITY } else { self.gets * ROOM };
        (self.round, self.acked_at_round, self.has_waited) = (now, of.seen.acked, of.is_waiting);
        self.may_least = self.may;
    }
}

/// Whether a class has streams, or had some a short while ago.
fn is_there((open, since): &(u32, Time), now: Time) -> bool {
    *open > 0 || now.since(*since) < KEPT
}

/// Divides by weight. Nobody gets more than it wants, and nobody less than its floor while all floors can be met.
fn divide(total: f64, wishes: &[Wish]) -> Vec<f64> {
    let mut parts: Vec<f64> = wishes.iter().map(|wish| wish.floor.min(wish.most)).collect();
    let floors: f64 = parts.iter().sum();
    if floors > total {
        return parts.iter().map(|part| part * total / floors).collect();
    }
    if total.is_infinite() {
        return wishes.iter().map(|wish| wish.most).collect();
    }
    // The level at which each has its weight's part, or its floor or most where that is more or less, is found by halving.
    let at = |level: f64, parts: &mut Vec<f64>| {
        for (part, wish) in parts.iter_mut().zip(wishes) {
            *part = (wish.weight * level).max(wish.floor).min(wish.most);
        }
        parts.iter().sum::<f64>()
    };
    let least_weight = wishes.iter().map(|wish| wish.weight).fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0.0, total / least_weight.max(f64::MIN_POSITIVE));
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match at(middle, &mut parts) > total {
            true => high = middle,
            false => low = middle,
        }
    }
    at(low, &mut parts);
    parts
}

fn bytes_s(rate: BitRate) -> f64 {
    rate.0 as f64 / 8.0
}

#[cfg(test)]
mod tests;
