//! The record that a node writes about itself: JSON, without I/O.

use ekiden_keys::Fingerprint;
use ekiden_units::{HostPort, HostText};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of records that this crate writes and reads.
const FORMAT: u64 = 2;

/// The longest record, in bytes.
pub const RECORD_MOST: usize = 4 << 10;

/// The longest address, region or destination, in bytes.
pub const TEXT_MOST: usize = 300;

/// What only the operator says of a node ([`crate::admission::Admission`]): a record that does is refused.
const OPERATORS: [&str; 5] = ["near", "region", "at", "price", "relays"];

/// The part of its capacity that a node uses now: 0 (idle) to 1 (full).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct Load(f64);

/// A node's record: where it is, and its load. Everything else about it comes from the operator
/// ([`crate::admission::Admission`]). Keys that a later build writes and this one does not know are passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    member_format: u64,
    /// A random number of the process that wrote it, in hexadecimal digits.
    pub instance: String,
    /// Where its leg listener is: `host:port`.
    pub address: String,
    /// The fingerprint of its key.
    pub fingerprint: String,
    /// Its load.
    pub load: Load,
}

impl Load {
    /// A share from 0 to 1; values outside count as the nearest of these, and NaN as 0.
    pub fn new(share: f64) -> Self {
        Self(if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) })
    }

    /// From 0 to 1.
    pub fn share(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Load {
    type Error = &'static str;

    fn try_from(share: f64) -> Result<Self, &'static str> {
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err("a load is from 0 to 1") }
    }
}

impl Record {
    /// A record of this version.
    pub fn new(instance: String, address: String, fingerprint: String, load: Load) -> Self {
        Self { member_format: FORMAT, instance, address, fingerprint, load }
    }

    /// As it is written.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a record that another node has written.
    ///
    /// # Errors
    /// What is wrong with it, without the node's name.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (record, keys): (Self, _) = parse_json("its record", RECORD_MOST, ("member_format", FORMAT), bytes)?;
        if let Some(key) = OPERATORS.into_iter().find(|key| keys.contains_key(*key)) {
            return Err(format!("its record has '{key}', which is for the operator to say"));
        }
        record.check()?;
        Ok(record)
    }

    /// # Errors
    /// The part of it that is invalid.
    pub fn check(&self) -> Result<(), String> {
        self.fingerprint.parse::<Fingerprint>().map_err(|error| brief(&error.to_string()))?;
        if !is_address(&self.address) {
            return Err(format!("'{}' is no address of the form host:port", brief(&self.address)));
        }
        if self.instance.len() > 64 || !self.instance.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("its instance is no number in hexadecimal digits".into());
        }
        Ok(())
    }
}

/// The key under which JSON names what its reader must know. This build knows nothing of the kind yet.
pub const REQUIRES: &str = "requires";

/// JSON of at most `most` bytes with this version under this key, and all that it has. `what` names it in errors.
///
/// # Errors
/// What is wrong with it.
pub fn parse_json<T: DeserializeOwned>(
    what: &str,
    most: usize,
    (key, version): (&str, u64),
    bytes: &[u8],
) -> Result<(T, Map<String, Value>), String> {
    if bytes.len() > most {
        return Err(format!("{what} has {} bytes, more than {most}", bytes.len()));
    }
    // A record of another version may have other keys.
    let read = serde_json::from_slice::<Map<String, Value>>(bytes).map_err(|error| brief(&error.to_string()));
    let found = read.and_then(|map| match map.get(key).and_then(Value::as_u64) {
        Some(found) => Ok((map, found)),
        None => Err(format!("it has no {key}")),
    });
    let (map, found) = found.map_err(|why| format!("{what} is no JSON with a {key} ({why})"))?;
    if found != version {
        return Err(format!("{what} has {key} {found}, and this node knows {version}: run the same version on both"));
    }
    if let Some(required) = map.get(REQUIRES).filter(|required| **required != Value::Array(Vec::new())) {
        let required = brief(&required.to_string());
        return Err(format!("{what} requires {required} of its readers, which this build does not know"));
    }
    let read =
        serde_json::from_slice(bytes).map_err(|error| format!("{what} is wrong: {}", brief(&error.to_string())))?;
    Ok((read, map))
}

/// `host:port`. A name is not resolved here, and a zone means nothing to other hosts.
fn is_address(text: &str) -> bool {
    let place = HostPort::as_told(text);
    place.is_ok_and(|place| !matches!(place.host, HostText::Zoned(..))) && text.len() <= TEXT_MOST
}

/// One line that can be shown.
pub fn is_text(text: &str) -> bool {
    (1..=TEXT_MOST).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A text from elsewhere, short and in one line.
pub fn brief(text: &str) -> String {
    let mut short: String = text.chars().take(120).collect::<String>().escape_debug().to_string();
    if text.chars().nth(120).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        Record::new("0f".into(), "192.0.2.1:7000".into(), format!("sha256:{}", "0a".repeat(32)), Load::new(0.25))
    }

    fn refusal(change: impl FnOnce(&mut Record)) -> String {
        let mut changed = record();
        change(&mut changed);
        Record::parse(&changed.to_bytes()).unwrap_err()
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        assert_eq!(Record::parse(&record().to_bytes()), Ok(record()));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        assert!(refusal(|record| record.member_format = 1).contains("member_format 1"));
        assert!(refusal(|record| record.address = "192.0.2.1".into()).contains("host:port"));
        assert!(refusal(|record| record.address = "a b:1".into()).contains("host:port"));
        assert!(refusal(|record| record.address = "h:70000".into()).contains("host:port"));
        assert!(refusal(|record| record.fingerprint = "sha256:00".into()).contains("no fingerprint"));
        assert!(refusal(|record| record.load = Load(2.0)).contains("from 0 to 1"));
        assert!(refusal(|record| record.instance = "x".into()).contains("instance"));
        assert!(Record::parse(&vec![b' '; RECORD_MOST + 1]).unwrap_err().contains("4096"));
        assert!(Record::parse(b"{}").unwrap_err().contains("member_format"));
        assert!(Record::parse(br#"{"member_format":7,"soul":true}"#).unwrap_err().contains("member_format 7"));
        // A node does not say itself what it is near to.
        assert!(with(r#""near":["*"]"#).unwrap_err().contains("'near', which is for the operator"));
    }

    /// What is read of a record that has this too.
    fn with(more: &str) -> Result<Record, String> {
        let text = String::from_utf8(record().to_bytes()).unwrap();
        Record::parse(text.replacen('{', &format!("{{{more},"), 1).as_bytes())
    }

    #[test]
    fn a_later_build_may_say_more_and_may_ask_its_readers_to_know_it() {
        assert_eq!(with(r#""build":"0.2.0","colour":{"of":["sky"]}"#), Ok(record()));
        assert_eq!(with(r#""requires":[]"#), Ok(record()));
        let refused = with(r#""requires":["sealed"]"#).unwrap_err();
        assert!(refused.contains("requires") && refused.contains("sealed"), "{refused}");
    }

    /// Later builds read what this one writes, as it is here.
    #[test]
    fn a_record_is_written_as_in_0_1() {
        let written = format!(
            r#"{{"member_format":2,"instance":"0f","address":"192.0.2.1:7000","fingerprint":"sha256:{}","load":0.25}}"#,
            "0a".repeat(32)
        );
        assert_eq!(String::from_utf8(record().to_bytes()).unwrap(), written);
    }

    #[test]
    fn addresses_are_host_and_port() {
        for good in ["h:1", "[2001:db8::1]:7000", "a.example.net:65535"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["h:0", "h:", ":1", "[::1:7000", "::1:7000", "h:+1", "[h]:1"] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused_in_one_short_line(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Err(reason) = Record::parse(&bytes) {
                prop_assert!(!reason.contains('\n') && reason.len() < 2000);
            }
        }

        #[test]
        fn a_changed_record_is_whole_or_refused(at in 0usize..400, byte in any::<u8>()) {
            let mut bytes = record().to_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(read) = Record::parse(&bytes) {
                prop_assert!(read.check().is_ok());
                prop_assert_eq!(Record::parse(&read.to_bytes()), Ok(read));
            }
        }

        #[test]
        fn loads_stay_in_their_range(share in any::<f64>()) {
            prop_assert!((0.0..=1.0).contains(&Load::new(share).share()));
        }
    }
}
