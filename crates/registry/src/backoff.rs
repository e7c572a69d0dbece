//! How long to wait before etcd is tried again.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(250);

/// The longest. Members that were cut off with this one must be back within [`crate::view::RETURN_WITHIN`].
const MOST: Duration = Duration::from_secs(2);

/// Exponential, with chance in it: nodes that lost etcd together do not come back together.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It went well.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// It failed once more. `chance` is from 0 to 1. The wait is between half of 0.25 s · 2ⁿ, of at most 2 s, and all of it.
    pub fn failed(&mut self, chance: f64) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(10)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..7).map(|_| backoff.failed(1.0).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 2000, 2000, 2000]);
        assert_eq!(backoff.failed(0.0), MOST / 2);
        (0..100).for_each(|_| assert!(backoff.failed(0.3) <= MOST));
        backoff.succeeded();
        assert_eq!(backoff.failed(1.0), FIRST);
    }
}
