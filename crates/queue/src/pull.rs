//! How a tunnel's packets wait for their connection.

use std::ops::RangeInclusive;

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

impl Pull {
    /// The range of the target and the interval.
    pub const DELAYS: RangeInclusive<Time> = Time(100_000)..=Time::secs(60);
    /// The range of `unsent`.
    pub const UNSENT: RangeInclusive<Bytes> = Bytes(1)..=Bytes::mib(1024);
    /// The least MTU of a tunnel's device: what IPv6 wants (RFC 8200, section 5).
    pub const MTU_LEAST: u32 = 1280;
    /// What waits for a connection at most: one packet and more.
    pub const LIMITS: RangeInclusive<Bytes> = Bytes(Self::MTU_LEAST as u64)..=Bytes::mib(1024);
    /// What waits for a connection at most, unless the operator says it (S1, table 1). Less makes the connections inside collapse (S1, 3.5).
    pub const LIMIT: Bytes = Bytes(10_000_000);
    /// How many connections a tunnel may have to one peer.
    pub const CONNECTIONS: RangeInclusive<u32> = 1..=64;

    /// What is wrong with these times together.
    pub fn problem(&self) -> Option<String> {
        let Self { target, interval, .. } = self;
        (target > interval).then(|| {
            format!("target = {target} is longer than interval = {interval}: no packet would be dropped in time")
        })
    }
}

impl Default for Pull {
    /// RFC 8289 has 5 and 100 ms, which with a tunnel's own round trip and stalls keep long connections from growing:
    /// docs/measurements/tunnel.md.
    fn default() -> Self {
        Self { target: Time::ms(20), interval: Time::secs(1), unsent: Bytes::kib(4), paced: true }
    }
}
