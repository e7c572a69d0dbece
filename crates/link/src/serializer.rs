//! The serializer: sends one packet after the other; a delay follows. The schedule of a link changes both.

use crate::reorder::Reorder;
use crate::{Change, Direction, Outage};
use ekiden_units::random::{self, Random};

/// Nanoseconds that a byte takes at 1 bit/s: parts of a nanosecond of which the rate makes one.
const PARTS_PER_BYTE: u64 = 8_000_000_000;

/// A serializer, and the delay behind it: fixed, or with jitter. Times are nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Serializer {
    rate_bit_s: u64,
    delay_ns: u64,
    least_delay_ns: u64,
    /// When the serializer is free: `free_ns` and `free_part` parts of a nanosecond, of which `rate_bit_s` make one.
    free_ns: u64,
    free_part: u64,
    /// When the last packet comes out that keeps its place in the order.
    last_due_ns: u64,
    /// The random part of the delay.
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
    /// The changes that are still to come.
    changes: Ahead<Change>,
    /// The outages that have not ended.
    outages: Ahead<Outage>,
    /// The time from which the times of both count; `None` before they have begun.
    origin_ns: Option<u64>,
}

/// A list of which the first ones are over.
type Ahead<T> = std::iter::Peekable<std::vec::IntoIter<T>>;

/// When a packet comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// When it would come out if it kept its place.
    pub in_order_ns: u64,
    /// When it comes out.
    pub due_ns: u64,
    /// Whether it is lost, because it was sent in an outage.
    pub is_out: bool,
}

/// A random addition to the delay that keeps packets in order.
#[derive(Debug, Clone)]
struct Jitter {
    most_ns: u64,
    random: Random,
}

impl Serializer {
    pub fn new(direction: &Direction, seed: u64) -> Self {
        let random = Random::new(random::derive(seed, "jitter", 0));
        let jitter = (direction.jitter.0 > 0).then_some(Jitter { most_ns: direction.jitter.0, random });
        Self {
            rate_bit_s: direction.rate.0.max(1),
            delay_ns: direction.delay.0,
            least_delay_ns: direction.least_delay().0,
            free_ns: 0,
            free_part: 0,
            last_due_ns: 0,
            jitter,
            reorder: Reorder::new(direction, seed),
            changes: direction.changes.clone().into_iter().peekable(),
            outages: direction.outages.clone().into_iter().peekable(),
            origin_ns: None,
        }
    }

    /// Changes and outages count from now on.
    pub fn begin(&mut self, now_ns: u64) {
        self.origin_ns = Some(now_ns);
    }

    /// When the next packet can begin to be sent.
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// The latest time at which the last bit of a packet that comes out at `due_ns` can have been sent.
    pub fn end_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.least_delay_ns)
    }

    /// How long it takes to send a packet, rounded down.
    pub fn serialization_ns(&self, bytes: u32) -> u64 {
        u64::from(bytes).saturating_mul(PARTS_PER_BYTE) / self.rate_bit_s
    }

    /// A serializer with nothing to send before `now_ns` stays idle until then. Returns since when it has been idle.
    #[inline]
    pub fn idle_until(&mut self, now_ns: u64) -> Option<u64> {
        if self.free_ns >= now_ns {
            return None;
        }
        let since_ns = self.free_ns;
        (self.free_ns, self.free_part) = (now_ns, 0);
        Some(since_ns)
    }

    /// Sends a packet as soon as the serializer is free, and says when it comes out at the far end.
    ///
    /// Rounding does not add up: the remainder of the division is carried over to the next packet.
    #[inline]
    pub fn send(&mut self, bytes: u32) -> Due {
        // Packets below 2 GB never saturate: 8 × 10⁹ times their bytes plus less than one rate fits into 64 bits.
        let parts = u64::from(bytes).saturating_mul(PARTS_PER_BYTE).saturating_add(self.free_part);
        let parts = self.change(parts);
        self.free_ns = self.free_ns.saturating_add(parts / self.rate_bit_s);
        self.free_part = parts % self.rate_bit_s;
        let due_ns = self.free_ns.saturating_add(self.delay_ns);
        let due_ns = self.jitter.as_mut().map_or(due_ns, |jitter| jitter.delay(due_ns));
        self.last_due_ns = self.last_due_ns.max(due_ns);
        let in_order_ns = self.last_due_ns;
        let due_ns = self.reorder.as_mut().map_or(in_order_ns, |reorder| reorder.delay(in_order_ns));
        Due { in_order_ns, due_ns, is_out: self.is_out() }
    }

    /// Makes every change that is due before `parts` parts are sent, and returns the parts that are then left.
    #[inline]
    fn change(&mut self, mut parts: u64) -> u64 {
        let Some(origin_ns) = self.origin_ns else { return parts };
        while let Some(&Change { at, rate, delay }) = self.changes.peek() {
            let at_ns = origin_ns.saturating_add(at.0);
            let until_then = u128::from(at_ns.saturating_sub(self.free_ns)) * u128::from(self.rate_bit_s);
            if u128::from(parts) < until_then {
                break;
            }
            parts -= until_then as u64;
            self.free_ns = self.free_ns.max(at_ns);
            self.rate_bit_s = rate.map_or(self.rate_bit_s, |rate| rate.0.max(1));
            self.delay_ns = delay.map_or(self.delay_ns, |delay| delay.0);
            self.changes.next();
        }
        parts
    }

    /// Whether there is an outage when the last bit has been sent.
    fn is_out(&mut self) -> bool {
        let Some(origin_ns) = self.origin_ns else { return false };
        let at_ns = |time: u64| origin_ns.saturating_add(time);
        while self.outages.next_if(|outage| at_ns(outage.at.0 + outage.lasts.0) <= self.free_ns).is_some() {}
        self.outages.peek().is_some_and(|outage| at_ns(outage.at.0) <= self.free_ns)
    }
}

impl Jitter {
    /// When a packet comes out that would come out at `due_ns`, if none before it comes out later.
    fn delay(&mut self, due_ns: u64) -> u64 {
        due_ns.saturating_add(self.random.up_to(self.most_ns))
    }
}

#[cfg(test)]
mod tests;
