//! Frames (docs/design/protocol.md §2): an 8-byte header, then as many bytes as it says.
//!
//! A frame of an unknown type is skipped if its sender says that it may be; otherwise it breaks the protocol.

/// The bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;

/// The most payload of one DATA frame, in bytes.
pub const MAX_DATA: u32 = 1 << 20;

/// The most bytes of a TOLD frame's body.
pub const MAX_TOLD: u32 = 64 << 10;

/// The most bytes of a FILL frame's body: a segment has no more.
pub const MAX_FILL: u32 = 0xffff;

/// The most bytes of any other frame's body.
pub const MAX_CONTROL: u32 = 4096;

/// In the flags: a receiver that does not know the type skips the frame.
const SKIPPABLE: u8 = 1;

/// In the flags, beside [`SKIPPABLE`]: a node in the middle of a stream that does not know the type passes the frame on.
const PASSED: u8 = 2;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame in each direction: version and nonce.
    Hello = 1,
    /// The dialler's proof.
    Auth = 2,
    /// The dialler opens a stream.
    Open = 3,
    /// The acceptor has reached the destination.
    Opened = 4,
    /// The acceptor has not.
    Failed = 5,
    /// Payload.
    Data = 6,
    /// The sender will send no more payload in this stream.
    End = 7,
    /// The sender gives the stream up; the length field is a failure code, there is no body.
    Reset = 8,
    /// The acceptor has said END, or says it with this, and holds nothing any more of what it was sent.
    Delivered = 9,
    /// The dialler asks, between two streams, what the acceptor knows of its legs.
    Ask = 10,
    /// The acceptor's answer, also to [`FrameKind::Receipts`].
    Told = 11,
    /// Bytes that fill a segment, before the first stream; the acceptor answers with as many as fill one of its own.
    Fill = 12,
    /// The dialler asks, between two streams, what the acceptor has of streams of which it is the exit.
    Receipts = 13,
    /// What the sender is: [`super::About`]. It may be skipped.
    About = 14,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: FrameKind,
    /// The bytes that follow; for [`FrameKind::Reset`] a code instead.
    pub length: u32,
}

/// The header of a frame whose type this node does not know, and may skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown {
    kind: u8,
    flags: u8,
    length: u16,
}

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A frame that this node knows.
    Known(Header),
    /// One that it skips, or passes on.
    Unknown(Unknown),
}

/// Bytes that the protocol does not allow. There is no way on from here but a reset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A record of TLS (RFC 8446 §5.1) where a frame was due.
    #[error("the other side speaks TLS, and plain_key_file on this side means not to")]
    Tls,
    /// The first byte of a message of measuring, or of a tunnel's greeting.
    #[error(
        "messages of another protocol of ekiden, as if this were the address of another of its programs (node, tunnel, measuring server)"
    )]
    OtherProgram,
    /// This node knows no frame of this type, and it may not be skipped.
    #[error("a frame of type {0}, which this node does not know")]
    UnknownType(u8),
    /// Flags or reserved bits are set.
    #[error("reserved bits set in a frame header")]
    Reserved,
    /// The length is outside what this type may have.
    #[error("{kind:?} frame of {length} bytes")]
    Length {
        /// The frame.
        kind: FrameKind,
        /// Its length field.
        length: u32,
    },
    /// A frame that may be skipped is longer than [`MAX_CONTROL`].
    #[error("a frame of type {kind}, which this node does not know, of {length} bytes")]
    UnknownLength {
        /// Its type.
        kind: u8,
        /// Its length field.
        length: u32,
    },
    /// A known frame where it has no place.
    #[error("{0:?} frame out of place")]
    OutOfPlace(FrameKind),
}

impl Header {
    /// Whether a header's first byte is that of a record of TLS, which may be shorter than a header.
    pub fn is_tls(first: u8) -> bool {
        (20..=23).contains(&first)
    }

    /// The header on the wire.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let [a, b, c, d] = self.length.to_be_bytes();
        let flags = if self.kind == FrameKind::About { SKIPPABLE } else { 0 };
        [self.kind as u8, flags, 0, 0, a, b, c, d]
    }

    /// As [`Header::read`], where no other frame than those of this version may be.
    ///
    /// # Errors
    /// As [`Header::read`], and of every unknown type.
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, ProtocolError> {
        match Self::read(bytes)? {
            Found::Known(header) => Ok(header),
            Found::Unknown(unknown) => Err(ProtocolError::UnknownType(unknown.kind)),
        }
    }

    /// Reads a header and checks that its length is one its type may have.
    ///
    /// # Errors
    /// It is not that of a frame, or of one that this node does not know and may not skip.
    pub fn read(bytes: [u8; HEADER_BYTES]) -> Result<Found, ProtocolError> {
        let [kind, flags, r0, r1, length @ ..] = bytes;
        let length = u32::from_be_bytes(length);
        let kind = match kind {
            1 => FrameKind::Hello,
            2 => FrameKind::Auth,
            3 => FrameKind::Open,
            4 => FrameKind::Opened,
            5 => FrameKind::Failed,
            6 => FrameKind::Data,
            7 => FrameKind::End,
            8 => FrameKind::Reset,
            9 => FrameKind::Delivered,
            10 => FrameKind::Ask,
            11 => FrameKind::Told,
            12 => FrameKind::Fill,
            13 => FrameKind::Receipts,
            14 => FrameKind::About,
            other if Self::is_tls(other) => return Err(ProtocolError::Tls),
            0 | b'E' => return Err(ProtocolError::OtherProgram),
            other if flags & SKIPPABLE == 0 => return Err(ProtocolError::UnknownType(other)),
            other if length <= MAX_CONTROL => {
                return Ok(Found::Unknown(Unknown { kind: other, flags, length: length as u16 }));
            }
            kind => return Err(ProtocolError::UnknownLength { kind, length }),
        };
        let may_be_set = if kind == FrameKind::About { SKIPPABLE } else { 0 };
        if (flags & !may_be_set, r0, r1) != (0, 0, 0) {
            return Err(ProtocolError::Reserved);
        }
        let allowed = match kind {
            FrameKind::Data => 1..=MAX_DATA,
            FrameKind::Told => 0..=MAX_TOLD,
            FrameKind::Fill => 1..=MAX_FILL,
            FrameKind::End | FrameKind::Delivered => 0..=0,
            FrameKind::Ask => 0..=MAX_CONTROL,
            FrameKind::Reset => 0..=255,
            FrameKind::About => 0..=MAX_CONTROL,
            _ => 1..=MAX_CONTROL,
        };
        if !allowed.contains(&length) {
            return Err(ProtocolError::Length { kind, length });
        }
        Ok(Found::Known(Self { kind, length }))
    }

    /// A whole frame with a body.
    pub fn frame(kind: FrameKind, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let mut out = Self { kind, length }.encode().to_vec();
        out.extend_from_slice(body);
        out
    }
}

impl Unknown {
    /// The bytes that follow.
    pub fn length(self) -> u32 {
        self.length.into()
    }

    /// Whether a node in the middle of a stream passes it on.
    pub fn is_passed(self) -> bool {
        self.flags & PASSED != 0
    }

    /// The header on the wire.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let [high, low] = self.length.to_be_bytes();
        [self.kind, self.flags, 0, 0, 0, 0, high, low]
    }
}

/// Decodes the frames of one direction of an open stream, as its receiver sees them (docs/design/protocol.md §5).
///
/// The receiver reads at most [`FrameDecoder::payload`] + [`FrameDecoder::header_missing`] bytes at a time and so
/// never takes bytes that belong to the next stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameDecoder {
    payload: u32,
    /// The bytes that come next are the body of a frame that this side does not know.
    is_unknown: bool,
    header: [u8; HEADER_BYTES],
    have: u8,
    /// The receiver is a dialler that has said END.
    has_said_end: bool,
    ended: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Ended {
    #[default]
    Not,
    /// END has come. While the other direction runs, only RESET may follow; then DELIVERED.
    Said,
    /// DELIVERED has come.
    Delivered,
}

/// What a complete header means in an open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// This many bytes of payload follow.
    Data(u32),
    /// A frame that this side does not know. Its body is read as payload, but is none of the stream's.
    Unknown(Unknown),
    /// The other side has ended its direction.
    End,
    /// The same, and it holds nothing any more of what it was sent: the stream is over.
    Delivered,
    /// The other side has given up, with this code; behind END it takes nothing more.
    Reset(u8),
}

impl FrameDecoder {
    /// The receiver is a dialler, and has said END: from here on it may hear DELIVERED.
    pub fn said_end(&mut self) {
        self.has_said_end = true;
    }

    /// Whether DELIVERED was heard.
    pub fn is_delivered(&self) -> bool {
        self.ended == Ended::Delivered
    }

    /// Whether the bytes of payload that come next are none of the stream's, but of a frame that this side does not know.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The bytes of payload that come next.
    pub fn payload(&self) -> u32 {
        self.payload
    }

    /// The bytes of header that come after them.
    pub fn header_missing(&self) -> usize {
        HEADER_BYTES - usize::from(self.have)
    }

    /// `n` bytes of payload were taken; `n` ≤ [`FrameDecoder::payload`].
    pub fn took_payload(&mut self, n: u32) {
        debug_assert!(n <= self.payload);
        self.payload = self.payload.saturating_sub(n);
        self.is_unknown &= self.payload > 0;
    }

    /// Bytes of a header arrived: at most [`FrameDecoder::header_missing`], and only when no payload is due.
    pub fn took_header(&mut self, bytes: &[u8]) -> Result<Option<Event>, ProtocolError> {
        debug_assert!(self.payload == 0 && bytes.len() <= self.header_missing());
        for (slot, byte) in self.header[usize::from(self.have)..].iter_mut().zip(bytes) {
            *slot = *byte;
            self.have += 1;
        }
        if self.header_missing() > 0 {
            return Ok(None);
        }
        self.have = 0;
        let header = match Header::read(self.header)? {
            // From newer nodes: they say nothing between END and DELIVERED.
            Found::Unknown(unknown) if self.ended != Ended::Not => {
                return Err(ProtocolError::UnknownType(unknown.kind));
            }
            Found::Known(Header { kind: FrameKind::About, length }) if self.ended == Ended::Not => {
                // It has been said before, or is not asked for.
                let unknown = Unknown { kind: FrameKind::About as u8, flags: SKIPPABLE, length: length as u16 };
                return Ok(Some(self.skips(unknown)));
            }
            Found::Unknown(unknown) => return Ok(Some(self.skips(unknown))),
            Found::Known(header) => header,
        };
        match header.kind {
            FrameKind::Reset => Ok(Some(Event::Reset(header.length as u8))),
            FrameKind::Delivered if self.has_said_end && !self.is_delivered() => {
                self.ended = Ended::Delivered;
                Ok(Some(Event::Delivered))
            }
            other if self.ended != Ended::Not => Err(ProtocolError::OutOfPlace(other)),
            FrameKind::Data => {
                self.payload = header.length;
                Ok(Some(Event::Data(header.length)))
            }
            FrameKind::End => {
                self.ended = Ended::Said;
                Ok(Some(Event::End))
            }
            other => Err(ProtocolError::OutOfPlace(other)),
        }
    }

    fn skips(&mut self, unknown: Unknown) -> Event {
        self.payload = unknown.length();
        self.is_unknown = unknown.length > 0;
        Event::Unknown(unknown)
    }
}
