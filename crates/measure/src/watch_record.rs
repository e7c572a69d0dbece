//! What a watch leaves: the connections that were seen, and how well they were.

use serde::{Deserialize, Serialize};

use crate::watch::Watched;
use ekiden_diagnosis::jitter::Lateness;

/// The version of the format that this program writes.
pub const WATCH_FORMAT: u32 = 1;

/// What came out of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchRecord {
    /// [`WATCH_FORMAT`] of the program that wrote it. Says by its name that this is the record of a watch.
    pub watch_format: u32,
    /// Version of ekiden.
    pub version: String,
    /// The command line, program first.
    pub command: Vec<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// When the watch began, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// How long it lasted.
    pub duration_us: u64,
    /// The time between samples that was asked for.
    pub interval_us: u64,
    /// How late the samples were; absent without any.
    pub late: Option<Lateness>,
    /// The thinning of the samples, from which the medians are: one look in this many was kept.
    pub one_of: u64,
    /// How many times a connection was seen that was not kept, because there were too many.
    pub not_kept: u64,
    /// In the order in which they were first seen.
    pub connections: Vec<Watched>,
}
