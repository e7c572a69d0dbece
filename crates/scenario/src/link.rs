//! Links: what a packet meets on the way from one node to the next.

use ekiden_units::{BitRate, Bytes, Fraction, Time};
use serde::{Serialize, Serializer};

use crate::left_out::{is_default_discipline, is_default_jitter, is_default_loss_burst, is_default_reorder};
use crate::queue::{Discipline, Queue};

/// A link between two nodes. Its directions are independent.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The two nodes.
    pub ends: [String; 2],
    /// From the first to the second.
    pub forth: Direction,
    /// And back.
    pub back: Direction,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Direction {
    /// Line rate, counting IP packets with their headers.
    pub rate: BitRate,
    /// Propagation delay one way.
    pub delay: Time,
    /// The most that each packet's random addition to `delay` can be; uniformly distributed. Packets stay in order.
    #[serde(skip_serializing_if = "is_default_jitter")]
    pub jitter: Time,
    /// The limit of the queue, for every discipline. The packet being sent does not count.
    pub queue: Queue,
    /// Which packets are dropped from the queue.
    #[serde(skip_serializing_if = "is_default_discipline")]
    pub discipline: Discipline,
    /// Drops what is above a rate, in front of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policer: Option<Policer>,
    /// The part of the packets that is lost at random.
    pub loss: Fraction,
    /// The mean length of a loss burst: 1 if each packet is lost independently of the others; else Gilbert's model
    /// (Bell System Technical Journal 39(5), 1960), in which a burst ends after each packet with probability 1 /
    /// `loss_burst`. `loss` is then at most `loss_burst` / (`loss_burst` + 1), so that a burst begins with a
    /// probability of at most 1.
    #[serde(skip_serializing_if = "is_default_loss_burst")]
    pub loss_burst: u32,
    /// The part of the packets that come out late, so that later ones overtake them; each independently.
    #[serde(skip_serializing_if = "is_default_reorder")]
    pub reorder: Fraction,
    /// How late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder_by: Option<Time>,
    /// Other rates and delays from some time on, ascending; no two at the same time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// When what is sent is lost; ascending, and apart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Largest IP packet in bytes; the same in both directions.
    #[serde(skip)]
    pub mtu: u32,
}

/// A token bucket that is full at the start: a packet for which there are not enough tokens is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Policer {
    /// Tokens, in bits per second, counting IP packets with their headers.
    pub rate: BitRate,
    /// The depth of the bucket.
    pub burst: Bytes,
}

/// What a direction is from some time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Change {
    /// From when on, counted from the start of the run.
    pub at: Time,
    /// The line rate; `None` leaves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// The propagation delay; `None` leaves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Time>,
}

/// A time in which the line loses what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// When it begins, counted from the start of the run.
    pub at: Time,
    /// How long it lasts.
    pub lasts: Time,
}

impl Link {
    /// The direction that begins at an end, 0 or 1.
    pub fn from_end(&self, end: usize) -> &Direction {
        if end == 0 { &self.forth } else { &self.back }
    }

    /// Largest IP packet in bytes.
    pub fn mtu(&self) -> u32 {
        self.forth.mtu
    }
}

impl Direction {
    /// What it carries at most for long at the start: its rate, or that of its policer if that is less.
    pub fn carried(&self) -> BitRate {
        self.policer.map_or(self.rate, |policer| self.rate.min(policer.rate))
    }

    /// The least propagation delay that it ever has.
    pub fn least_delay(&self) -> Time {
        let later = self.changes.iter().filter_map(|change| change.delay);
        later.fold(self.delay, Time::min)
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Alike<'a> {
            ends: &'a [String; 2],
            mtu: u32,
            #[serde(flatten)]
            both: &'a Direction,
        }
        #[derive(Serialize)]
        struct Apart<'a> {
            ends: &'a [String; 2],
            mtu: u32,
            forth: &'a Direction,
            back: &'a Direction,
        }
        let Self { ends, forth, back } = self;
        match forth == back {
            true => Alike { ends, mtu: self.mtu(), both: forth }.serialize(serializer),
            false => Apart { ends, mtu: self.mtu(), forth, back }.serialize(serializer),
        }
    }
}
