//! One direction of a link, as it is described. What has its default is not written out, which keeps records short.

use ekiden_queue::Queue;
use ekiden_units::{BitRate, Bytes, Fraction, Time};
use serde::{Deserialize, Serialize};

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

/// How the queue of a link chooses the packets that it drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// Drop tail: packets for which it has no room when they arrive.
    DropTail,
    /// Random early detection (Floyd and Jacobson, 1993).
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
    /// The same for each flow, and flows in turn (FQ-CoDel, RFC 8290).
    FqCodel,
}

impl Direction {
    /// The discipline of a queue of which none is said.
    pub const DEFAULT_DISCIPLINE: Discipline = Discipline::DropTail;
    /// The delay of a line of which no jitter is said is constant.
    pub const DEFAULT_JITTER: Time = Time(0);
    /// Each packet is lost independently.
    pub const DEFAULT_LOSS_BURST: u32 = 1;
    /// All packets in order.
    pub const DEFAULT_REORDER: Fraction = Fraction(0);

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

fn is_default_discipline(discipline: &Discipline) -> bool {
    *discipline == Direction::DEFAULT_DISCIPLINE
}

fn is_default_jitter(jitter: &Time) -> bool {
    *jitter == Direction::DEFAULT_JITTER
}

fn is_default_loss_burst(packets: &u32) -> bool {
    *packets == Direction::DEFAULT_LOSS_BURST
}

fn is_default_reorder(part: &Fraction) -> bool {
    *part == Direction::DEFAULT_REORDER
}
