//! What is spoken on a connection of a stream.

use ekiden_relay_proto::leg::FrameDecoder;

/// What is spoken on a connection of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The stream's bytes, with a host. The end of the connection is the end of the stream.
    Raw,
    /// Frames of the leg protocol, with a node. The end of the stream is said.
    Leg,
}

impl Framing {
    /// Where a node's frames stand at the beginning of a stream.
    pub fn decoder(self) -> Option<FrameDecoder> {
        match self {
            Self::Raw => None,
            Self::Leg => Some(FrameDecoder::default()),
        }
    }
}

/// RESET codes (docs/design/protocol.md §6).
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub enum ResetCode {
    /// A connection further along broke or was reset.
    Broken = 1,
    /// The other node broke the protocol.
    Protocol = 2,
}
