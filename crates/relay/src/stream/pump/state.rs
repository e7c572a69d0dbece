//! What a pump reads, and how far it has come.

use ekiden_relay_proto::leg::FrameDecoder;

/// What is read of the sender.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// Bytes until the end of the connection.
    UntilEnd,
    /// This many bytes, and the connection must not end before.
    Exactly(u64),
    /// Payload in frames of a leg: this many bytes, or all up to END.
    Frames(FrameDecoder, Option<u64>),
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Moving,
    /// Everything was read. What is left must be written.
    Ended,
    Done,
    /// The sender's connection broke. What it had said was passed on, but there is no end.
    Cut,
}
