//! The options and the progress of a run.

use ekiden_units::Time;

/// How often a run takes samples, and what its record says of its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The interval between samples of senders and queues.
    pub resolution: Time,
    /// The command line that the record names.
    pub command: Vec<String>,
    /// When it was started, in milliseconds since 1970.
    pub started_unix_ms: u64,
}

impl Default for Options {
    /// Ten samples a second, as in the lab.
    fn default() -> Self {
        Self { resolution: Time::ms(100), command: Vec::new(), started_unix_ms: 0 }
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time.
    pub now: Time,
    /// Events that have happened.
    pub events: u64,
    /// Bytes that have arrived, over all flows.
    pub received_bytes: u64,
}
