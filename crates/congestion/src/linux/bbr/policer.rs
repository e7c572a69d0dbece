//! Detection of policers: losses that repeat at one rate.

use super::{RATE, UNIT, paced};
use crate::sample::RateSample;

/// A policer: losses of a fifth (50 / 256) in intervals of four round trips or more, twice at about one rate.
/// `LONG_TERM_HOLDS_ROUNDS` is the number of round trips for which it holds.
const LONG_TERM_ROUNDS: u32 = 4;
const LONG_TERM_LOSS: u64 = 50;
const LONG_TERM_HOLDS_ROUNDS: u32 = 48;
/// The difference in bytes per second up to which two such rates count as equal; an eighth (32 / 256) is allowed as well.
const LONG_TERM_DIFFERENCE: u64 = 4000 / 8;

/// The rate of a policer, which shows when losses occur in a full pipe (`bbr_lt_bw_sampling`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LongTerm {
    pub(super) is_used: bool,
    is_sampling: bool,
    rounds: u32,
    pub(super) rate: u64,
    /// Where the interval began: time, delivered, lost.
    from: (u64, u64, u64),
}

impl LongTerm {
    fn begin(&mut self, sample: &RateSample) {
        // The kernel counts milliseconds here.
        self.from = (sample.now_us / 1000, sample.delivered, sample.lost);
        self.rounds = 0;
    }

    fn reset(&mut self, sample: &RateSample) {
        (self.rate, self.is_used, self.is_sampling) = (0, false, false);
        self.begin(sample);
    }

    /// Returns whether a rate has held long enough that other rates are to be tried.
    pub(super) fn sample(&mut self, sample: &RateSample, begins_round: bool, is_probing: bool, mss: u64) -> bool {
        if self.is_used {
            self.rounds += u32::from(is_probing && begins_round);
            if is_probing && self.rounds >= LONG_TERM_HOLDS_ROUNDS {
                self.reset(sample);
                return true;
            }
            return false;
        }
        if !self.is_sampling {
            if sample.lost_now == 0 {
                return false;
            }
            self.begin(sample);
            self.is_sampling = true;
        }
        if sample.before.is_some_and(|before| before.is_app_limited) {
            self.reset(sample);
            return false;
        }
        self.rounds += u32::from(begins_round);
        if self.rounds > 4 * LONG_TERM_ROUNDS {
            self.reset(sample);
            return false;
        }
        if self.rounds < LONG_TERM_ROUNDS || sample.lost_now == 0 {
            return false;
        }
        let (lost, delivered) = (sample.lost - self.from.2, sample.delivered - self.from.1);
        let took = sample.now_us / 1000 - self.from.0;
        if delivered == 0 || lost * UNIT < LONG_TERM_LOSS * delivered || took == 0 {
            return false;
        }
        let rate = delivered * RATE / (took * 1000);
        if self.rate > 0 {
            let differs = rate.abs_diff(self.rate);
            let bytes_s = (u128::from(paced(differs, UNIT)) * u128::from(mss) * 1_000_000 / u128::from(RATE)) as u64;
            if differs * UNIT <= 32 * self.rate || bytes_s <= LONG_TERM_DIFFERENCE {
                (self.rate, self.is_used, self.rounds) = ((rate + self.rate) / 2, true, 0);
                return false;
            }
        }
        self.rate = rate;
        self.begin(sample);
        false
    }
}
