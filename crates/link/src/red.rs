//! Random early detection (Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM
//! Transactions on Networking 1(4), 1993; RFC 2309).
//!
//! A packet is dropped when it arrives, with a probability that grows with the average length of the queue. The average
//! and the thresholds are in the unit of the queue's limit, bytes or packets. The length of the packet itself plays no
//! part (RFC 7141, section 2.2).
//!
//! Its constants stand here: the thresholds are parts of the queue's limit.

use ekiden_queue::Queue;
use ekiden_units::Fraction;

use ekiden_units::random::{Random, derive};

/// `min_th` as a part of the queue's limit: a third of `max_th`, as Floyd recommends ("RED: Discussions of Setting
/// Parameters", 1997).
const MIN_PART: u64 = 12;
/// `max_th` as a part of the queue's limit: the default of Linux's tc-red. The gentle variant drops everything from twice
/// `max_th` on; the upper half of the queue is left to bursts.
const MAX_PART: u64 = 4;
/// `max_p`: a tenth (Floyd, 1997; the paper of 1993 has 0.02).
const MAX_P: Fraction = Fraction(100_000_000);
/// `w_q` is 2 to the minus 9, a power of two as in section 11 of the paper; Floyd recommends 0.002.
const WEIGHT_SHIFT: u32 = 9;

/// Averages and thresholds have this many binary digits after the point.
const POINT: u32 = 20;
/// Longer queues count as this long, so that no sum overflows.
const LONGEST: u64 = 1 << 40;

/// The state of RED: figure 2 of the paper, and its "gentle" variant (Floyd, "Recommendation on using the gentle_ variant
/// of RED", 2000), in which the probability grows on from `max_p` to 1 between `max_th` and twice `max_th`.
///
/// Drops are spread evenly, so on average about 2 · p_b of the packets are dropped, and all from p_b = 1/2 on (section 7 of
/// the paper; ns-2 does the same).
#[derive(Debug, Clone)]
pub(crate) struct Red {
    /// Fixed point, as the average.
    min_th: u64,
    max_th: u64,
    /// The serialization time of a packet as long as the MTU.
    packet_ns: u64,
    average: u64,
    /// Packets since the last that was dropped, as long as the average has not been below `min_th`.
    count: Option<u64>,
    random: Random,
}

impl Red {
    /// RED for a queue with this limit, whose serializer takes `packet_ns` for a typical packet.
    pub fn new(limit: Queue, packet_ns: u64, seed: u64) -> Self {
        let limit = match limit {
            Queue::Bytes(bytes) => bytes.0,
            Queue::Packets(packets) => packets,
        };
        let limit = limit.clamp(1, LONGEST) << POINT;
        Self {
            min_th: limit / MIN_PART,
            max_th: limit / MAX_PART,
            packet_ns: packet_ns.max(1),
            average: 0,
            count: None,
            random: Random::new(derive(seed, "red", 0)),
        }
    }

    /// A packet arrives at a queue of length `waiting`. Returns whether it is dropped: by RED, or because the queue is full.
    ///
    /// `idle_ns` is how long the serializer has been idle since the last arrival; `None` if it is busy.
    pub fn drops(&mut self, waiting: u64, idle_ns: Option<u64>, has_room: bool) -> bool {
        match idle_ns {
            Some(idle_ns) => self.average = decayed(self.average, idle_ns / self.packet_ns),
            None => self.average_in(waiting),
        }
        let drops = match self.probability() {
            None => {
                self.count = None;
                false
            }
            Some(probability) => {
                let count = self.count.map_or(0, |count| count + 1);
                self.count = Some(count);
                self.random.is_below(spread(probability, count))
            }
        };
        if !drops && has_room {
            return false;
        }
        // A drop because the queue is full counts like one of RED's.
        self.count = self.count.map(|_| 0);
        true
    }

    fn average_in(&mut self, waiting: u64) {
        let now = waiting.min(LONGEST) << POINT;
        match now >= self.average {
            true => self.average += (now - self.average) >> WEIGHT_SHIFT,
            false => self.average -= (self.average - now) >> WEIGHT_SHIFT,
        }
    }

    /// The paper's p_b: with which probability a packet is dropped at this average, if any can be.
    fn probability(&self) -> Option<Fraction> {
        if self.average < self.min_th {
            return None;
        }
        let part = |of: u64, above: u64, width: u64| {
            Fraction((u128::from(of) * u128::from(above) / u128::from(width.max(1))) as u64)
        };
        if self.average < self.max_th {
            return Some(part(MAX_P.0, self.average - self.min_th, self.max_th - self.min_th));
        }
        let above = (self.average - self.max_th).min(self.max_th);
        Some(Fraction(MAX_P.0 + part(Fraction::ONE.0 - MAX_P.0, above, self.max_th).0))
    }
}

/// The paper's p_a: `p` made so that the packets between two drops are evenly distributed (section 7, method 2).
fn spread(p: Fraction, count: u64) -> Fraction {
    let left = u128::from(Fraction::ONE.0).saturating_sub(u128::from(count) * u128::from(p.0));
    match (u128::from(p.0) * u128::from(Fraction::ONE.0)).checked_div(left) {
        Some(spread) => Fraction(spread.min(Fraction::ONE.0.into()) as u64),
        None => Fraction::ONE,
    }
}

/// The average after an idle time in which `packets` could have been sent: as if each had found the queue empty (section 4).
fn decayed(average: u64, packets: u64) -> u64 {
    const ONE: u64 = 1 << 32;
    let (mut factor, mut power, mut packets) = (ONE, ONE - (ONE >> WEIGHT_SHIFT), packets);
    while packets > 0 && factor > 0 {
        if packets & 1 == 1 {
            factor = (factor * power) >> 32;
        }
        // A power below 1 never exceeds 32 bits, so its square fits.
        power = (power * power) >> 32;
        packets >>= 1;
    }
    ((u128::from(average) * u128::from(factor)) >> 32) as u64
}

#[cfg(test)]
mod tests;
