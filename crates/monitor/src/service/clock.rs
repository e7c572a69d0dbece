//! The wall clock, watched by the monotonic clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The difference between the two clocks that counts as a jump: more than what is adjusted step by step.
const JUMP_MS: i64 = 60_000;

/// Both clocks, as they were.
#[derive(Debug)]
pub struct Clock {
    unix_ms: u64,
    at: Instant,
    even_since: Instant,
}

impl Clock {
    /// As they are now.
    pub fn start() -> Self {
        let now = Instant::now();
        Self { unix_ms: unix_ms(), at: now, even_since: now }
    }

    /// Reads both, and returns the jump of the wall clock since the last look.
    pub fn look(&mut self) -> Option<String> {
        self.compare(unix_ms(), Instant::now())
    }

    fn compare(&mut self, unix_ms: u64, now: Instant) -> Option<String> {
        let number = |ms: u128| i64::try_from(ms).unwrap_or(i64::MAX);
        let passed = number(now.saturating_duration_since(self.at).as_millis());
        let shown = number(unix_ms.into()).saturating_sub(number(self.unix_ms.into()));
        (self.unix_ms, self.at) = (unix_ms, now);
        let jump = shown.saturating_sub(passed);
        if jump.abs() <= JUMP_MS {
            return None;
        }
        self.even_since = now;
        let seconds = jump / 1000;
        Some(match jump > 0 {
            true => format!(
                "the clock has gone {seconds} s too far: it was set, or the machine slept; rounds go on by the time that passes"
            ),
            false => format!("the clock was set back by {} s; rounds go on by the time that passes", -seconds),
        })
    }

    /// How long it has run without a jump, at the last look.
    pub fn even_for(&self) -> Duration {
        self.at.saturating_duration_since(self.even_since)
    }

    /// As if it had run for `time` without a jump.
    #[cfg(test)]
    pub fn pretend_even(&mut self, time: Duration) {
        self.at = self.even_since + time;
    }
}

/// Milliseconds since 1970 (UTC), by the wall clock; 0 before.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_seen_in_both_directions() {
        let start = Instant::now();
        let mut clock = Clock { unix_ms: 1_000_000_000, at: start, even_since: start };
        let later = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(clock.compare(1_000_600_000, later(600)), None);
        assert_eq!(clock.even_for(), Duration::from_secs(600));
        assert!(clock.compare(900_000_000, later(1200)).unwrap().contains("set back by 101200 s"));
        assert_eq!(clock.even_for(), Duration::ZERO);
        assert_eq!(clock.compare(900_601_000, later(1800)), None);
        assert!(clock.compare(u64::MAX, later(2400)).unwrap().contains("too far"));
        assert_eq!(clock.compare(u64::MAX, later(2401)), None);
    }
}
