//! Lines of the log that others can cause, and may not flood it with.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// So many lines are told in this time.
const LINES: u32 = 10;
const TIME: Duration = Duration::from_secs(10);

/// Counts the lines of one kind.
#[derive(Default)]
pub struct Seldom {
    began: Cell<Option<Instant>>,
    told: Cell<u32>,
    kept: Cell<u64>,
}

impl Seldom {
    /// Whether one more line may be told. If so, what it is to end with: how many were not told before it.
    pub fn tell(&self) -> Option<String> {
        self.tell_at(Instant::now())
    }

    fn tell_at(&self, now: Instant) -> Option<String> {
        if self.began.get().is_none_or(|began| now.duration_since(began) >= TIME) {
            self.began.set(Some(now));
            self.told.set(0);
        }
        if self.told.get() >= LINES {
            self.kept.set(self.kept.get() + 1);
            return None;
        }
        self.told.set(self.told.get() + 1);
        Some(match self.kept.take() {
            0 => String::new(),
            kept => format!(" ({kept} lines of this kind were left out before)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_of_in_few_lines() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        assert_eq!((0..100).filter_map(|_| seldom.tell_at(now)).count(), 10);
        let later = now + TIME;
        assert_eq!(seldom.tell_at(later).unwrap(), " (90 lines of this kind were left out before)");
        assert_eq!(seldom.tell_at(later).unwrap(), "");
    }
}
