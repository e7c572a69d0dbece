//! How far a direction of a stream has been read, and how far it goes.

use ekiden_relay_proto::leg::FrameDecoder;

/// What is read of a connection.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// Bytes until the end of the connection, with the number of bytes read so far.
    UntilEnd(u64),
    /// This many bytes, and the connection must not end before.
    Exactly(u64),
    /// Payload in frames of a leg.
    Frames(FrameDecoder, Part),
}

/// A part of the payload in frames of a leg.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// All payload up to END, with the number of bytes read so far.
    UntilEnd(u64),
    /// This many bytes.
    Exactly(u64),
}

impl Part {
    /// How many bytes are left.
    pub fn left(self) -> u64 {
        match self {
            Self::UntilEnd(_) => u64::MAX,
            Self::Exactly(left) => left,
        }
    }
}

impl Source {
    /// All until the end: of the connection, or of a node's stream where `decoder` is.
    pub fn until_end(decoder: Option<FrameDecoder>) -> Self {
        decoder.map_or(Self::UntilEnd(0), |decoder| Self::Frames(decoder, Part::UntilEnd(0)))
    }

    /// Accounts for `n` bytes that were read. Unless `counts`, they are discarded and not part of [`Source::read`].
    pub fn took(&mut self, n: usize, counts: bool) {
        if let Self::Frames(decoder, _) = self {
            decoder.took_payload(n as u32);
        }
        match self {
            Self::UntilEnd(read) | Self::Frames(_, Part::UntilEnd(read)) => *read += if counts { n as u64 } else { 0 },
            Self::Exactly(left) | Self::Frames(_, Part::Exactly(left)) => *left -= n as u64,
        }
    }

    /// Accounts for `n` bytes that other code has read before.
    pub fn queued(&mut self, n: usize) {
        if let Self::UntilEnd(read) | Self::Frames(_, Part::UntilEnd(read)) = self {
            *read += n as u64;
        }
    }

    /// How many bytes were read of a source without a fixed length; 0 of one with a fixed length.
    pub fn read(self) -> u64 {
        match self {
            Self::UntilEnd(read) | Self::Frames(_, Part::UntilEnd(read)) => read,
            Self::Exactly(_) | Self::Frames(_, Part::Exactly(_)) => 0,
        }
    }
}
