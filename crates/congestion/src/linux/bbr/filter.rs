//! The greatest rate of late.

use super::RATE_ROUNDS;

/// The greatest value of the last [`RATE_ROUNDS`] round trips, by the best three (`lib/win_minmax.c`, after Kathleen Nichols).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MaxFilter {
    best: [(u64, u64); 3],
}

impl MaxFilter {
    pub(super) fn most(&self) -> u64 {
        self.best[0].1
    }

    pub(super) fn update(&mut self, at: u64, value: u64) {
        let new = (at, value);
        if value >= self.best[0].1 || at - self.best[2].0 > RATE_ROUNDS {
            self.best = [new; 3];
            return;
        }
        if value >= self.best[1].1 {
            (self.best[1], self.best[2]) = (new, new);
        } else if value >= self.best[2].1 {
            self.best[2] = new;
        }
        let since = at - self.best[0].0;
        if since > RATE_ROUNDS {
            self.best = [self.best[1], self.best[2], new];
            if at - self.best[0].0 > RATE_ROUNDS {
                self.best = [self.best[1], self.best[2], new];
            }
        } else if self.best[1].0 == self.best[0].0 && since > RATE_ROUNDS / 4 {
            (self.best[1], self.best[2]) = (new, new);
        } else if self.best[2].0 == self.best[1].0 && since > RATE_ROUNDS / 2 {
            self.best[2] = new;
        }
    }
}
