//! A series of items, kept in bounded memory.

/// Items in the order in which they came. When there are more than fit, every second one is dropped, and from then on only one in `one_of`
/// is kept.
#[derive(Debug)]
pub struct Thinned<T> {
    kept: Vec<T>,
    most: usize,
    one_of: u64,
    count: u64,
}

impl<T> Thinned<T> {
    /// Nothing yet; up to `most` are kept, at least two.
    pub fn new(most: usize) -> Self {
        Self { kept: Vec::new(), most: most.max(2), one_of: 1, count: 0 }
    }

    /// Takes an item.
    pub fn push(&mut self, item: T) {
        self.count += 1;
        if !self.count.is_multiple_of(self.one_of) {
            return;
        }
        self.kept.push(item);
        if self.kept.len() > self.most {
            let mut number = 0_u64;
            // The last of each pair stays: those that come are as far apart.
            self.kept.retain(|_| {
                number += 1;
                number.is_multiple_of(2)
            });
            self.one_of *= 2;
        }
    }

    /// Those that are kept.
    pub fn into_kept(self) -> Vec<T> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_kept_whole_and_of_many_evenly_spaced_ones() {
        let kept = |count: u64| {
            let mut thinned = Thinned::new(7);
            (1..=count).for_each(|item| thinned.push(item));
            thinned.into_kept()
        };
        assert_eq!(kept(7), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(kept(9), [2, 4, 6, 8]);
        let many = kept(100_000);
        assert!((3..=7).contains(&many.len()), "{many:?}");
        let spacing = many[1] - many[0];
        assert!(many.windows(2).all(|pair| pair[1] - pair[0] == spacing), "{many:?}");
    }
}
