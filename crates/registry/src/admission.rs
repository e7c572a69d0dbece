//! What the operator says of a node that may belong to the overlay: JSON, without I/O.
//!
//! All that decides where others' streams go is here, and not in the node's own record: a node must not take destinations, regions or
//! prices by its own word.

use ekiden_keys::Fingerprint;
use ekiden_overlay::member::{Member, Position, check_price};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::record::{REQUIRES, TEXT_MOST, brief, is_text, parse_json};

/// The version of admissions that this crate writes and reads.
const FORMAT: u64 = 1;

/// The longest admission, in bytes.
pub const ADMISSION_MOST: usize = 32 << 10;

/// The most destinations that a node can be near to.
const NEAR_MOST: usize = 64;

/// A node's admission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    admission_format: u64,
    /// Of the node's key: `sha256:` and 64 hexadecimal digits.
    pub fingerprint: String,
    /// Destinations for which it is the exit, as [`Member::near`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// Where it stands, as policies name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Where that is on the earth, for maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
    /// What it costs to send through it, as [`Member::price`].
    #[serde(default, skip_serializing_if = "is_free")]
    pub price: f64,
    /// Whether it relays for others' destinations, beyond those that it is near.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub relays: bool,
    /// What a later build has said, and this one does not know. It stays when an operator changes the rest with this build.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// What an operator says of a node anew; what is `None` stays as it was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Terms {
    /// [`Admission::near`].
    pub near: Option<Vec<String>>,
    /// [`Admission::region`].
    pub region: Option<String>,
    /// [`Admission::at`].
    pub at: Option<Position>,
    /// [`Admission::price`].
    pub price: Option<f64>,
    /// [`Admission::relays`].
    pub relays: Option<bool>,
}

impl Admission {
    /// Of a node of which nothing but its key is said.
    pub fn of(fingerprint: Fingerprint) -> Self {
        Self {
            admission_format: FORMAT,
            fingerprint: fingerprint.to_string(),
            near: Vec::new(),
            region: None,
            at: None,
            price: 0.0,
            relays: true,
            more: Map::new(),
        }
    }

    /// The same with what is said anew.
    #[must_use]
    pub fn with(self, terms: Terms) -> Self {
        Self {
            near: terms.near.unwrap_or(self.near),
            region: terms.region.or(self.region),
            at: terms.at.or(self.at),
            price: terms.price.unwrap_or(self.price),
            relays: terms.relays.unwrap_or(self.relays),
            ..self
        }
    }

    /// The member that it makes of a node at this address.
    pub fn member(&self, address: &str) -> Member {
        Member {
            address: address.into(),
            fingerprint: self.fingerprint.clone(),
            near: self.near.clone(),
            region: self.region.clone(),
            at: self.at,
            price: self.price,
            relays: self.relays,
        }
    }

    /// As it is written.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads an admission.
    ///
    /// # Errors
    /// What is wrong with it, without the node's name.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let again =
            "the operator admits it anew with `ekiden overlay admit --replace`, unless a later build has written it";
        let (admission, _): (Self, _) =
            parse_json("its admission", ADMISSION_MOST, ("admission_format", FORMAT), bytes)
                .map_err(|why| format!("{why}: {again}"))?;
        admission.check().map_err(|why| format!("its admission: {why}"))?;
        Ok(admission)
    }

    /// # Errors
    /// What in it cannot be.
    pub fn check(&self) -> Result<(), String> {
        let Self { fingerprint, near, region, price, .. } = self;
        fingerprint.parse::<Fingerprint>().map_err(|error| brief(&error.to_string()))?;
        if near.len() > NEAR_MOST {
            return Err(format!("it is near to {} destinations, more than {NEAR_MOST}", near.len()));
        }
        if let Some(text) = near.iter().chain(region).find(|text| !is_text(text)) {
            return Err(format!("'{}' is no destination or region: 1 to {TEXT_MOST} printable bytes", brief(text)));
        }
        if let Some(required) =
            self.more.get(REQUIRES).filter(|names| names.as_array().is_none_or(|names| !names.is_empty()))
        {
            return Err(format!("{REQUIRES} {}, which this build does not know", brief(&required.to_string())));
        }
        check_price(*price)
    }
}

/// The key of an admission, also of one that cannot be read otherwise.
pub fn fingerprint_of(bytes: &[u8]) -> Option<String> {
    let whole: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    Some(whole.get("fingerprint")?.as_str()?.to_owned())
}

impl From<&Member> for Admission {
    fn from(member: &Member) -> Self {
        let Member { fingerprint, near, region, .. } = member.clone();
        let Member { at, price, relays, .. } = *member;
        Self { admission_format: FORMAT, fingerprint, near, region, at, price, relays, more: Map::new() }
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
    use proptest::prelude::*;

    use super::*;

    fn admission() -> Admission {
        let of = Admission::of(format!("sha256:{}", "0a".repeat(32)).parse().unwrap());
        of.with(Terms { near: Some(vec!["*.example.net".into()]), region: Some("eu".into()), ..Terms::default() })
    }

    fn refusal(change: impl FnOnce(&mut Admission)) -> String {
        let mut changed = admission();
        change(&mut changed);
        Admission::parse(&changed.to_bytes()).unwrap_err()
    }

    #[test]
    fn what_is_not_said_anew_stays() {
        assert_eq!(Admission::parse(&admission().to_bytes()), Ok(admission()));
        let other = admission().with(Terms { price: Some(2.0), relays: Some(false), ..Terms::default() });
        assert_eq!((other.price, other.relays, &other.near), (2.0, false, &admission().near));
        let member = other.member("192.0.2.1:7000");
        assert_eq!((member.address.as_str(), member.region.as_deref()), ("192.0.2.1:7000", Some("eu")));
        assert!(other.with(Terms { near: Some(Vec::new()), ..Terms::default() }).near.is_empty());
    }

    #[test]
    fn what_a_later_build_has_said_stays_when_this_one_changes_the_rest() {
        let text = String::from_utf8(admission().to_bytes()).unwrap();
        let later = text.replacen('{', r#"{"colour":{"of":["sky"]},"#, 1);
        let changed = Admission::parse(later.as_bytes()).unwrap().with(Terms { price: Some(2.0), ..Terms::default() });
        assert_eq!(changed.price, 2.0);
        let written: Map<String, Value> = serde_json::from_slice(&changed.to_bytes()).unwrap();
        assert_eq!(written["colour"], serde_json::json!({ "of": ["sky"] }));
        let required = Admission::parse(text.replacen('{', r#"{"requires":["sealed"],"#, 1).as_bytes()).unwrap_err();
        assert!(required.contains("requires") && required.contains("sealed"), "{required}");
    }

    /// Later builds read what this one writes, as it is here.
    #[test]
    fn an_admission_is_written_as_in_0_1() {
        let terms = Terms {
            at: Some(Position { latitude: 1.0, longitude: 2.0 }),
            price: Some(2.5),
            relays: Some(false),
            ..Terms::default()
        };
        let written = format!(
            r#"{{"admission_format":1,"fingerprint":"sha256:{}","near":["*.example.net"],"region":"eu","at":"1,2","price":2.5,"relays":false}}"#,
            "0a".repeat(32)
        );
        assert_eq!(String::from_utf8(admission().with(terms).to_bytes()).unwrap(), written);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        assert!(refusal(|of| of.fingerprint = "sha256:00".into()).contains("no fingerprint"));
        assert!(refusal(|of| of.near = vec!["a".into(); 65]).contains("65"));
        assert!(refusal(|of| of.region = Some("a\nb".into())).contains("a\\nb"));
        assert!(refusal(|of| of.price = -1.0).contains("price"));
        assert!(refusal(|of| of.admission_format = 2).contains("admission_format 2"));
        assert!(
            refusal(|of| of.more = Map::from_iter([("colour".into(), "a".repeat(ADMISSION_MOST).into())]))
                .contains("bytes")
        );
        let kept = Admission { more: Map::from_iter([("requires".into(), vec!["sealed"].into())]), ..admission() };
        assert!(kept.check().unwrap_err().contains("sealed"), "also where it was read by another way");
        assert_eq!(fingerprint_of(&kept.to_bytes()), Some(admission().fingerprint));
        // As it was before there was more than a key to say.
        let bare = Admission::parse(admission().fingerprint.as_bytes()).unwrap_err();
        assert!(bare.contains("admission_format") && bare.contains("ekiden overlay admit"), "{bare}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused_in_one_short_line(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Err(reason) = Admission::parse(&bytes) {
                prop_assert!(!reason.contains('\n') && reason.len() < 2000);
            }
        }
    }
}
