//! A set of stream positions, kept as ranges that neither touch nor overlap.

use std::collections::VecDeque;

/// Positions as half-open ranges. A look-up takes logarithmic time. Adding or removing a range moves the ranges between it and
/// the nearer end; that is cheap, because gaps appear at one end of the outstanding data and are mostly filled near the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

impl Ranges {
    /// Adds a range, joined with what it touches. Returns the range that it is now part of.
    pub fn insert(&mut self, start: u64, end: u64) -> (u64, u64) {
        let at = self.first_that(|known| known.1 >= start);
        let (mut from, mut to) = (start, end);
        let mut touched = 0;
        while let Some(near) = self.ranges.get(at + touched).filter(|near| near.0 <= end) {
            (from, to) = (from.min(near.0), to.max(near.1));
            touched += 1;
        }
        match touched {
            0 => self.ranges.insert(at, (from, to)),
            _ => {
                self.ranges[at] = (from, to);
                self.ranges.drain(at + 1..at + touched);
            }
        }
        (from, to)
    }

    /// The index of the first range from which on all ranges satisfy the predicate.
    fn first_that(&self, satisfies: impl Fn(&(u64, u64)) -> bool) -> usize {
        // A new position is mostly in the last range or behind it.
        let at_end = self.ranges.iter().rev().take(2).take_while(|known| satisfies(known)).count();
        match at_end {
            0 | 1 => self.ranges.len() - at_end,
            _ => self.ranges.partition_point(|known| !satisfies(known)),
        }
    }

    /// The range that holds a position.
    pub fn around(&self, position: u64) -> Option<(u64, u64)> {
        let known = *self.ranges.get(self.first_that(|known| known.1 > position))?;
        (known.0 <= position).then_some(known)
    }

    /// Whether a range touches or overlaps one that is there, so that adding it makes no more of them.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        self.ranges.get(self.first_that(|known| known.1 >= start)).is_some_and(|near| near.0 <= end)
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the whole of a range is in the set.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.around(start).is_some_and(|(_, covered)| end <= covered)
    }

    /// Takes away everything before a position.
    pub fn remove_before(&mut self, position: u64) {
        while let Some(first) = self.ranges.front_mut().filter(|first| first.0 < position) {
            if first.1 > position {
                first.0 = position;
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// The ranges from the last to the first.
    pub fn backwards(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().rev().copied()
    }

    /// Where the last range ends.
    pub fn end(&self) -> Option<u64> {
        self.ranges.back().map(|last| last.1)
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
                let expected = ranges.len() + usize::from(!ranges.touches(start, start + length));
                if removes {
                    ranges.remove_before(start);
                    positions.retain(|position| *position >= start);
                } else {
                    let (from, to) = ranges.insert(start, start + length);
                    positions.extend(start..start + length);
                    prop_assert!(from <= start && start + length <= to);
                    prop_assert!(ranges.len() <= expected);
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
