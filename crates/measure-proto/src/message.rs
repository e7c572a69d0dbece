//! What a measuring server and its client say to each other: JSON with its length before it on the control connection, and the first
//! bytes of each other connection.

use ekiden_record::{EndSettings, LoadSettings, Way};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::row::Row;

/// The newest version of what is said that this build speaks, and the oldest.
pub const VERSION: u32 = 2;
/// See [`VERSION`].
pub const OLDEST: u32 = 2;

/// The longest message of a client, in bytes.
pub const REQUEST_BYTES_MOST: usize = 64 << 10;
/// The longest message of a server, in bytes.
pub const REPLY_BYTES_MOST: usize = 4 << 20;

/// The most looks at a load that an end keeps.
pub const LOOKS_MOST: usize = 60_000;
/// The most rows of all streams that an end keeps.
pub const ROWS_MOST: usize = 2_000_000;
/// No more tenths of a second are counted by themselves: an hour of them.
pub const TENTHS_MOST: usize = 36_000;

/// The first bytes of a control connection without TLS.
pub const PLAIN: [u8; 4] = *b"EKM1";
/// The first bytes of a connection that carries a load or probes.
pub const DATA: [u8; 4] = *b"EKD1";
/// What a server answers on such a connection that it has taken.
pub const TAKEN: u8 = b'K';
/// The first byte of a TLS record with a handshake (RFC 8446, section 5.1).
pub const TLS: u8 = 22;

/// The longest segments of a connection that carries no load, TCP's options among them: they fit IPv6's least MTU of 1,280 bytes, which practically
/// every path carries. The SYN says so, so the other end's are no longer. What is said of a load thus arrives where the load's own segments do not.
pub const PLAIN_SEGMENT_BYTES: u16 = 1220;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum Request {
    /// Asks for a measurement.
    Measure {
        /// What the client speaks.
        #[serde(flatten)]
        speaks: Speaks,
        /// The load.
        settings: Box<LoadSettings>,
        /// How closely it is looked at, and when it ends before its time.
        #[serde(default)]
        trace: Trace,
    },
    /// All connections are there: the load begins.
    Start,
    /// The load is over at this end, or given up.
    Stop,
}

/// What a client speaks, and a server has to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speaks {
    /// The newest version.
    pub version: u32,
    /// The oldest; the same if it does not say.
    #[serde(default)]
    pub oldest: Option<u32>,
    /// Names of what this measurement needs of the server beyond the version. None has a name yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// The client's build; empty if it does not say.
    #[serde(default)]
    pub build: String,
}

impl Speaks {
    /// What this build speaks.
    pub fn own() -> Self {
        let build = env!("CARGO_PKG_VERSION").into();
        Self { version: VERSION, oldest: Some(OLDEST), requires: Vec::new(), build }
    }

    /// The newest version that both ends speak.
    ///
    /// # Errors
    /// There is none, or this build does not know what the client requires.
    pub fn agreed(&self) -> Result<u32, String> {
        let theirs = self.oldest.unwrap_or(self.version)..=self.version;
        if let Some(common) = (OLDEST..=VERSION).rev().find(|version| theirs.contains(version)) {
            return match self.requires.first() {
                None => Ok(common),
                Some(name) => {
                    Err(format!("it requires '{}', which this server does not know{}", shown(name), self.builds()))
                }
            };
        }
        let version = self.version;
        Err(format!(
            "it speaks version {version} of the measuring protocol, and this server {VERSION}{}",
            self.builds()
        ))
    }

    fn builds(&self) -> String {
        let theirs =
            if self.build.is_empty() { "of another build".into() } else { format!("ekiden {}", shown(&self.build)) };
        format!("; it is {theirs}, and this server ekiden {}", env!("CARGO_PKG_VERSION"))
    }
}

/// How closely a load is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Trace {
    /// As often as its settings say.
    #[default]
    No,
    /// As often as the kernel's clock allows. A sender ends when its first episode of losses is over, or by its budget.
    UntilLoss {
        /// The most bytes, in bandwidth-delay products, as far as they are known meanwhile.
        bdps_most: f64,
        /// The bytes that it may send in any case.
        bytes_least: u64,
    },
    /// As often as with [`Trace::UntilLoss`]; a sender ends by its budget.
    Budget {
        /// Bytes that were sent before, which count.
        spent_bytes: u64,
        /// As above.
        bdps_most: f64,
        /// As above.
        bytes_least: u64,
    },
    /// As often as with [`Trace::UntilLoss`]; a sender ends after a number of episodes of losses.
    Episodes {
        /// How many.
        count: u32,
    },
}

impl Trace {
    /// Whether it is looked at as often as can be.
    pub fn is_close(self) -> bool {
        self != Self::No
    }
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum Reply {
    /// It does not measure.
    Refused {
        /// Why not, one line.
        why: String,
        /// Whether it may measure later.
        busy: bool,
    },
    /// The connections may come.
    Ready {
        /// The version that both ends speak from here on.
        version: u32,
        /// What they begin with, in hexadecimal digits.
        token: String,
        /// What the server's end is like.
        end: EndSettings,
        /// The most bytes that it sends or takes in each direction; absent without a limit.
        bytes_most: Option<u64>,
        /// The longest load, in microseconds.
        duration_most_us: u64,
    },
    /// Its senders have begun.
    Started,
    /// A part of what a sender or receiver of the server's end was like.
    Rows {
        /// The direction.
        way: Way,
        /// The stream.
        stream: u32,
        /// In the order of time.
        rows: Vec<Row>,
    },
    /// What the server's end of a stream did in all.
    Stream {
        /// The direction.
        way: Way,
        /// The stream.
        stream: u32,
        /// What it did.
        end: StreamEnd,
    },
    /// All has been said.
    Done,
    /// The load failed at the server's end.
    Failed {
        /// Why, one line.
        why: String,
    },
}

impl Reply {
    /// The same with texts that can be shown. To be called where a message comes in.
    pub fn shown(mut self) -> Self {
        match &mut self {
            Self::Refused { why, .. } | Self::Failed { why } => *why = shown(why),
            Self::Ready { end, .. } => {
                let EndSettings { version, kernel, congestion, tcp_rmem, tcp_wmem } = end;
                for text in [version, kernel, congestion, tcp_rmem, tcp_wmem] {
                    *text = shown(text);
                }
            }
            Self::Stream { end, .. } => {
                end.congestion = shown(&end.congestion);
                end.failed = end.failed.as_deref().map(shown);
            }
            Self::Started | Self::Rows { .. } | Self::Done => {}
        }
        self
    }
}

/// No more characters of what another end says are shown.
const SHOWN_MOST: usize = 300;

/// What an end of a stream did in all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StreamEnd {
    /// Bytes that count: at the receiver those of the time that counts.
    pub bytes: u64,
    /// The time that counts at the receiver, in microseconds.
    pub duration_us: u64,
    /// When the first byte came or went, in microseconds since the load's start at this end.
    pub first_us: u64,
    /// Bytes received in each tenth of a second from the first byte.
    pub tenths_bytes: Vec<u64>,
    /// How even arrivals were at the receiver.
    #[serde(default)]
    pub peaks: Vec<Peak>,
    /// The congestion control of the connection.
    pub congestion: String,
    /// The largest segment, in bytes of payload.
    pub mss_bytes: u32,
    /// The largest packet of the path, as far as the sender's kernel knows, in bytes with headers.
    pub path_mtu_bytes: u32,
    /// Whether segments have timestamps (RFC 7323), 12 bytes of each header.
    #[serde(default)]
    pub has_timestamps: bool,
    /// How long segments were; absent from an end of an older version.
    #[serde(default)]
    pub segments: Option<Segments>,
    /// Processor time of the thread that moved the bytes, in microseconds.
    pub cpu_us: u64,
    /// How late each look at the connection was, in microseconds; the same for all streams of an end.
    pub late_us: Vec<u32>,
    /// Why the stream failed, if it did.
    pub failed: Option<String>,
}

/// How long the segments of a stream were, as its end saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Segments {
    /// The longest that a sender may have sent, or that has arrived at a receiver, in bytes of payload. 0 at a receiver that cannot tell.
    pub longest_bytes: u32,
    /// Payload, in bytes, that was acknowledged to a sender while its segments had `longest_bytes`. 0 at a receiver.
    pub whole_bytes: u64,
    /// `net.ipv4.tcp_mtu_probing` of the end's kernel.
    pub mtu_probing: u8,
}

/// What arrived in the best of the times of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// The length, in milliseconds.
    pub width_ms: u32,
    /// The bytes that 95 % of such times do not exceed.
    pub bytes: u64,
}

/// What a connection of a load, or of probes, begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// Which measurement it belongs to.
    pub token: [u8; 16],
    /// What it is for.
    pub purpose: Purpose,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Small messages that are answered.
    Probe,
    /// A stream of a load.
    Stream(Way, u16),
}

impl Preamble {
    /// Its length in bytes.
    pub const BYTES: usize = 4 + 16 + 1 + 2;

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let (kind, stream) = match self.purpose {
            Purpose::Probe => (0, 0),
            Purpose::Stream(Way::Forth, stream) => (1, stream),
            Purpose::Stream(Way::Back, stream) => (2, stream),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&DATA);
        bytes[4..20].copy_from_slice(&self.token);
        bytes[20] = kind;
        bytes[21..].copy_from_slice(&u16::to_be_bytes(stream));
        bytes
    }

    /// From bytes; `None` if they are something else.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (token, rest) = rest.split_first_chunk::<16>()?;
        let [kind, high, low] = rest else { return None };
        let stream = u16::from_be_bytes([*high, *low]);
        let purpose = match kind {
            0 => Purpose::Probe,
            1 => Purpose::Stream(Way::Forth, stream),
            2 => Purpose::Stream(Way::Back, stream),
            _ => return None,
        };
        (*magic == DATA).then_some(Self { token: *token, purpose })
    }
}

/// A message with its length before it.
///
/// # Errors
/// serde_json's, which these types do not have.
pub fn encode(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    Ok(bytes)
}

/// A message from what follows its length; `None` if it is one that this build does not know, and its sender says that it may be skipped.
///
/// # Errors
/// If it is no message of this kind.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<Option<T>> {
    /// What every message may have.
    #[derive(Deserialize)]
    struct Any {
        #[serde(default)]
        may_be_skipped: bool,
    }
    match serde_json::from_slice(bytes) {
        Ok(message) => Ok(Some(message)),
        Err(_) if serde_json::from_slice::<Any>(bytes).is_ok_and(|any| any.may_be_skipped) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What another end says, as a part of a line for people: no control characters, nor those that change the order or the place of others, and
/// not too long.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if ekiden_units::is_unseen(c) { ' ' } else { c }).take(SHOWN_MOST).collect()
}

/// A token in hexadecimal digits.
pub fn token_text(token: &[u8; 16]) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A token from hexadecimal digits.
pub fn token_of(text: &str) -> Option<[u8; 16]> {
    let mut token = [0; 16];
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (number, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * number..2 * number + 2)?, 16).ok()?;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_comes_back_and_others_are_refused() {
        for purpose in [Purpose::Probe, Purpose::Stream(Way::Forth, 7), Purpose::Stream(Way::Back, 65_535)] {
            let preamble = Preamble { token: [9; 16], purpose };
            assert_eq!(Preamble::decode(&preamble.encode()), Some(preamble));
        }
        let mut other = Preamble { token: [9; 16], purpose: Purpose::Probe }.encode();
        other[20] = 3;
        assert_eq!(Preamble::decode(&other), None);
        assert_eq!(Preamble::decode(&[0; Preamble::BYTES]), None);
    }

    #[test]
    fn a_token_is_32_digits() {
        let token = *b"0123456789abcdef";
        assert_eq!(token_of(&token_text(&token)), Some(token));
        for text in ["", "00", "zz000000000000000000000000000000", "+1000000000000000000000000000000"] {
            assert_eq!(token_of(text), None, "{text}");
        }
    }
}
