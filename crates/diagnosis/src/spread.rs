//! The least, the median and the greatest of some numbers.

use ekiden_units::quantile;
use serde::{Deserialize, Serialize};

/// The least, the median and the greatest of some numbers, in their unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub min: u64,
    pub median: u64,
    pub max: u64,
}

impl Spread {
    /// Of these numbers in any order, of an even count the lower of the two in the middle; `None` without any.
    pub fn of(mut numbers: Vec<u64>) -> Option<Self> {
        numbers.sort_unstable();
        let median = quantile::nearest(&numbers, 50)?;
        Some(Self { min: *numbers.first()?, median, max: *numbers.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_numbers_in_any_order() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![7]), Some(Spread { min: 7, median: 7, max: 7 }));
        assert_eq!(Spread::of(vec![9, 1, 5, 2]), Some(Spread { min: 1, median: 2, max: 9 }));
    }
}
