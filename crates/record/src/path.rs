//! What is known of a network path: `ekiden measure path` writes it, `ekiden plan` reads it.

use std::path::Path;

use ekiden_files::{FileKind, read, write};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The version of the format of path records that this program writes, and the newest it reads.
pub const PATH_FORMAT: u32 = 1;

/// A path between two ends, as a loaded TCP saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// [`PATH_FORMAT`] of the program that wrote it. Says by its name that this is a path record.
    pub path_format: u32,
    /// Version of ekiden.
    pub version: String,
    /// The command line, program first.
    pub command: Vec<String>,
    /// When it was measured, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// The end that asked: its address and port.
    pub from: String,
    /// The measuring server.
    pub to: String,
    /// Round-trip time without load, of a packet that takes no time to send, in microseconds.
    pub rtt_us: Finding,
    /// From the end that asked to the server.
    pub forth: PathDirection,
    /// From the server to the end that asked.
    pub back: PathDirection,
}

/// One direction of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathDirection {
    /// Routers between the ends.
    pub hops: Finding,
    /// The largest packet that passes, in bytes with its IP header.
    pub mtu_bytes: Finding,
    /// What the bottleneck carries of IP packets, in bit/s.
    pub rate_bit_s: Finding,
    /// What waits at the bottleneck at most, in bytes of IP packets.
    pub buffer_bytes: Finding,
    /// Bandwidth-delay product: rate × base RTT, in bytes.
    pub bdp_bytes: Finding,
    /// Whether the bottleneck drops what does not fit, and nothing before.
    pub drop_tail: Judgement,
    /// Segments lost when the buffer overflows once.
    pub drops_per_overflow: Finding,
    /// The part of the packets that is lost without a full buffer, 0 to 1.
    pub random_loss: Finding,
    /// The rate of a policer, in bit/s of IP packets: a limit that drops, without a queue.
    pub policer_bit_s: Finding,
    /// The largest window that the ends allowed: the lesser of send buffer and receive window, in bytes.
    pub window_bytes: Finding,
    /// Bytes of user data sent to find this out.
    pub sent_bytes: u64,
    /// How long that took, in microseconds.
    pub duration_us: u64,
}

/// A number that was looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Finding {
    /// It was seen.
    Observed {
        /// The best estimate.
        value: f64,
        /// It is hardly less than this.
        low: f64,
        /// It is hardly more than this.
        high: f64,
        /// What was seen, for people.
        evidence: String,
    },
    /// It is no less than this.
    AtLeast {
        /// The bound.
        value: f64,
        /// What was seen, for people.
        evidence: String,
    },
    /// It is no more than this.
    AtMost {
        /// The bound.
        value: f64,
        /// What was seen, for people.
        evidence: String,
    },
    /// It was looked for, and is not there: no policer, no random loss.
    Absent {
        /// What was seen, for people.
        evidence: String,
    },
    /// It could not be seen.
    NotObservable {
        /// Why not, for people.
        reason: String,
    },
}

/// A question with two answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Judgement {
    /// It is so.
    Yes {
        /// What was seen, for people.
        evidence: String,
    },
    /// It is not so.
    No {
        /// What was seen, for people.
        evidence: String,
    },
    /// It could not be seen.
    NotObservable {
        /// Why not, for people.
        reason: String,
    },
}

impl Finding {
    /// The estimate, where there is one.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Observed { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// The estimate or a bound.
    pub fn estimate_or_bound(&self) -> Option<f64> {
        match self {
            Self::Observed { value, .. } | Self::AtLeast { value, .. } | Self::AtMost { value, .. } => Some(*value),
            Self::Absent { .. } | Self::NotObservable { .. } => None,
        }
    }

    /// What was seen, or why nothing was.
    pub fn evidence(&self) -> &str {
        match self {
            Self::Observed { evidence, .. }
            | Self::AtLeast { evidence, .. }
            | Self::AtMost { evidence, .. }
            | Self::Absent { evidence } => evidence,
            Self::NotObservable { reason } => reason,
        }
    }
}

impl PathRecord {
    /// Reads a path record.
    ///
    /// # Errors
    /// If the file cannot be read, is no path record, or one of a newer format.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let name = file.display().to_string();
        let text = read(file, FileKind::Path).map_err(|source| Error::Unreadable { file: name.clone(), source })?;
        #[derive(Deserialize)]
        struct Version {
            path_format: u32,
        }
        let not_one = |source| Error::NotARecord { file: name.clone(), source };
        let version: Version = serde_json::from_str(&text).map_err(not_one)?;
        if version.path_format > PATH_FORMAT {
            return Err(Error::TooNew { file: name, found: version.path_format, reads: PATH_FORMAT });
        }
        serde_json::from_str(&text).map_err(not_one)
    }

    /// Writes it as JSON, whole or not at all.
    ///
    /// # Errors
    /// The system's.
    pub fn save(&self, file: &Path) -> Result<(), Error> {
        let unwritable = |source| Error::Unwritable { file: file.display().to_string(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| unwritable(error.into()))?;
        write(file, (text + "\n").as_bytes()).map_err(unwritable)
    }
}
