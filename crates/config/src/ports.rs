use std::ops::RangeInclusive;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::shape::Shape;

/// A port, or a range such as "6000-6100".
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "neither a port nor a range such as \"6000-6100\", of 1 to 65535")]
pub enum Ports {
    /// As a number.
    One(i64),
    /// As text: a number, or two.
    Range(String),
}

impl Ports {
    /// What is said of ports that are none.
    pub const WRONG: &str = "neither a port nor a range such as \"6000-6100\", of 1 to 65535";

    /// The first and the last port.
    pub fn range(&self) -> Option<RangeInclusive<u16>> {
        let read = |text: &str| text.trim().parse::<u16>().ok();
        let (first, last) = match self {
            Self::One(port) => (u16::try_from(*port).ok()?, u16::try_from(*port).ok()?),
            Self::Range(text) => match text.split_once('-') {
                Some((first, last)) => (read(first)?, read(last)?),
                None => (read(text)?, read(text)?),
            },
        };
        (first > 0 && first <= last).then_some(first..=last)
    }
}

impl Shape for Ports {
    fn shape() -> Value {
        json!({ "oneOf": [{ "type": "integer", "minimum": 1, "maximum": 65535 }, { "type": "string" }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_and_ranges_of_them() {
        let of = |text: &str| Ports::Range(text.into()).range();
        assert_eq!(Ports::One(80).range(), Some(80..=80));
        assert_eq!(of("6000 - 6100"), Some(6000..=6100));
        assert_eq!(of("53"), Some(53..=53));
        for wrong in ["", "-", "0", "0-5", "7-6", "1-65536", "80,443", "a-b"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!((Ports::One(0).range(), Ports::One(-1).range(), Ports::One(65_536).range()), (None, None, None));
    }
}
