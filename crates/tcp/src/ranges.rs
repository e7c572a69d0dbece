//! A set of stream positions, kept as ranges that neither touch nor overlap.

use std::collections::BTreeMap;

/// Positions as half-open ranges. All operations take logarithmic time in the number of ranges, or constant time for each
/// range that they take away.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range, joined with what it touches. Returns the range that it is now part of.
    pub fn insert(&mut self, start: u64, end: u64) -> (u64, u64) {
        let (mut from, mut to) = (start, end);
        while let Some((&near_start, &near_end)) = self.ranges.range(..=to).next_back() {
            if near_end < from {
                break;
            }
            self.ranges.remove(&near_start);
            from = from.min(near_start);
            to = to.max(near_end);
        }
        self.ranges.insert(from, to);
        (from, to)
    }

    /// The range that holds a position.
    pub fn around(&self, position: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.ranges.range(..=position).next_back()?;
        (position < end).then_some((start, end))
    }

    /// Whether the whole of a range is in the set.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.around(start).is_some_and(|(_, covered)| end <= covered)
    }

    /// Takes away everything before a position.
    pub fn remove_before(&mut self, position: u64) {
        while let Some(mut first) = self.ranges.first_entry() {
            if *first.key() >= position {
                return;
            }
            let end = *first.get_mut();
            first.remove();
            if end > position {
                self.ranges.insert(position, end);
            }
        }
    }

    /// The ranges from the last to the first.
    pub fn backwards(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().rev().map(|(&start, &end)| (start, end))
    }

    /// Where the last range ends.
    pub fn end(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, &end)| end)
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Ranges;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_the_set_of_their_positions(
            steps in prop::collection::vec((0u64..200, 1u64..30, prop::bool::weighted(0.1)), 1..60)
        ) {
            let (mut ranges, mut positions) = (Ranges::default(), BTreeSet::new());
            for (start, length, removes) in steps {
                if removes {
                    ranges.remove_before(start);
                    positions.retain(|position| *position >= start);
                } else {
                    let (from, to) = ranges.insert(start, start + length);
                    positions.extend(start..start + length);
                    prop_assert!(from <= start && start + length <= to);
                }
                for position in 0..240 {
                    prop_assert_eq!(ranges.around(position).is_some(), positions.contains(&position));
                }
                let listed: Vec<_> = ranges.backwards().collect();
                prop_assert!(listed.windows(2).all(|pair| pair[1].1 < pair[0].0), "they touch: {:?}", listed);
                prop_assert_eq!(ranges.end(), listed.first().map(|range| range.1));
                prop_assert_eq!(ranges.covers(start, start + length), (start..start + length).all(|p| positions.contains(&p)));
            }
        }
    }
}
