//! How streams of several service classes share one leg: by the weights of their classes, while the leg is full.
//!
//! Each stream has a TCP connection of its own, and connections share a line by their number and by how aggressive each is.
//! So the sender paces them. [`carried`] treats all connections of the leg as one, and gives the rate that they may send
//! together while the queue stays short. That rate is divided between the classes, and the rate of a class between its
//! streams. What one does not use goes to the others.

use std::collections::{BTreeMap, BTreeSet};

use ekiden_units::{BitRate, Time};
use serde::{Deserialize, Serialize};

use carried::{All, Carried};
pub use lengths::Lengths;
use order::{RATE_LEAST, Use};
use transfer::Transfer;

mod carried;
mod lengths;
mod order;
mod transfer;

/// How long a leg is divided after the last moment at which streams of two classes were open on it.
const KEPT: Time = Time::secs(10);
/// A stream that gets less than this part of its limit does not want more: the line, or its program, is its limit.
const USED: f64 = 0.9;
/// The limit of such a stream, as a multiple of what it gets. It can grow faster than a congestion window does once slow
/// start has ended.
const ROOM: f64 = 1.1;
/// The rate of a stream is measured over a round trip, but at least over this time.
const ROUND_LEAST: Time = Time::ms(100);
/// The weight of the last round in the mean rate of a stream.
const NEW_PART: f64 = 0.4;
/// How the streams of a class share its part of a full leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Each gets the same.
    #[default]
    Even,
    /// Those go first whose transfers are likely to end soonest, by the lengths of those before them. The others get at
    /// least a tenth of an even share.
    Soonest,
}

impl Order {
    /// The word for it in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Soonest => "soonest",
        }
    }
}

/// The service that a class of streams gets of a leg.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Its part of a full leg, in relation to the weights of the other classes there.
    pub weight: u32,
    /// The maximum rate of its streams together.
    pub ceiling: Option<BitRate>,
    /// The minimum rate of its streams together if the leg carries that much, whatever the weights say.
    pub floor: Option<BitRate>,
    /// How its streams share what it gets.
    pub order: Order,
}

/// A connection that carries a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamSeen {
    /// An identifier that stays the same for a stream at each look.
    pub stream: u64,
    /// Its class, as an index into the list of services.
    pub class: usize,
    /// The smoothed round-trip time of its connection.
    pub rtt: Time,
    /// The least round-trip time of its connection.
    pub rtt_least: Time,
    /// Bytes that have arrived at the other end in all, selectively acknowledged ones included.
    pub acked: u64,
    /// Bytes that its program has handed over, in all.
    pub handed: u64,
    /// Segments sent again, in all.
    pub retransmits: u64,
    /// Whether data waits in its send buffer.
    pub is_waiting: bool,
    /// Bytes that are on the way to the other end.
    pub in_flight: u64,
}

/// A leg and the streams on it.
#[derive(Debug, Default)]
pub struct Sharing {
    streams: BTreeMap<u64, Stream>,
    /// For each class, how many streams are open, and when one was last there.
    classes: BTreeMap<usize, (u32, Time)>,
    /// All connections as if they were one, and the rate that the leg carries.
    all: All,
    carried: Carried,
}

#[derive(Debug)]
struct Stream {
    acked: u64,
    retransmits: u64,
    round: Time,
    acked_at_round: u64,
    /// Whether data has waited in this round.
    has_waited: bool,
    /// The rate that it gets, and the rate that it wants, in bytes per second; 0 in its first round.
    gets: f64,
    wants: f64,
    /// Its limit in bytes per second, and the least limit in this round.
    may: f64,
    may_least: f64,
    class: usize,
    transfer: Transfer,
    uses: Use,
}

/// A wish for a part of the rate.
#[derive(Debug, Clone, Copy)]
struct Wish {
    weight: f64,
    floor: f64,
    /// The maximum that is wanted.
    most: f64,
}

impl Sharing {
    /// Whether anything is to be divided: two classes have, or have just had, streams on the leg, or one has a ceiling.
    pub fn is_needed(&self, services: &[Service], now: Time) -> bool {
        let limited = |class: &usize| services.get(*class).is_some_and(|service| service.ceiling.is_some());
        let there = || self.classes.iter().filter(|(_, of)| is_there(of, now)).map(|(class, _)| class);
        there().count() > 1 || there().any(limited) || there().any(|class| is_ordered(services, *class))
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

    /// Takes the state of all streams of the leg, several times in a round trip. Returns for each, in the same order, the
    /// rate from now on in bytes per second; `None` for no limit. `lengths`, one for each service, learn from the streams.
    pub fn look(
        &mut self,
        now: Time,
        services: &[Service],
        lengths: &mut [Lengths],
        shown: &[StreamSeen],
    ) -> Vec<Option<u64>> {
        let there: BTreeSet<u64> = shown.iter().map(|of| of.stream).collect();
        self.streams.retain(|id, stream| {
            let is_there = there.contains(id);
            if let Some(lengths) = lengths.get_mut(stream.class).filter(|_| !is_there) {
                stream.transfer.ends(lengths);
            }
            is_there
        });
        self.classes.retain(|class, of| is_there(of, now) && *class < services.len());
        let total = self.total(now, services, shown).unwrap_or(f64::INFINITY);
        for of in shown {
            if let (Some(stream), Some(lengths)) = (self.streams.get_mut(&of.stream), lengths.get_mut(of.class)) {
                stream.transfer.look(now, of, lengths);
            }
        }
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
        // The rate of each class if all want more: a class that wants little now may want more at any time.
        let hungry = |(wish, class): (&Wish, &usize)| Wish { most: ceiling(class), ..*wish };
        let hungry: Vec<Wish> = wishes.iter().zip(self.classes.keys()).map(hungry).collect();
        let parts = divide(total, &wishes).into_iter().zip(divide(total, &hungry)).map(|(now, then)| now.max(then));
        let mut rates = BTreeMap::new();
        for (class, part) in self.classes.keys().zip(parts).filter(|(_, part)| part.is_finite()) {
            if is_ordered(services, *class) {
                rates.extend(self.in_order(part, *class, &lengths[*class]));
                continue;
            }
            let (ids, wants): (Vec<u64>, Vec<f64>) = of_class(*class).unzip();
            // Streams that together want less than the rate of their class are not held back: each may take all that is
            // left.
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

    /// The rates of the streams of a class that has this rate, those first that are likely to end soonest.
    fn in_order(&self, part: f64, class: usize, lengths: &Lengths) -> Vec<(u64, f64)> {
        let promises = lengths.promises();
        let of_class = self.streams.iter().filter(|(_, stream)| stream.class == class);
        let place = |of: &Stream| (promises.of(of.transfer.moved()), of.transfer.begun());
        let mut streams: Vec<_> = of_class.map(|(id, of)| (place(of), *id, of.uses)).collect();
        streams.sort_by(|((promise, begun), id, _), ((other, since), other_id, _)| {
            other.total_cmp(promise).then(begun.cmp(since)).then(id.cmp(other_id))
        });
        let uses: Vec<Use> = streams.iter().map(|(.., uses)| *uses).collect();
        streams.iter().map(|(_, id, _)| *id).zip(order::in_order(part, self.carried.has_room(), &uses)).collect()
    }

    /// What the streams may send together, in bytes per second.
    fn total(&mut self, now: Time, services: &[Service], shown: &[StreamSeen]) -> Option<f64> {
        let (mut rtt, mut rtt_least) = (Time(u64::MAX), Time(u64::MAX));
        for of in shown {
            let stream = self.streams.entry(of.stream).or_insert_with(|| Stream::new(now, of));
            let acked = of.acked.saturating_sub(stream.acked);
            self.all.acked += acked;
            self.all.retransmits += of.retransmits.saturating_sub(stream.retransmits);
            rtt_least = rtt_least.min(of.rtt_least);
            if acked > 0 {
                rtt = rtt.min(of.rtt);
            }
            stream.look(now, of);
        }
        self.all.is_waiting = shown.iter().any(|of| of.is_waiting);
        // If nothing was acknowledged, there is no new round-trip time.
        if rtt.0 != u64::MAX {
            (self.all.rtt, self.all.rtt_least) = (rtt, rtt_least);
        }
        let is_shared = self.classes.len() > 1 || self.classes.keys().any(|class| is_ordered(services, *class));
        self.all.is_ordered = self.classes.keys().any(|class| is_ordered(services, *class));
        if !is_shared {
            self.carried = Carried::default();
        }
        (is_shared && self.all.rtt.0 > 0).then(|| self.carried.look(now, self.all)).flatten()
    }
}

impl Stream {
    fn new(now: Time, of: &StreamSeen) -> Self {
        let &StreamSeen { acked, retransmits, .. } = of;
        let (gets, wants, may) = (0.0, 0.0, f64::INFINITY);
        let (round, acked_at_round, has_waited) = (now, acked, false);
        Self {
            acked,
            retransmits,
            round,
            acked_at_round,
            has_waited,
            gets,
            wants,
            may,
            may_least: may,
            class: of.class,
            transfer: Transfer::new(now, of),
            uses: used(of),
        }
    }

    fn look(&mut self, now: Time, of: &StreamSeen) {
        (self.acked, self.retransmits) = (of.acked, of.retransmits);
        self.has_waited |= of.is_waiting;
        self.uses = used(of);
        let lasted = now.since(self.round);
        if lasted < of.rtt.max(ROUND_LEAST) {
            return;
        }
        let gets = of.acked.saturating_sub(self.acked_at_round) as f64 / lasted.as_secs();
        self.gets = if self.gets == 0.0 { gets } else { self.gets + (gets - self.gets) * NEW_PART };
        // A stream that neither its limit nor its program holds back is held back by the line.
        let is_held_by_limit = self.may_least.is_infinite() || self.gets >= self.may_least * USED;
        self.wants = if self.has_waited && is_held_by_limit { f64::INFINITY } else { self.gets * ROOM };
        (self.round, self.acked_at_round, self.has_waited) = (now, of.acked, of.is_waiting);
        self.may_least = self.may;
    }
}

fn used(of: &StreamSeen) -> Use {
    let (in_flight, rtt) = (of.in_flight as f64, of.rtt.max(Time::ms(1)).as_secs());
    Use { in_flight, rtt, is_waiting: of.is_waiting }
}

/// Whether the streams of a class have an order.
fn is_ordered(services: &[Service], class: usize) -> bool {
    services.get(class).is_some_and(|service| service.order == Order::Soonest)
}

/// Whether a class has streams, or had some a short while ago.
fn is_there((open, since): &(u32, Time), now: Time) -> bool {
    *open > 0 || now.since(*since) < KEPT
}

/// Divides by weight. None gets more than it wants, and none less than its floor while all floors can be met.
fn divide(total: f64, wishes: &[Wish]) -> Vec<f64> {
    let mut parts: Vec<f64> = wishes.iter().map(|wish| wish.floor.min(wish.most)).collect();
    let floors: f64 = parts.iter().sum();
    if floors > total {
        // By floor, as if the floors were the weights.
        let by_floor = |wish: &Wish| Wish { weight: wish.floor.max(1.0), floor: 0.0, most: wish.most };
        return divide(total, &wishes.iter().map(by_floor).collect::<Vec<_>>());
    }
    if total.is_infinite() {
        return wishes.iter().map(|wish| wish.most).collect();
    }
    // Bisection finds the level at which each has its weight's part, or its floor if that is more, or its maximum if that is
    // less.
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
