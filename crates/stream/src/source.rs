//! How far a direction of a stream has been read, and how far it goes.

use ekiden_relay_proto::leg::FrameDecoder;

/// What is read of a connection.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// Bytes until the end of the connection; so many were read.
    UntilEnd(u64),
    /// This many bytes, and the connection must not end before.
    Exactly(u64),
    /// Payload in frames of a leg.
    Frames(FrameDecoder, Part),
}

/// A part of the payload in frames of a leg.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// All up to END; so many bytes were read.
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

    /// So many bytes were read, which count or are discarded.
    pub fn took(&mut self, n: usize, counts: bool) {
        if let Self::Frames(decoder, _) = self {
            decoder.took_payload(n as u32);
        }
        match self {
            Self::UntilEnd(read) | Self::Frames(_, Part::UntilEnd(read)) => *read += if counts { n as u64 } else { 0 },
            Self::Exactly(left) | Self::Frames(_, Part::Exactly(left)) => *left -= n as u64,
        }
    }

    /// So many bytes of it were read before, by others.
    pub fn queued(&mut self, n: usize) {
        if let Self::UntilEnd(read) | Self::Frames(_, Part::UntilEnd(read)) = self {
            *read += n as u64;
        }
    }

    /// How many bytes were read, where all is.
    pub fn read(self) -> u64 {
        match self {
            Self::UntilEnd(read) | Self::Frames(_, Part::UntilEnd(read)) => read,
            Self::Exactly(_) | Self::Frames(_, Part::Exactly(_)) => 0,
        }
    }
}
