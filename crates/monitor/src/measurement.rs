//! What a measurement gives, and what is kept of it.

use ekiden_diagnosis::limit::Shares;
use serde::{Deserialize, Serialize};

/// What a measurement gave.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Throughput at the receiver, all connections together, in bit/s.
    pub received_bit_s: u64,
    /// Payload that the receiver has received, in bytes.
    pub received_bytes: u64,
    /// The receiver's time, in microseconds.
    pub duration_us: u64,
    /// Round-trip time without load, in microseconds; absent if it was not measured.
    pub rtt_base_us: Option<u64>,
    /// Round-trip time under the load, in microseconds; absent if it was not measured.
    pub rtt_loaded_us: Option<u64>,
    /// Segments that the sender sent again; absent if it does not tell.
    pub retransmits: Option<u64>,
    /// What limited the sender; absent if it does not tell.
    pub shares: Option<Shares>,
}

/// Why a measurement gave nothing: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A row of the history: a measurement, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// When its round began, in milliseconds since 1970 (UTC). Rows of one round belong together.
    pub round_unix_ms: u64,
    /// When it began, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// The target's name.
    pub target: String,
    /// The server.
    pub server: String,
    /// The SOCKS5 listener that it went through; absent if it went directly.
    pub via: Option<String>,
    /// `receive` or `send`.
    pub direction: String,
    /// What came out.
    pub result: Result<Measured, Failure>,
}

impl Measured {
    /// For people: the rate and the times.
    pub fn summary(&self) -> String {
        let mut text = format!("{} Mbit/s", mbit(self.received_bit_s as f64));
        let ms = |us: u64| format!("{} ms", digits(us as f64 / 1e3));
        if let Some(base) = self.rtt_base_us {
            text += &format!(", RTT {}", ms(base));
        }
        if let Some(loaded) = self.rtt_loaded_us {
            text += &format!(" ({} under load)", ms(loaded));
        }
        text
    }
}

/// A rate in Mbit/s with three digits.
pub(crate) fn mbit(bit_s: f64) -> String {
    digits(bit_s / 1e6)
}

/// A number with three digits, or three decimal places.
pub(crate) fn digits(number: f64) -> String {
    match number {
        large if large >= 99.95 => format!("{large:.0}"),
        some if some >= 9.995 => format!("{some:.1}"),
        few if few >= 0.9995 => format!("{few:.2}"),
        little => format!("{little:.3}"),
    }
}
