//! A number that is known within bounds.

use serde::Serialize;

/// A number that is known within bounds. The unit is that of its name.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The best estimate.
    pub value: f64,
    /// It is hardly less.
    pub low: f64,
    /// It is hardly more.
    pub high: f64,
}

impl Estimate {
    /// A number without doubt.
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// A number between bounds, which are put in order around it.
    pub fn between(low: f64, value: f64, high: f64) -> Self {
        Self { value, low: low.min(value), high: high.max(value) }
    }

    /// Whether there is no doubt.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// With all three multiplied.
    pub fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }
}
