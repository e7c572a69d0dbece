//! How a tunnel's packets wait for their connection.

use ekiden_units::{Bytes, Time};
use serde::Serialize;

/// How packets wait for a tunnel's connection, and when they are written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pull {
    /// The acceptable delay of the queue (RFC 8289, section 4.4).
    pub target: Time,
    /// How long the delay must have been above the target before packets are dropped (section 4.3).
    pub interval: Time,
    /// No packet is written while as many bytes of the stream have not been sent.
    pub unsent: Bytes,
    /// The connection is paced so that the queue of the path stays short.
    pub paced: bool,
}

impl Default for Pull {
    /// RFC 8289 has 5 and 100 ms, which with a tunnel's own round trip and stalls keep long connections from growing:
    /// docs/measurements/tunnel.md.
    fn default() -> Self {
        Self { target: Time::ms(20), interval: Time::secs(1), unsent: Bytes::kib(4), paced: true }
    }
}
