//! Why a direction broke.

use std::io;

use ekiden_relay_proto::leg::ProtocolError;

/// Why a direction broke: it stopped without a proper end.
#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    /// The sender's connection broke.
    #[error("receiving: {0}")]
    Receive(io::Error),
    /// The receiver's connection broke.
    #[error("sending: {0}")]
    Send(io::Error),
    /// The sender's connection ended before it said so.
    #[error("the connection ended in the middle of the stream")]
    Truncated,
    /// The chunk framing of the sender's body is malformed (RFC 9112 §7.1).
    #[error("{0}")]
    Malformed(&'static str),
    /// A limit of the configuration has passed; this is its key.
    #[error("{0} has passed")]
    Expired(&'static str),
    /// The sending node gave the stream up.
    #[error("the other node reset the stream (code {0})")]
    Reset(u8),
    /// The sending node broke the protocol.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
}
