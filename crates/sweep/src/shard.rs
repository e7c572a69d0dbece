//! A part of a sweep's runs, so that several machines can share it.

use std::fmt::{self, Display};
use std::str::FromStr;

/// One of several equal parts of a list, counted from 1. Shown as `2/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    /// Every `of`-th of `all`, beginning with number `number`, in their order. The shards of a list partition it, and their
    /// lengths differ by one at most.
    pub fn part<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.number as usize - 1).step_by(self.of as usize).collect()
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').map(|(number, of)| (number.parse(), of.parse()));
        match numbers {
            Some((Ok(0), Ok(_))) => Err("shards are counted from 1".into()),
            Some((Ok(_), Ok(0))) => Err("there must be 1 shard at least".into()),
            Some((Ok(number), Ok(of))) if number > of => Err(format!("of {of} shards there is no number {number}")),
            Some((Ok(number), Ok(of))) => Ok(Self { number, of }),
            _ => Err("it is a number and how many there are, such as 2/8".into()),
        }
    }
}

impl Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::Shard;

    #[test]
    fn shards_of_a_list_are_its_parts() {
        for length in 0..20 {
            let all: Vec<u32> = (0..length).collect();
            for of in 1..25 {
                let shards: Vec<_> = (1..=of).map(|number| Shard { number, of }.part(all.clone())).collect();
                let mut together = shards.concat();
                together.sort_unstable();
                assert_eq!(together, all);
                assert!(shards.iter().all(|shard| shard.len().abs_diff((length / of) as usize) <= 1));
                assert!(shards.iter().all(|shard| shard.is_sorted()));
            }
        }
    }

    #[test]
    fn what_is_no_shard_is_refused_with_the_reason() {
        for (text, reason) in [
            ("0/3", "counted from 1"),
            ("4/3", "of 3 shards there is no number 4"),
            ("1/0", "1 shard at least"),
            ("0/0", "counted from 1"),
            ("a/b", "such as 2/8"),
            ("2", "such as 2/8"),
            ("1/2/3", "such as 2/8"),
            ("-1/3", "such as 2/8"),
            ("1/99999999999", "such as 2/8"),
        ] {
            let error = text.parse::<Shard>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert_eq!("3/3".parse::<Shard>().unwrap().to_string(), "3/3");
    }
}
