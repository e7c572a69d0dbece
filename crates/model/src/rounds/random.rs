//! Chance that a seed decides.

use ekiden_units::random;

/// A sequence of draws.
pub struct Random(random::Random);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(random::Random::new(seed))
    }

    /// From 0 to 1, without 0.
    pub fn part(&mut self) -> f64 {
        ((self.0.draw() >> 11) as f64 + 1.0) / 9_007_199_254_740_993.0
    }

    /// Segments up to and with the next that is lost, if a part of `loss` is.
    pub fn until(&mut self, loss: f64) -> f64 {
        if loss <= 0.0 {
            return f64::INFINITY;
        }
        (self.part().ln() / (1.0 - loss.min(0.999)).ln()).ceil().max(1.0)
    }
}
