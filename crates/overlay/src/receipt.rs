//! What an entry asks the exit about its streams, and what the exit answers: docs/design/protocol.md §8.
//!
//! A node in between ends the leg's TLS, so it can say OPENED, acknowledge and stay silent on its own account. Only the exit
//! can tell whether a silence is that node's, the destination's or the client's. So the entry asks the exit, on a connection
//! between these two.

use std::fmt::Display;

use ekiden_units::{NODE_NAME_MOST, Time};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The version of questions and receipts.
pub const RECEIPTS_FORMAT: u32 = 3;
/// The most streams in one question.
pub const STREAMS_MOST: usize = 32;
/// The maximum time for which an exit is believed to remember ended streams. What it has not received by then, it never
/// received.
pub const REMEMBERED_MOST: Time = Time::secs(120);

/// A stream's identifier, which its entry chooses: random, so that only the nodes of its path know it. Receipts are
/// requested under [`StreamId::towards`] its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamId(pub [u8; 16]);

/// The streams about which an exit is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// [`RECEIPTS_FORMAT`].
    pub receipts_format: u32,
    /// The node before the exit on their paths.
    pub from: String,
    /// At most [`STREAMS_MOST`].
    pub streams: Vec<StreamId>,
}

/// What an exit says about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipts {
    /// [`RECEIPTS_FORMAT`].
    pub receipts_format: u32,
    /// For how long it remembers streams of that node that have ended, in seconds.
    pub remembers_s: f64,
    /// In the order of the question; none for a stream that it does not know.
    pub streams: Vec<Option<Receipt>>,
}

/// The exit's counts of a stream. The end of a direction counts as one byte.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Bytes that have come for the destination.
    pub to_host: u64,
    /// Bytes that the destination has sent.
    pub from_host: u64,
    /// Whether the destination does not read the data that is there for it.
    pub is_full: bool,
    /// How many seconds ago it answered OPEN; none while it connects.
    pub answered_s: Option<f64>,
    /// For how many seconds nothing has moved.
    pub still_s: f64,
    /// How it has ended, if it has.
    pub end: Option<End>,
}

/// How a stream has ended at its exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The destination could not be connected to.
    Failed,
    /// Both directions have ended, and all that was read has been passed on.
    Done,
    /// Its destination, or this node, broke it off.
    Exit,
    /// The node before the exit gave it up, or its connection broke.
    Leg,
}

impl TryFrom<String> for StreamId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        Ok(Self(number.ok_or("it is no stream's name")?.to_be_bytes()))
    }
}

impl From<StreamId> for String {
    fn from(id: StreamId) -> Self {
        format!("{:032x}", u128::from_be_bytes(id.0))
    }
}

impl StreamId {
    /// The identifier in receipts of this stream to `target`: the first half of SHA-256 over both. So a node in between that
    /// opens the stream to another destination has no receipt for it.
    #[must_use]
    pub fn towards(self, target: &impl Display) -> Self {
        let hash = Sha256::new().chain_update(self.0).chain_update(target.to_string()).finalize();
        Self(std::array::from_fn(|at| hash[at]))
    }
}

impl Asked {
    /// Of these streams, which come from this node to the exit.
    pub fn new(from: &str, streams: Vec<StreamId>) -> Self {
        Self { receipts_format: RECEIPTS_FORMAT, from: from.to_owned(), streams }
    }

    /// Reads a question.
    ///
    /// # Errors
    /// The part of it that is invalid.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let asked: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match asked.streams.len() {
            _ if asked.receipts_format != RECEIPTS_FORMAT => {
                Err(format!("a question of format {}", asked.receipts_format))
            }
            _ if asked.from.len() > NODE_NAME_MOST => Err("a question of a node whose name is none".into()),
            0..=STREAMS_MOST => Ok(asked),
            many => Err(format!("a question about {many} streams, of {STREAMS_MOST} at most")),
        }
    }
}

impl Receipts {
    /// Reads what an exit says about `streams` streams.
    ///
    /// # Errors
    /// The part of it that is invalid.
    pub fn read(bytes: &[u8], streams: usize) -> Result<Self, String> {
        let said: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        // Longer than any node runs.
        let is_time = |seconds: f64| (0.0..=1e9).contains(&seconds);
        let times =
            said.streams.iter().flatten().flat_map(|receipt| receipt.answered_s.into_iter().chain([receipt.still_s]));
        let are_times = is_time(said.remembers_s) && times.into_iter().all(is_time);
        let can_be = said.receipts_format == RECEIPTS_FORMAT && said.streams.len() == streams;
        if can_be && are_times { Ok(said) } else { Err("it is no answer to what was asked".into()) }
    }

    /// For how long the exit is believed to remember streams.
    pub fn remembers(&self) -> Time {
        Time((self.remembers_s * 1e9) as u64).min(REMEMBERED_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, streams in 0..40_usize) {
            let _ = (Asked::read(&bytes), Receipts::read(&bytes, streams));
        }

        #[test]
        fn names_of_streams_read_back(bytes: [u8; 16]) {
            let text = String::from(StreamId(bytes));
            prop_assert_eq!(StreamId::try_from(text), Ok(StreamId(bytes)));
        }
    }

    #[test]
    fn what_cannot_be_asked_or_answered_is_refused() {
        let read = |asked: &Asked| Asked::read(&serde_json::to_vec(asked).unwrap());
        let asked = Asked::new("delhi", vec![StreamId([7; 16]); STREAMS_MOST]);
        assert_eq!(read(&asked), Ok(asked.clone()));
        assert!(read(&Asked { receipts_format: 1, ..asked }).unwrap_err().contains("format 1"));
        let many = Asked::new("delhi", vec![StreamId([7; 16]); STREAMS_MOST + 1]);
        assert!(read(&many).unwrap_err().contains("33 streams"));
        assert!(read(&Asked::new(&"x".repeat(65), Vec::new())).is_err());
        for name in ["", "7", &"g".repeat(32), &"+".repeat(32), &"0".repeat(33)] {
            assert!(StreamId::try_from(name.to_owned()).is_err(), "{name}");
        }
        let receipt =
            Receipt { to_host: 1, from_host: 2, is_full: false, answered_s: Some(0.5), still_s: 0.0, end: None };
        let said = |remembers_s: f64, answered_s: f64| Receipts {
            receipts_format: RECEIPTS_FORMAT,
            remembers_s,
            streams: vec![Some(Receipt { answered_s: Some(answered_s), ..receipt }), None],
        };
        let bytes = |said: &Receipts| serde_json::to_vec(said).unwrap();
        assert_eq!(Receipts::read(&bytes(&said(30.0, 1.0)), 2), Ok(said(30.0, 1.0)));
        assert!(Receipts::read(&bytes(&said(30.0, 1.0)), 3).is_err());
        assert!(Receipts::read(&bytes(&said(-1.0, 1.0)), 2).is_err());
        assert!(Receipts::read(&bytes(&said(30.0, -1.0)), 2).is_err());
        // Whatever time an exit says that it remembers.
        assert_eq!((said(30.0, 1.0).remembers(), said(1e9, 1.0).remembers()), (Time::secs(30), REMEMBERED_MOST));
    }
}
