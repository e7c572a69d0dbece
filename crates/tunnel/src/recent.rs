//! The rates of the last seconds, in both directions.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The time over which rates are taken.
pub const WINDOW: Duration = Duration::from_secs(10);
/// The interval at which counters are recorded. The rate of a connection younger than this is taken over this time.
const STEP: Duration = Duration::from_secs(1);

/// The two counters within [`WINDOW`], the oldest first.
#[derive(Default)]
pub struct Recent(RefCell<VecDeque<(Instant, [u64; 2])>>);

impl Recent {
    /// Takes the counters of now.
    pub fn look(&self, now: Instant, bytes: [u64; 2]) {
        let mut past = self.0.borrow_mut();
        if past.back().is_none_or(|(last, _)| now - *last >= STEP) {
            past.push_back((now, bytes));
        }
        while past.front().is_some_and(|(first, _)| now - *first > WINDOW) {
            past.pop_front();
        }
    }

    /// The rates of the last [`WINDOW`], in bit/s: 0 if nothing was carried.
    pub fn bit_s(&self, now: Instant, bytes: [u64; 2]) -> [u64; 2] {
        let past = self.0.borrow();
        let Some((since, before)) = past.iter().find(|(at, _)| now - *at <= WINDOW) else { return [0; 2] };
        let time_us = (now - *since).max(STEP).as_micros();
        let rate = |number: usize| {
            let bits = u128::from(bytes[number].saturating_sub(before[number])) * 8;
            u64::try_from(bits * 1_000_000 / time_us).unwrap_or(u64::MAX)
        };
        [rate(0), rate(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_ten_seconds_and_none_when_idle() {
        let (recent, mut now, mut bytes) = (Recent::default(), Instant::now(), [500, 0]);
        assert_eq!(recent.bit_s(now, bytes), [0, 0]);
        // 1 MB/s for 30 s, then half of that for 5 s, then nothing.
        let mut run = |tenths: u64, step: u64| {
            for _ in 0..tenths {
                recent.look(now, bytes);
                now += Duration::from_millis(100);
                bytes = [bytes[0] + step, bytes[1] + 2 * step];
            }
            recent.bit_s(now, bytes).map(|rate| (rate + 50_000) / 100_000)
        };
        assert_eq!(run(5, 100_000), [40, 80], "of a second at least");
        assert_eq!(run(300, 100_000), [80, 160]);
        let [mixed, _] = run(50, 50_000);
        assert!((58..=62).contains(&mixed), "{mixed}");
        assert_eq!(run(120, 0), [0, 0]);
    }

    #[test]
    fn what_was_written_down_long_ago_says_nothing() {
        let (recent, now) = (Recent::default(), Instant::now());
        recent.look(now, [0, 0]);
        assert_eq!(recent.bit_s(now + Duration::from_secs(60), [1_000_000, 0]), [0, 0]);
    }
}
