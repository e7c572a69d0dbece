//! Which program relays at a proxy.

use serde::{Deserialize, Serialize};

/// The program that relays at a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// `ekiden proxy`.
    Ekiden,
    /// Dante's `danted`, for SOCKS5.
    Dante,
    /// `squid`, for HTTP and for FTP URLs.
    Squid,
}
