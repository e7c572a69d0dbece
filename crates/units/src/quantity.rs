//! The four quantities. Each is a number of base units in a newtype.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use crate::parse::{Notation, ParseError};

/// An amount of data in bytes. Written `1500B`, `64KiB`, `100KB`, `1.5MiB`, `2GB`; 0 to 2⁶⁴ − 1 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A data rate in bits per second. Written `64kbit/s`, `70Mbit/s`, `2.5Gbit/s`; 1 bit/s to 2⁶⁴ − 1 bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// A span of time in nanoseconds. Written `0`, `200us`, `12.5ms`, `20s`, `5min`, `1h`; up to 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// A part of a whole, such as a loss rate, in parts per billion. Written `0`, `0.1%`, `50ppm`; 0 to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fraction(pub u64);

const BYTES: Notation = Notation {
    units: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ],
    example: "64KiB",
    range: "a whole number of bytes below 2^64",
};

const BIT_RATE: Notation = Notation {
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
    ],
    example: "70Mbit/s",
    range: "at least 1 bit/s and a whole number of bits per second below 2^64",
};

const TIME: Notation = Notation {
    units: &[
        ("ns", 1),
        ("us", 1_000),
        // The micro sign and the Greek letter, which look alike.
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    example: "12.5ms",
    range: "a whole number of nanoseconds below 2^64",
};

const FRACTION: Notation = Notation {
    units: &[("%", 10_000_000), ("ppm", 1_000)],
    example: "0.1%",
    range: "0 to 100 %, in steps of one part per billion",
};

impl Bytes {
    /// The amount rounded for people: three digits and the unit that fits. It does not parse back.
    pub fn rounded(self) -> String {
        let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
        let (mut value, mut unit) = (self.0 as f64, 0);
        while value >= 999.5 && unit + 1 < units.len() {
            (value, unit) = (value / 1000.0, unit + 1);
        }
        let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
        format!("{value:.digits$} {}", units[unit])
    }

    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// How many bytes flow at `rate` in `time`: the bandwidth-delay product when `time` is an RTT.
    /// Rounded down, saturating.
    pub fn at(rate: BitRate, time: Time) -> Self {
        let bits = u128::from(rate.0) * u128::from(time.0) / 1_000_000_000;
        Self(u64::try_from(bits / 8).unwrap_or(u64::MAX))
    }
}

impl BitRate {
    /// `n` Mbit/s.
    pub const fn mbit(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// The mean rate of `bytes` in `time`. `None` for an empty span.
    pub fn of(bytes: Bytes, time: Time) -> Option<Self> {
        if time.0 == 0 {
            return None;
        }
        let rate = u128::from(bytes.0) * 8 * 1_000_000_000 / u128::from(time.0);
        Some(Self(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// How long `bytes` take at this rate, rounded up to a nanosecond, saturating.
    pub fn time_for(self, bytes: Bytes) -> Time {
        let ns = (u128::from(bytes.0) * 8 * 1_000_000_000).div_ceil(u128::from(self.0.max(1)));
        Time(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// In Mbit/s, for tables and plots.
    pub fn as_mbit(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Time {
    /// `n` milliseconds.
    pub const fn ms(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// The time that has passed since `earlier`; 0 if that is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// In milliseconds, for tables and plots.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In seconds, for tables and plots.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Fraction {
    /// The whole.
    pub const ONE: Self = Self(1_000_000_000);

    /// Between 0 and 1.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Time {
    type Output = Self;

    /// Saturates after 584 years.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Duration> for Time {
    /// Saturates after 584 years.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        Self::from_nanos(time.0)
    }
}

impl FromStr for Bytes {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        BYTES.parse(text).map(Self)
    }
}

impl FromStr for BitRate {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match BIT_RATE.parse(text)? {
            0 => Err(ParseError::Range { text: text.into(), range: BIT_RATE.range }),
            rate => Ok(Self(rate)),
        }
    }
}

impl FromStr for Time {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.trim() == "0" {
            return Ok(Self(0));
        }
        TIME.parse(text).map(Self)
    }
}

impl FromStr for Fraction {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.trim() == "0" {
            return Ok(Self(0));
        }
        match FRACTION.parse(text)? {
            parts if parts > Self::ONE.0 => Err(ParseError::Range { text: text.into(), range: FRACTION.range }),
            parts => Ok(Self(parts)),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0 && self.0.is_multiple_of(1 << 10) {
            return largest(f, self.0, &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]);
        }
        let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB"), (1, "B")];
        largest(f, self.0, &units)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000_000, "Tbit/s"),
            (1_000_000_000, "Gbit/s"),
            (1_000_000, "Mbit/s"),
            (1_000, "kbit/s"),
            (1, "bit/s"),
        ];
        largest(f, self.0, &units)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("0s");
        }
        largest(f, self.0, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        largest(f, self.0, &[(10_000_000, "%")])
    }
}

/// Writes `value` exactly, as a decimal in the largest unit that is not larger than it. With powers
/// of 1024 only whole multiples are exact decimals of few digits, so the fraction is kept to nine
/// digits by falling back to a smaller unit.
fn largest(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let last = units.len() - 1;
    for (i, &(size, unit)) in units.iter().enumerate() {
        if i < last && (value < size || decimals(value % size, size).is_none()) {
            continue;
        }
        let fraction = decimals(value % size, size).unwrap_or_default();
        let dot = if fraction.is_empty() { "" } else { "." };
        return f.pad(&format!("{}{dot}{fraction}{unit}", value / size));
    }
    Ok(())
}

/// The exact decimal digits of `rest / size`, if nine suffice.
fn decimals(mut rest: u64, size: u64) -> Option<String> {
    let mut digits = String::new();
    let mut wide = u128::from(rest);
    while rest != 0 {
        if digits.len() == 9 {
            return None;
        }
        wide *= 10;
        digits.push(char::from(b'0' + (wide / u128::from(size)) as u8));
        wide %= u128::from(size);
        rest = wide as u64;
    }
    Some(digits)
}

/// Parses a quantity from a text, and describes the expected form if the text is something else.
struct FromText<Quantity> {
    example: &'static str,
    /// What a number without a unit may be meant in.
    units: &'static [&'static str],
    of: PhantomData<Quantity>,
}

impl<Quantity> FromText<Quantity> {
    fn refused<E: serde::de::Error>(&self, number: &impl fmt::Display) -> E {
        let meant: Vec<String> = self.units.iter().map(|unit| format!("\"{number}{unit}\"")).collect();
        E::custom(format_args!("{number} has no unit: it must be a text in quotes, such as {}", meant.join(" or ")))
    }
}

impl<Quantity: FromStr<Err = ParseError>> serde::de::Visitor<'_> for FromText<Quantity> {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text in quotes, such as \"{}\"", self.example)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
        match number {
            0 => self.visit_str("0"),
            _ => Err(self.refused(&number)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
        match number {
            0 => self.visit_str("0"),
            _ => Err(self.refused(&number)),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
        Err(self.refused(&number))
    }
}

macro_rules! serde_as_text {
    ($($quantity:ty: $example:literal, $units:expr);*) => {$(
        impl serde::Serialize for $quantity {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $quantity {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(FromText { example: $example, units: &$units, of: PhantomData })
            }
        }
    )*};
}
serde_as_text!(
    Bytes: "64KiB", ["KiB"];
    BitRate: "70Mbit/s", ["bit/s", "Mbit/s"];
    Time: "12.5ms", ["ms", "s"];
    Fraction: "0.1%", ["%"]
);
