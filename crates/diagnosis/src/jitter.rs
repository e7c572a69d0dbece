//! How late a sampler's samples were, in bounded memory.

use serde::{Deserialize, Serialize};

/// Steps of the histogram for each doubling of the lateness: a quantile is at most a sixteenth too large.
const STEPS: u32 = 16;

/// Counts how late samples were.
#[derive(Debug, Clone, Default)]
pub struct Jitter {
    /// By step; as long as the latest sample needs.
    counts: Vec<u64>,
    samples: u64,
    missed: u64,
    max_us: u64,
}

/// How late samples were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Samples taken.
    pub samples: u64,
    /// Samples left out, because the time of the next one had come.
    pub missed: u64,
    /// Median, in microseconds.
    pub p50_us: u64,
    /// 99th percentile, in microseconds.
    pub p99_us: u64,
    /// Largest, in microseconds.
    pub max_us: u64,
}

impl Jitter {
    /// Counts a sample that was taken `late_us` microseconds after its time.
    pub fn add(&mut self, late_us: u64) {
        let step = step(late_us);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.samples += 1;
        self.max_us = self.max_us.max(late_us);
    }

    /// Counts samples that were left out.
    pub fn miss(&mut self, samples: u64) {
        self.missed += samples;
    }

    /// What has been counted; `None` without a sample.
    pub fn lateness(&self) -> Option<Lateness> {
        (self.samples > 0).then(|| Lateness {
            samples: self.samples,
            missed: self.missed,
            p50_us: self.percentile_us(50),
            p99_us: self.percentile_us(99),
            max_us: self.max_us,
        })
    }

    fn percentile_us(&self, percent: u64) -> u64 {
        let wanted = (self.samples * percent).div_ceil(100);
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        last_of(step.unwrap_or_default()).min(self.max_us)
    }
}

/// The step of a time: one for each microsecond up to [`STEPS`], and from there on [`STEPS`] for each doubling.
fn step(us: u64) -> usize {
    let doublings = us.checked_ilog2().unwrap_or_default().saturating_sub(STEPS.ilog2());
    (u64::from(doublings * STEPS) + (us >> doublings)) as usize
}

/// The largest time in a step.
fn last_of(step: usize) -> u64 {
    let (step, steps) = (step as u64, u64::from(STEPS));
    let doublings = (step / steps).saturating_sub(1);
    let first = (step - doublings * steps) << doublings;
    first + (1 << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_ascend_and_are_narrow() {
        let mut before = 0;
        for us in (0..5_000).chain((13..63).map(|power| 1 << power)) {
            let step = step(us);
            assert!(step >= before, "{us}");
            assert!(last_of(step) >= us && last_of(step) - us <= us / 16, "{us}: {}", last_of(step));
            before = step;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let mut jitter = Jitter::default();
        assert_eq!(jitter.lateness(), None);
        (1..=98).for_each(|_| jitter.add(10));
        jitter.add(1_000);
        jitter.add(70_000);
        jitter.miss(3);
        let lateness = jitter.lateness().unwrap();
        assert_eq!((lateness.samples, lateness.missed, lateness.p50_us, lateness.max_us), (100, 3, 10, 70_000));
        assert!((1_000..1_063).contains(&lateness.p99_us), "{}", lateness.p99_us);
    }
}
