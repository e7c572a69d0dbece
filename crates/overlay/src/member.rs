//! The nodes of an overlay, as a file or a registry names them.

use serde::{Deserialize, Serialize};

/// One node, as others see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Where its leg listener is: `host:port`.
    pub address: String,
    /// The fingerprint of its key, `sha256:` and 64 hexadecimal digits.
    pub fingerprint: String,
    /// Destinations for which it is the exit, as in a route: those that it is near.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// Where it stands, as policies name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Where that is on the earth, for maps: `latitude,longitude` in degrees, such as `35.7,139.7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
    /// What it costs to send through it, in any unit; of paths that are about as good, the cheaper is taken. From 0.
    #[serde(default, skip_serializing_if = "is_free")]
    pub price: f64,
    /// Whether it relays for others' destinations, beyond those that it is near.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub relays: bool,
}

/// A place on the earth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Position {
    /// In degrees, north is positive.
    pub latitude: f64,
    /// In degrees, east is positive.
    pub longitude: f64,
}

impl TryFrom<String> for Position {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let degrees = |text: &str, most: f64| text.trim().parse::<f64>().ok().filter(|degrees| degrees.abs() <= most);
        let both = text.split_once(',').and_then(|(a, b)| Some((degrees(a, 90.0)?, degrees(b, 180.0)?)));
        let (latitude, longitude) = both.ok_or_else(|| {
            format!("'{text}' is no place on the earth: say \"LATITUDE,LONGITUDE\" in degrees, such as \"35.7,139.7\"")
        })?;
        Ok(Self { latitude, longitude })
    }
}

impl From<Position> for String {
    fn from(Position { latitude, longitude }: Position) -> Self {
        format!("{latitude},{longitude}")
    }
}

/// The greatest price. Sums of prices stay exact far beyond it.
pub const PRICE_MOST: f64 = 1e9;

/// # Errors
/// A node cannot have this price.
pub fn check_price(price: f64) -> Result<(), String> {
    match (0.0..=PRICE_MOST).contains(&price) {
        true => Ok(()),
        false => Err(format!("a price is a number from 0 to {PRICE_MOST}")),
    }
}

fn yes() -> bool {
    true
}

fn is_free(price: &f64) -> bool {
    *price == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let member: Member = serde_json::from_str(r#"{"address":"192.0.2.1:7000","fingerprint":"sha256:00"}"#).unwrap();
        assert!(member.relays && member.near.is_empty() && member.price == 0.0);
        let again = serde_json::to_string(&member).unwrap();
        assert_eq!(again, r#"{"address":"192.0.2.1:7000","fingerprint":"sha256:00"}"#);
    }

    #[test]
    fn a_place_is_two_numbers_of_degrees() {
        let read = |text: &str| Position::try_from(text.to_owned());
        assert_eq!(read("35.7, -139.7"), Ok(Position { latitude: 35.7, longitude: -139.7 }));
        assert_eq!(String::from(read("35.7,-139.7").unwrap()), "35.7,-139.7");
        for wrong in ["", "35.7", "91,0", "0,181", "north,east", "NaN,0", "1,2,3"] {
            assert!(read(wrong).unwrap_err().contains("no place on the earth"), "{wrong}");
        }
    }
}
