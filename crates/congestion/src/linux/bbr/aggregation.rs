//! Acknowledgements that come in trains.

use super::RATE;
use crate::sample::RateSample;

/// Acknowledgements that come in trains: what is beyond the rate, of five to ten round trips, at most that of 100 ms.
const AGGREGATION_ROUNDS: u32 = 5;
const AGGREGATION_MOST_US: u64 = 100_000;
const AGGREGATION_EPOCH_MOST: u64 = 1 << 20;

/// How far acknowledgements run ahead of the rate (`bbr_update_ack_aggregation`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Aggregation {
    epoch_at: u64,
    epoch_acked: u64,
    extra: [u64; 2],
    at: usize,
    rounds: u32,
}

impl Aggregation {
    pub(crate) fn restart(&mut self, now_us: u64) {
        (self.epoch_at, self.epoch_acked) = (now_us, 0);
    }

    pub(crate) fn update(&mut self, sample: &RateSample, begins_round: bool, is_full: bool, rate: u64, window: u32) {
        if sample.delivered_now == 0 || sample.before.is_none() {
            return;
        }
        if begins_round {
            self.rounds = (self.rounds + 1).min(0x1f);
            if self.rounds >= if is_full { AGGREGATION_ROUNDS } else { 1 } {
                self.rounds = 0;
                self.at = 1 - self.at;
                self.extra[self.at] = 0;
            }
        }
        let acked = u64::from(sample.delivered_now);
        let expected = |since| (u128::from(rate) * u128::from(since) / u128::from(RATE)) as u64;
        let mut due = expected(sample.now_us - self.epoch_at.min(sample.now_us));
        if self.epoch_acked <= due || self.epoch_acked + acked >= AGGREGATION_EPOCH_MOST {
            self.restart(sample.now_us);
            due = 0;
        }
        self.epoch_acked = (self.epoch_acked + acked).min(AGGREGATION_EPOCH_MOST - 1);
        let extra = self.epoch_acked.saturating_sub(due).min(window.into());
        self.extra[self.at] = self.extra[self.at].max(extra);
    }

    pub(crate) fn room(&self, is_full: bool, rate: u64) -> u64 {
        let most = (u128::from(rate) * u128::from(AGGREGATION_MOST_US) / u128::from(RATE)) as u64;
        if is_full { self.extra[0].max(self.extra[1]).min(most) } else { 0 }
    }
}
