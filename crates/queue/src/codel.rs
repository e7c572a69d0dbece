//! Controlled delay (RFC 8289): when a packet leaves the queue, whether it is sent, marked or dropped.
//!
//! A packet that can be marked is marked instead of being dropped (section 3; RFC 8290, section 4.2), and counts as a drop from
//! there on, as in Linux (`codel_dequeue`).

use std::collections::VecDeque;

use ekiden_units::Time;

use crate::{Queued, Signals};

/// The time parameters of CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodelTimes {
    /// The standing queue's acceptable delay (RFC 8289, section 4.4).
    pub target: Time,
    /// How long the delay must have been above the target before a packet is dropped: about the longest round trip of the
    /// connections (section 4.3).
    pub interval: Time,
    /// A delay of this length shows that a slow start overshoots. The overshoot doubles in each round trip, so CoDel drops
    /// without waiting for the interval. `None`, as in the RFC: it always waits.
    pub overshoot: Option<Time>,
}

impl Default for CodelTimes {
    /// The RFC's.
    fn default() -> Self {
        Self { target: Time(5_000_000), interval: Time(100_000_000), overshoot: None }
    }
}

/// If dropping ended less than this many intervals ago, it resumes at its last rate (section 5.5).
const MEMORY_INTERVALS: u64 = 16;

/// Packets that wait, each with its time of arrival.
#[derive(Debug, Clone)]
pub struct Fifo<P> {
    packets: VecDeque<(u64, P)>,
    bytes: u64,
}

impl<P> Default for Fifo<P> {
    /// An empty one.
    fn default() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<P: Queued> Fifo<P> {
    /// How many there are.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A packet arrives.
    pub fn push(&mut self, arrival_ns: u64, packet: P) {
        self.bytes += u64::from(packet.bytes());
        self.packets.push_back((arrival_ns, packet));
    }

    /// The first packet, and when it arrived.
    pub fn pop(&mut self) -> Option<(u64, P)> {
        let head = self.packets.pop_front()?;
        self.bytes -= u64::from(head.1.bytes());
        Some(head)
    }
}

/// The state of CoDel (section 5.2), with the RFC's names.
#[derive(Debug, Clone)]
pub struct Codel {
    times: CodelTimes,
    /// The longest packet in bytes. With no more than this left nothing is dropped.
    mtu: u64,
    /// When the delay will have been above the target for an interval. `None` while it is below.
    first_above_ns: Option<u64>,
    is_dropping: bool,
    drop_next_ns: u64,
    /// Drops and marks since dropping began, and this number when it began.
    count: u64,
    last_count: u64,
    /// In all.
    signals: Signals,
}

impl Codel {
    /// CoDel for packets of at most `mtu` bytes.
    pub fn new(mtu: u32, times: CodelTimes) -> Self {
        let mtu = mtu.into();
        Self {
            times,
            mtu,
            first_above_ns: None,
            is_dropping: false,
            drop_next_ns: 0,
            count: 0,
            last_count: 0,
            signals: Signals::default(),
        }
    }

    /// What it has done so far.
    pub fn signals(&self) -> Signals {
        self.signals
    }

    /// The serializer is free at `now_ns`: returns the packet to send next and when it arrived (section 5.5). `others` bytes wait
    /// in other queues before the same serializer. The last packet of all is never dropped.
    pub fn dequeue<P: Queued>(&mut self, now_ns: u64, queue: &mut Fifo<P>, others: u64) -> Option<(u64, P)> {
        let (mut packet, mut may_drop) = self.take(now_ns, queue, others);
        if self.is_dropping {
            // Many drops can be due at once: the rate of drops follows the clock, not the packets.
            while may_drop && now_ns >= self.drop_next_ns {
                if self.mark(&mut packet) {
                    self.count += 1;
                    self.drop_next_ns = control_law(self.drop_next_ns, self.times.interval, self.count);
                    break;
                }
                self.signals.drops += 1;
                (packet, may_drop) = self.take(now_ns, queue, others);
                if may_drop {
                    self.count += 1;
                    self.drop_next_ns = control_law(self.drop_next_ns, self.times.interval, self.count);
                }
            }
            self.is_dropping = may_drop;
        } else if may_drop {
            if !self.mark(&mut packet) {
                self.signals.drops += 1;
                (packet, _) = self.take(now_ns, queue, others);
            }
            self.is_dropping = true;
            let drops = self.count - self.last_count;
            let is_recent =
                now_ns < self.drop_next_ns.saturating_add(self.times.interval.0.saturating_mul(MEMORY_INTERVALS));
            self.count = if drops > 1 && is_recent { drops } else { 1 };
            self.last_count = self.count;
            self.drop_next_ns = control_law(now_ns, self.times.interval, self.count);
        }
        packet
    }

    /// Marks a packet that is about to be dropped. Returns whether that is possible: it is sent then.
    fn mark<P: Queued>(&mut self, packet: &mut Option<(u64, P)>) -> bool {
        let is_marked = packet.as_mut().is_some_and(|(_, packet)| packet.mark());
        self.signals.marks += u64::from(is_marked);
        is_marked
    }

    /// Takes the number of packets that were dropped in overload: dropping goes on at the rate that this number calls for.
    pub fn on_overload(&mut self, packets: u64) {
        self.count += packets;
    }

    /// The packet at the head, and whether it may be dropped: whether the delay has been above the target for an interval
    /// (section 5.6).
    fn take<P: Queued>(&mut self, now_ns: u64, queue: &mut Fifo<P>, others: u64) -> (Option<(u64, P)>, bool) {
        let Some(head) = queue.pop() else {
            self.first_above_ns = None;
            return (None, false);
        };
        let delay = now_ns.saturating_sub(head.0);
        if delay < self.times.target.0 || queue.bytes() + others <= self.mtu {
            self.first_above_ns = None;
            return (Some(head), false);
        }
        let mut first_above_ns = *self.first_above_ns.get_or_insert(now_ns.saturating_add(self.times.interval.0));
        // The flow's own queue: a packet that has waited behind other flows is no sign of an overshoot.
        let is_own = queue.bytes() > self.mtu;
        if is_own && self.times.overshoot.is_some_and(|overshoot| delay >= overshoot.0) {
            first_above_ns = first_above_ns.min(now_ns);
            self.first_above_ns = Some(first_above_ns);
        }
        (Some(head), now_ns >= first_above_ns)
    }
}

/// When to drop after `at_ns`: the interval divided by the square root of the number of drops (section 5.6), rounded down
/// to nanoseconds.
fn control_law(at_ns: u64, interval: Time, count: u64) -> u64 {
    let after = (u128::from(interval.0).pow(2) / u128::from(count.max(1))).isqrt();
    at_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
