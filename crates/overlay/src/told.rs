//! What a node tells the others of its legs: one small record, in JSON.

use std::collections::BTreeMap;

use ekiden_units::{BitRate, Time};
use serde::{Deserialize, Serialize};

use crate::leg::Holds;

/// The version of the record.
pub const TOLD_FORMAT: u32 = 1;
/// The longest record that is read, in bytes.
pub const BYTES_MOST: usize = 64 << 10;
/// The most legs in one.
pub const LEGS_MOST: usize = 256;
/// What is said beyond this is no leg of TCP's.
const RTT_MOST_US: u64 = 60_000_000;
const RATE_MOST: u64 = 1_000_000_000_000;

/// A node's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// [`TOLD_FORMAT`].
    pub told_format: u32,
    /// The node that tells.
    pub node: String,
    /// How much of what it may relay it relays: 0 to 1.
    pub load: f64,
    /// Its legs by the node at the other end, in the direction in which it sends.
    pub legs: BTreeMap<String, ToldLeg>,
}

/// A leg as another node tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ToldLeg {
    /// The round trip in microseconds.
    pub rtt_us: u64,
    /// What a stream gets, in bit/s; not there if none was limited by the leg.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_s: Option<u64>,
    /// The most that a stream has carried, in bit/s.
    #[serde(default)]
    pub carried_bit_s: u64,
    /// The part of the segments that is sent again, 0 to 1.
    pub loss: f64,
    /// How old that is, in seconds.
    pub age_s: u64,
    /// It has failed, and nothing has succeeded on it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The round trip was seen so briefly that it may be shorter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brief: bool,
}

/// Why a record is not taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ToldError {
    /// Another build's.
    #[error("its record has format {0}, and this node reads {TOLD_FORMAT}: update the older of the two")]
    Format(u64),
    /// No record.
    #[error("its record cannot be read: {0}")]
    Unreadable(String),
    /// It cannot be.
    #[error("its record cannot be: {0}")]
    Absurd(String),
}

impl Told {
    /// Reads a record that `node` has written.
    ///
    /// # Errors
    /// [`ToldError`].
    pub fn read(bytes: &[u8], node: &str) -> Result<Self, ToldError> {
        let absurd = |why: String| Err(ToldError::Absurd(why));
        if bytes.len() > BYTES_MOST {
            return absurd(format!("{} bytes are more than {BYTES_MOST}", bytes.len()));
        }
        let unreadable = |error: serde_json::Error| ToldError::Unreadable(error.to_string());
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(unreadable)?;
        match value.get("told_format").and_then(serde_json::Value::as_u64) {
            Some(format) if format != u64::from(TOLD_FORMAT) => return Err(ToldError::Format(format)),
            _ => {}
        }
        let told: Self = serde_json::from_value(value).map_err(unreadable)?;
        if told.node != node {
            return absurd(format!("it says that it is {:?}", told.node));
        }
        if told.legs.len() > LEGS_MOST {
            return absurd(format!("{} legs are more than {LEGS_MOST}", told.legs.len()));
        }
        let is_part = |part: f64| (0.0..=1.0).contains(&part);
        if !is_part(told.load) {
            return absurd(format!("a load of {}", told.load));
        }
        let wrong = told.legs.iter().find(|(_, leg)| {
            let rate = leg.rate_bit_s.unwrap_or(1);
            !(1..=RTT_MOST_US).contains(&leg.rtt_us)
                || !(1..=RATE_MOST).contains(&rate)
                || leg.carried_bit_s > RATE_MOST
                || !is_part(leg.loss)
        });
        match wrong {
            Some((to, leg)) => absurd(format!("a leg to {to:?} with {leg:?}")),
            None => Ok(told),
        }
    }
}

impl ToldLeg {
    /// What is known of a leg, as it is told.
    pub fn new(holds: Holds, failed: bool) -> Self {
        Self {
            rtt_us: (holds.rtt.0 / 1_000).clamp(1, RTT_MOST_US),
            rate_bit_s: holds.rate.map(|rate| rate.0.min(RATE_MOST)),
            carried_bit_s: holds.carried.0.min(RATE_MOST),
            loss: holds.loss,
            age_s: holds.age.0 / 1_000_000_000,
            failed,
            brief: holds.is_brief,
        }
    }

    /// The same as what holds, `since` it was told.
    pub fn holds(&self, since: Time) -> Holds {
        let age = Time(self.age_s.saturating_mul(1_000_000_000));
        Holds {
            rtt: Time(self.rtt_us.saturating_mul(1_000)),
            rate: self.rate_bit_s.map(BitRate),
            carried: BitRate(self.carried_bit_s),
            loss: self.loss,
            age: Time(age.0.saturating_add(since.0)),
            is_brief: self.brief,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told() -> Told {
        let leg = ToldLeg {
            rtt_us: 80_000,
            rate_bit_s: Some(10_000_000),
            carried_bit_s: 0,
            loss: 0.01,
            age_s: 3,
            failed: false,
            brief: false,
        };
        Told { told_format: 1, node: "tokyo".into(), load: 0.5, legs: [("paris".into(), leg)].into() }
    }

    fn read(told: &Told) -> Result<Told, ToldError> {
        Told::read(&serde_json::to_vec(told).unwrap(), "tokyo")
    }

    #[test]
    fn a_record_is_read_as_it_was_told() {
        assert_eq!(read(&told()), Ok(told()));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        let with = |change: fn(&mut Told)| {
            let mut changed = told();
            change(&mut changed);
            read(&changed).unwrap_err().to_string()
        };
        assert!(with(|told| told.told_format = 7).contains("format 7"));
        assert!(with(|told| told.node = "osaka".into()).contains("\"osaka\""));
        assert!(with(|told| told.load = 3.0).contains("a load of 3"));
        assert!(with(|told| told.legs.get_mut("paris").unwrap().rtt_us = 0).contains("paris"));
        assert!(with(|told| told.legs.get_mut("paris").unwrap().rate_bit_s = Some(u64::MAX)).contains("paris"));
        assert!(with(|told| told.legs.get_mut("paris").unwrap().loss = -1.0).contains("paris"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Told::read(&bytes, "tokyo");
        }

        #[test]
        fn any_numbers_are_told_within_what_is_read(rtt: u64, rate: u64, carried: u64, loss in 0.0..=1.0_f64, age: u64) {
            let holds = Holds { rtt: Time(rtt), rate: Some(BitRate(rate.max(1))), carried: BitRate(carried), loss, age: Time(age), is_brief: false };
            let legs = [("paris".into(), ToldLeg::new(holds, false))].into();
            let again = read(&Told { legs, ..told() });
            prop_assert!(again.is_ok(), "{:?}", again);
        }
    }
}
