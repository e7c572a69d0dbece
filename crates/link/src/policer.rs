//! A policer: a token bucket in front of the queue. What finds too few tokens is dropped at once; nothing waits.

use crate::Direction;

/// What a byte takes from the bucket, in parts of which a bit per second makes one in each nanosecond.
const PARTS_PER_BYTE: u128 = 8_000_000_000;

/// A token bucket of a rate and a depth, full at the start (RFC 2697's committed bucket alone). Nothing is rounded.
#[derive(Debug, Clone)]
pub(crate) struct Policer {
    rate_bit_s: u128,
    depth: u128,
    tokens: u128,
    last_ns: u64,
}

impl Policer {
    /// That of `direction`, if it has one.
    pub fn new(direction: &Direction) -> Option<Self> {
        let policer = direction.policer?;
        let depth = u128::from(policer.burst.0) * PARTS_PER_BYTE;
        Some(Self { rate_bit_s: policer.rate.0.into(), depth, tokens: depth, last_ns: 0 })
    }

    /// Whether a packet that arrives at `now_ns`, no earlier than the one before, goes on.
    pub fn passes(&mut self, now_ns: u64, bytes: u32) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        self.tokens = (self.tokens + u128::from(elapsed_ns) * self.rate_bit_s).min(self.depth);
        let wanted = u128::from(bytes) * PARTS_PER_BYTE;
        let passes = wanted <= self.tokens;
        if passes {
            self.tokens -= wanted;
        }
        passes
    }
}

#[cfg(test)]
mod tests;
