//! The wire: one packet after the other at a fixed rate, then a delay.

use ekiden_scenario::Link;

use crate::random::{self, Random};

/// Nanoseconds that a byte takes at 1 bit/s: parts of a nanosecond of which the rate makes one.
const PARTS_PER_BYTE: u64 = 8_000_000_000;

/// A wire of fixed rate, and of a fixed delay with or without jitter. Times are nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    rate_bit_s: u64,
    delay_ns: u64,
    /// When the wire is free: `free_ns` and `free_part` parts of a nanosecond, of which `rate_bit_s` make one.
    free_ns: u64,
    free_part: u64,
    /// What is added to the delay.
    jitter: Option<Jitter>,
}

/// A random addition to the delay that keeps packets in order.
#[derive(Debug, Clone)]
struct Jitter {
    most_ns: u64,
    random: Random,
    last_due_ns: u64,
}

impl Wire {
    pub fn new(link: &Link, seed: u64) -> Self {
        let random = Random::new(random::derive(seed, "jitter", 0));
        let jitter = (link.jitter.0 > 0).then_some(Jitter { most_ns: link.jitter.0, random, last_due_ns: 0 });
        Self { rate_bit_s: link.rate.0.max(1), delay_ns: link.delay.0, free_ns: 0, free_part: 0, jitter }
    }

    /// When the next packet can begin.
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// When a packet that comes out at `due_ns` has left the wire free for the next, at the latest.
    pub fn end_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.delay_ns)
    }

    /// How long a packet takes, rounded down.
    pub fn takes_ns(&self, bytes: u32) -> u64 {
        u64::from(bytes).saturating_mul(PARTS_PER_BYTE) / self.rate_bit_s
    }

    /// If the wire has nothing to send at `now_ns`, it rests until then. Returns since when it has rested.
    #[inline]
    pub fn rest_until(&mut self, now_ns: u64) -> Option<u64> {
        if self.free_ns >= now_ns {
            return None;
        }
        let since_ns = self.free_ns;
        (self.free_ns, self.free_part) = (now_ns, 0);
        Some(since_ns)
    }

    /// Sends a packet as soon as the wire is free. Returns when it comes out at the far end.
    ///
    /// The wire is busy for as long as the packet takes, exactly: the remainder is carried over.
    #[inline]
    pub fn send(&mut self, bytes: u32) -> u64 {
        // Nothing saturates with packets below 2 GB: 8 × 10⁹ of their bytes and less than a rate fit into 64 bits.
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
