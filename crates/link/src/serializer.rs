//! The serializer: sends one packet after the other at a fixed rate; a delay follows.

use ekiden_scenario::Link;

use crate::random::{self, Random};

/// Nanoseconds that a byte takes at 1 bit/s: parts of a nanosecond of which the rate makes one.
const PARTS_PER_BYTE: u64 = 8_000_000_000;

/// A serializer of fixed rate, and the delay behind it: fixed, or with jitter. Times are nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Serializer {
    rate_bit_s: u64,
    delay_ns: u64,
    /// When the serializer is free: `free_ns` and `free_part` parts of a nanosecond, of which `rate_bit_s` make one.
    free_ns: u64,
    free_part: u64,
    /// The random part of the delay.
    jitter: Option<Jitter>,
}

/// A random addition to the delay that keeps packets in order.
#[derive(Debug, Clone)]
struct Jitter {
    most_ns: u64,
    random: Random,
    last_due_ns: u64,
}

impl Serializer {
    pub fn new(link: &Link, seed: u64) -> Self {
        let random = Random::new(random::derive(seed, "jitter", 0));
        let jitter = (link.jitter.0 > 0).then_some(Jitter { most_ns: link.jitter.0, random, last_due_ns: 0 });
        Self { rate_bit_s: link.rate.0.max(1), delay_ns: link.delay.0, free_ns: 0, free_part: 0, jitter }
    }

    /// When the next packet can begin to be sent.
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// The latest time at which the last bit of a packet that comes out at `due_ns` can have been sent.
    pub fn end_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.delay_ns)
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

    /// Sends a packet as soon as the serializer is free. Returns when the packet comes out at the far end.
    ///
    /// Rounding does not add up: the remainder of the division is carried over to the next packet.
    #[inline]
    pub fn send(&mut self, bytes: u32) -> u64 {
        // Packets below 2 GB never saturate: 8 × 10⁹ times their bytes plus less than one rate fits into 64 bits.
        let parts = u64::from(bytes).saturating_mul(PARTS_PER_BYTE).saturating_add(self.free_part);
        self.free_ns = self.free_ns.saturating_add(parts / self.rate_bit_s);
        self.free_part = parts % self.rate_bit_s;
        let due_ns = self.free_ns.saturating_add(self.delay_ns);
        match &mut self.jitter {
            None => due_ns,
            Some(jitter) => jitter.delay(due_ns),
        }
    }
}

impl Jitter {
    /// When a packet comes out that would at `due_ns`.
    fn delay(&mut self, due_ns: u64) -> u64 {
        let due_ns = due_ns.saturating_add(self.random.up_to(self.most_ns));
        self.last_due_ns = self.last_due_ns.max(due_ns);
        self.last_due_ns
    }
}
