//! When rounds begin, by a clock that is never set. Arithmetic only.

use std::time::Duration;

use crate::config::Offset;

/// The rounds of a monitor: one in each interval, counted from its start.
#[derive(Debug, Clone)]
pub struct Rounds {
    interval: Duration,
    offset: Offset,
    /// The interval of the next round, counted from 0.
    next: u32,
}

impl Rounds {
    /// Rounds in intervals of this length.
    pub fn new(interval: Duration, offset: Offset) -> Self {
        Self { interval: interval.max(Duration::from_millis(1)), offset, next: 0 }
    }

    /// When the next round begins, from `now` on; both since the start. Intervals that have passed meanwhile have no round. `chance`
    /// is a random number from 0 to 1, drawn anew for each call.
    pub fn next(&mut self, now: Duration, chance: f64) -> Duration {
        let passed = now.as_nanos() / self.interval.as_nanos();
        self.next = self.next.max(u32::try_from(passed).unwrap_or(u32::MAX));
        let into = match self.offset {
            Offset::Random => self.interval.mul_f64(chance.clamp(0.0, 1.0)),
            Offset::Fixed(time) => time.into(),
        };
        let begin = self.interval.saturating_mul(self.next).saturating_add(into);
        self.next = self.next.saturating_add(1);
        // In an interval that has begun, its time may have passed.
        begin.max(now)
    }
}

/// In which order a round measures its targets: each begins in turn, so that none is always the first or behind the same other.
pub(crate) fn order(targets: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..targets).map(move |number| (number + round) % targets)
}

#[cfg(test)]
mod tests {
    use ekiden_units::Time;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_fixed_offset_is_kept_and_late_rounds_do_not_pile_up() {
        let mut rounds = Rounds::new(10 * MINUTE, Offset::Fixed(Time::secs(120)));
        assert_eq!(rounds.next(Duration::ZERO, 0.9), 2 * MINUTE);
        assert_eq!(rounds.next(3 * MINUTE, 0.9), 12 * MINUTE);
        // A round that lasted into the next interval, past its time: at once, and then as before.
        assert_eq!(rounds.next(23 * MINUTE, 0.9), 23 * MINUTE);
        assert_eq!(rounds.next(24 * MINUTE, 0.9), 32 * MINUTE);
        // One that lasted over several.
        assert_eq!(rounds.next(71 * MINUTE, 0.9), 72 * MINUTE);
    }

    #[test]
    fn random_times_are_one_in_each_interval() {
        let mut rounds = Rounds::new(10 * MINUTE, Offset::Random);
        assert_eq!(rounds.next(Duration::ZERO, 0.9), 9 * MINUTE);
        assert_eq!(rounds.next(9 * MINUTE, 0.1), 11 * MINUTE);
        assert_eq!(rounds.next(11 * MINUTE, 0.5), 25 * MINUTE);
        assert_eq!(rounds.next(Duration::MAX, 0.5), Duration::MAX);
    }

    #[test]
    fn targets_take_turns() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| order(3, round).collect()).collect();
        assert_eq!(orders, [vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1], vec![0, 1, 2]]);
        assert_eq!(order(0, 5).count(), 0);
    }
}
