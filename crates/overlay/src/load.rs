//! The part of its relaying capacity that a node uses, as it tells the others.

use ekiden_units::Time;

/// The time constant of the mean that is told as the load: if the load jumped, streams would come and go all together.
const OVER: Time = Time::secs(20);

/// A node's own load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    mean: f64,
    at: Time,
}

impl Load {
    /// The load since the look before, as a part of the maximum.
    pub fn see(&mut self, part: f64, now: Time) {
        let keeps = (-now.since(self.at).as_secs() / OVER.as_secs()).exp();
        let part = if part.is_finite() { part.max(0.0) } else { 0.0 };
        (self.mean, self.at) = (self.mean * keeps + part * (1.0 - keeps), now);
    }

    /// Its mean, 0 to 1.
    pub fn mean(&self) -> f64 {
        self.mean.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_follows_slowly_however_often_it_is_looked_at() {
        let after = |step: u64, seconds: u64| {
            let mut load = Load::default();
            (step..=seconds).step_by(step as usize).for_each(|second| load.see(1.0, Time::secs(second)));
            load.mean()
        };
        assert!((after(1, 20) - after(5, 20)).abs() < 1e-9);
        assert!(after(1, 1) < 0.05 && (0.62..0.64).contains(&after(1, 20)) && after(1, 120) > 0.99);
        let mut load = Load::default();
        load.see(f64::NAN, Time::secs(5));
        load.see(7.0, Time::secs(500));
        assert_eq!(load.mean(), 1.0);
    }
}
