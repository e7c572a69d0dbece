//! Values at a place in the order of their size. All functions take ascending values, and return `None` if there are none.
//!
//! Definitions differ where a place lies between two values: a caller that has shown figures by one definition goes on with
//! it.

/// The least value that at least `percent` of all do not exceed: the nearest rank. Of an even number, half is the lower of the two
/// in the middle.
pub fn nearest<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The value that `percent` of all come before, or the last. Of an even number, half is the upper of the two in the middle.
pub fn above<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    sorted.get(sorted.len() * percent / 100).or(sorted.last()).copied()
}

/// The value in the middle; of an even number the mean of the two.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let (lower, upper) = (nearest(sorted, 50)?, above(sorted, 50)?);
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{above, median, nearest};

    #[test]
    fn of_an_odd_and_an_even_number() {
        let (odd, even) = ([1.0, 2.0, 9.0], [1.0, 2.0, 4.0, 9.0]);
        assert_eq!([nearest(&odd, 50), above(&odd, 50), median(&odd)], [Some(2.0); 3]);
        assert_eq!([nearest(&even, 50), above(&even, 50), median(&even)], [Some(2.0), Some(4.0), Some(3.0)]);
        assert_eq!([nearest(&[7], 0), nearest(&[7], 100), above(&[7], 0), above(&[7], 100)], [Some(7); 4]);
    }

    #[test]
    fn of_many() {
        let values: Vec<u32> = (1..=200).collect();
        assert_eq!([0, 1, 50, 99, 100].map(|percent| nearest(&values, percent)), [1, 2, 100, 198, 200].map(Some));
        assert_eq!([0, 1, 50, 99, 100].map(|percent| above(&values, percent)), [1, 3, 101, 199, 200].map(Some));
    }

    #[test]
    fn of_nothing() {
        assert_eq!([nearest::<f64>(&[], 50), above(&[], 50), median(&[])], [None; 3]);
    }
}
