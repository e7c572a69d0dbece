//! The one parser behind every quantity: a decimal number followed by a unit from a table.

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not one decimal number and something behind it.
    #[error("'{text}' is not a number with a unit, such as {example}")]
    NoNumber {
        /// What was given.
        text: String,
        /// A text that would have been accepted.
        example: &'static str,
    },
    /// The unit is missing or not one of this quantity's.
    #[error("'{text}' needs one of the units {units}, such as {example}")]
    Unit {
        /// What was given.
        text: String,
        /// The accepted units, separated by commas.
        units: String,
        /// A text that would have been accepted.
        example: &'static str,
    },
    /// The value does not fit, or is finer than the quantity's resolution.
    #[error("'{text}' is out of range: {range}")]
    Range {
        /// What was given.
        text: String,
        /// The accepted range.
        range: &'static str,
    },
}

/// How one quantity is written: units as (name, size in base units), an example and the range.
pub(crate) struct Notation {
    pub units: &'static [(&'static str, u64)],
    pub example: &'static str,
    pub range: &'static str,
}

impl Notation {
    /// Parses `text` into base units. Fractions are accepted as long as they are a whole number of
    /// base units (`12.5ms` is 12,500,000 ns; `0.3B` is refused).
    pub fn parse(&self, text: &str) -> Result<u64, ParseError> {
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let number: String = number.chars().filter(|&c| c != '_').collect();
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
            return Err(ParseError::NoNumber { text: text.into(), example: self.example });
        }
        let unit = unit.trim();
        // Another way to write numbers: 1,5 or 1e9, or several at once.
        if unit.contains(|c: char| c.is_ascii_digit() || c == ',') {
            return Err(ParseError::NoNumber { text: text.into(), example: self.example });
        }
        let Some(&(_, size)) = self.units.iter().find(|(name, _)| *name == unit) else {
            let mut units: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
            // Of those that look alike, the one that every keyboard has.
            units.retain(|name| !name.is_empty() && name.is_ascii());
            return Err(ParseError::Unit { text: text.into(), units: units.join(", "), example: self.example });
        };
        exact(whole, fraction, size).ok_or(ParseError::Range { text: text.into(), range: self.range })
    }
}

/// `whole.fraction × size` if it is a whole number that fits.
fn exact(whole: &str, fraction: &str, size: u64) -> Option<u64> {
    let fraction = fraction.trim_end_matches('0');
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits.checked_mul(u128::from(size))?;
    if scaled % scale != 0 {
        return None;
    }
    u64::try_from(scaled / scale).ok()
}
