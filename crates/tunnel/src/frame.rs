//! The protocol on a tunnel's TCP connection (docs/design/tunnelling.md): a greeting of each side, then frames.
//!
//! A greeting is `EKTN`, the newest and the oldest version that the side speaks, two bytes of length, and fields as those of the leg protocol.
//!
//! A frame begins with three bytes of length, in network byte order, and one byte of kind: 0, a packet with all its
//! checksums; 1, a `virtio_net_hdr` of ten bytes, its numbers in little-endian order, and the packet that it describes. A
//! length and a kind of 0 are a keep-alive. A receiver skips kinds from 128 on that it does not know.
//!
//! The dialler may send FILL of the leg protocol before its greeting, to see whether full segments pass.

use std::time::Duration;

use ekiden_relay_proto::leg::fields::{self, FieldError, Onward};
use ekiden_relay_proto::leg::{About, FrameKind, Header};

use crate::vnet::{VNET_BYTES, VnetError};

/// The first bytes of a greeting.
const MAGIC: &[u8; 4] = b"EKTN";
/// The newest version of what follows that this build speaks.
const NEWEST: u8 = 4;
/// The oldest one.
const OLDEST: u8 = 4;
/// In the capabilities of a greeting: the side's device takes what has a `virtio_net_hdr`.
const TAKES_SUPER: u32 = 1;
/// There, too: packets of the other side were dropped because of their source addresses.
const HAS_DROPPED: u32 = 2;

/// The fields of a greeting.
const CONNECTION: u16 = 1;
const MTU: u16 = 2;
const CAPABILITIES: u16 = 3;
const KEEPALIVE: u16 = 4;
const BUILD: u16 = 5;

/// A greeting's beginning, which is the same in every version.
pub const HEAD_OF_HELLO: usize = 8;
/// The most bytes of a greeting's fields.
pub const FIELDS_MOST: usize = 1024;
/// The maximum silence before a keep-alive.
pub const KEEPALIVE_MOST: Duration = Duration::from_secs(3600);
/// What stands before a frame's content.
pub const HEAD_BYTES: usize = 4;
/// Kinds of frames.
pub const PLAIN: u8 = 0;
/// With a `virtio_net_hdr`.
pub const SUPER: u8 = 1;
/// The longest content of a [`SUPER`].
pub const SUPER_MOST: u32 = VNET_BYTES as u32 + u16::MAX as u32;
/// Kinds from this on are skipped by a receiver that does not know them. They have at most [`SUPER_MOST`] bytes.
pub const SKIPPABLE: u8 = 128;
/// A frame without content.
pub const KEEP_ALIVE: [u8; HEAD_BYTES] = [0; HEAD_BYTES];
/// After the greeting, this number of keep-alive times without data means that the other end has gone.
pub const SILENCES: u32 = 4;

/// The greeting of each side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// Which of the connections between the two nodes this is, from 0.
    pub connection: u8,
    /// The largest packet that the side takes; 0 in a question.
    pub mtu: u16,
    /// It takes super-packets, and packets that lack a checksum.
    pub takes_super: bool,
    /// The silence in seconds after which it sends a keep-alive.
    pub keepalive_s: u16,
    /// Since its start it has dropped packets of the other side, because it does not allow their source addresses.
    pub has_dropped: bool,
    /// Its build: printable ASCII, at most [`About::BUILD_MOST`] bytes; empty if it does not say.
    pub build: String,
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The other side speaks something else.
    #[error("it does not speak the tunnel's protocol; is this the address of a tunnel?")]
    NotATunnel,
    /// The two sides have no version in common.
    #[error(
        "it speaks version {0} of the tunnel's protocol, and this node version {NEWEST}: upgrade the older of the two"
    )]
    Version(u8),
    /// A greeting that is cut off, or says what cannot be.
    #[error("a malformed greeting")]
    Greeting,
    /// A greeting that requires what this node does not know.
    #[error("a greeting that requires field {0:#06x}, which this node does not know: it is of a newer build")]
    Required(u16),
    /// The two ends would refuse each other's packets.
    #[error("its device has an MTU of {theirs}, and this node's {ours}: set the same `mtu` in [device] at both ends")]
    Mtu {
        /// Of the other end.
        theirs: u16,
        /// Of this one.
        ours: u16,
    },
    /// A connection that this node does not have.
    #[error(
        "it has at least {} connections, and this node {connections}: set the same `connections` at both ends, with those of their classes",
        u16::from(*number) + 1
    )]
    Number {
        /// Counted from 0.
        number: u8,
        /// How many there may be.
        connections: u8,
    },
    /// Of a kind that this node does not know and may not skip.
    #[error("a frame of kind {0}, which this node does not know")]
    Kind(u8),
    /// Larger than the MTU that both have, or than any packet.
    #[error("a frame of {bytes} bytes, and the most is {most}")]
    TooLong {
        /// What its length says.
        bytes: u32,
        /// The most there may be.
        most: u32,
    },
    /// Too short for what it should hold.
    #[error("a super-packet's frame of {bytes} bytes")]
    TooShort {
        /// What its length says.
        bytes: u32,
    },
    /// A super-packet for a device that takes none.
    #[error("a super-packet, although this node has said that it takes none")]
    Unwanted,
    /// A super-packet that is not what its header says.
    #[error("a super-packet whose header does not fit it: {0}")]
    Vnet(#[from] VnetError),
}

impl Hello {
    /// A greeting that only asks for the other side's greeting: the other side answers, and the connection carries nothing.
    /// `connection`: one that should exist.
    pub fn question(connection: u8) -> Self {
        Self { connection, build: About::own().build, ..Self::default() }
    }

    /// Whether it only asks.
    pub fn is_question(&self) -> bool {
        self.mtu == 0
    }

    /// The silence after which the side sends a keep-alive. It is at most what a configuration allows: otherwise a peer
    /// could hold this end's connection for days.
    pub fn keepalive(&self) -> Duration {
        Duration::from_secs(self.keepalive_s.into()).min(KEEPALIVE_MOST)
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let capabilities = flag(self.takes_super, TAKES_SUPER) | flag(self.has_dropped, HAS_DROPPED);
        let mut fields = Vec::new();
        fields::put(&mut fields, CONNECTION, &[self.connection]);
        fields::put(&mut fields, MTU, &self.mtu.to_be_bytes());
        fields::put(&mut fields, CAPABILITIES, &capabilities.to_be_bytes());
        fields::put(&mut fields, KEEPALIVE, &self.keepalive_s.to_be_bytes());
        fields::put(&mut fields, BUILD, self.build.as_bytes());
        [&MAGIC[..], &[NEWEST, OLDEST], &(fields.len() as u16).to_be_bytes(), &fields].concat()
    }

    /// The number of bytes that follow the head of a greeting.
    ///
    /// # Errors
    /// It is none, of no version that this node speaks, or too long.
    pub fn fields_bytes(head: [u8; HEAD_OF_HELLO]) -> Result<usize, FrameError> {
        let [m0, m1, m2, m3, newest, oldest, high, low] = head;
        if [m0, m1, m2, m3] != *MAGIC {
            return Err(FrameError::NotATunnel);
        }
        if newest < OLDEST || oldest > NEWEST {
            return Err(FrameError::Version(newest));
        }
        let bytes = usize::from(u16::from_be_bytes([high, low]));
        (bytes <= FIELDS_MOST).then_some(bytes).ok_or(FrameError::Greeting)
    }

    /// From the fields of a greeting.
    ///
    /// # Errors
    /// They are malformed, lack the MTU, or one is required that this node does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let mut hello = Self::default();
        let mut mtu = None;
        let read = fields::read(bytes, Onward::No, |kind, value| {
            match kind {
                CONNECTION => [hello.connection] = value.try_into().ok()?,
                MTU => mtu = Some(u16::from_be_bytes(value.try_into().ok()?)),
                CAPABILITIES => {
                    let capabilities = u32::from_be_bytes(value.try_into().ok()?);
                    hello.takes_super = capabilities & TAKES_SUPER != 0;
                    hello.has_dropped = capabilities & HAS_DROPPED != 0;
                }
                KEEPALIVE => hello.keepalive_s = u16::from_be_bytes(value.try_into().ok()?),
                BUILD => hello.build = About::build_of(value)?,
                _ => return Some(false),
            }
            Some(true)
        });
        read.map_err(|error| match error {
            FieldError::Malformed => FrameError::Greeting,
            FieldError::Required(field) => FrameError::Required(field),
        })?;
        hello.mtu = mtu.ok_or(FrameError::Greeting)?;
        Ok(hello)
    }
}

/// The number of bytes that follow to fill a segment, if a connection begins with a FILL.
pub fn filling(first: [u8; HEAD_OF_HELLO]) -> Option<usize> {
    let header = Header::decode(first).ok().filter(|header| header.kind == FrameKind::Fill);
    header.map(|header| header.length as usize)
}

/// The bytes before the content of a frame, which is at most [`SUPER_MOST`] bytes long.
pub fn head(kind: u8, content: usize) -> [u8; HEAD_BYTES] {
    let [_, l0, l1, l2] = u32::try_from(content).unwrap_or(SUPER_MOST).to_be_bytes();
    [l0, l1, l2, kind]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Hello, FrameError> {
        let (head, fields) = bytes.split_first_chunk().unwrap();
        assert_eq!(Hello::fields_bytes(*head)?, fields.len());
        Hello::decode(fields)
    }

    proptest! {
        #[test]
        fn a_greeting_is_read_as_it_was_written(
            connection: u8, mtu: u16, takes_super: bool, keepalive_s: u16, has_dropped: bool, build in "[!-~]{0,64}",
        ) {
            let hello = Hello { connection, mtu, takes_super, keepalive_s, has_dropped, build };
            prop_assert_eq!(read(&hello.encode()), Ok(hello));
        }

        #[test]
        fn whatever_arrives_is_a_greeting_or_an_error(bytes in prop::collection::vec(any::<u8>(), 8..200)) {
            let _ = Hello::fields_bytes(*bytes.first_chunk().unwrap());
            let _ = Hello::decode(&bytes);
        }
    }

    #[test]
    fn a_question_is_told_from_a_greeting() {
        assert!(read(&Hello::question(3).encode()).unwrap().is_question());
        assert!(!read(&Hello { mtu: 1280, ..Hello::question(3) }.encode()).unwrap().is_question());
    }

    /// That of release 0.1: it does not change.
    #[test]
    fn a_greeting_of_each_release_is_read_and_said() {
        let hello = Hello {
            connection: 3,
            mtu: 1420,
            takes_super: true,
            keepalive_s: 60,
            has_dropped: true,
            build: "0.1.0".into(),
        };
        let bytes = b"EKTN\x04\x04\0\x22\0\x01\0\x01\x03\0\x02\0\x02\x05\x8c\0\x03\0\x04\0\0\0\x03\0\x04\0\x02\0\x3c\0\x05\0\x050.1.0";
        assert_eq!(hello.encode(), bytes);
        assert_eq!(read(bytes), Ok(hello));
    }

    #[test]
    fn a_newer_greeting_is_read_unless_it_requires_what_this_build_does_not_know() {
        let hello = Hello { mtu: 1500, ..Hello::question(1) };
        let with = |kind| {
            let mut bytes = hello.encode();
            fields::put(&mut bytes, kind, b"more");
            let length = (bytes.len() - HEAD_OF_HELLO) as u16;
            bytes[6..8].copy_from_slice(&length.to_be_bytes());
            // It speaks this version, too.
            bytes[4] = NEWEST + 3;
            read(&bytes)
        };
        assert_eq!(with(100), Ok(hello.clone()));
        assert_eq!(with(0x8064), Err(FrameError::Required(0x8064)));
        let bare = Hello { build: String::new(), ..Hello::default() }.encode();
        assert_eq!(Hello::decode(&bare[HEAD_OF_HELLO..HEAD_OF_HELLO + 5]), Err(FrameError::Greeting), "no MTU");
    }

    #[test]
    fn a_peer_s_silence_is_no_longer_than_a_configuration_may_have_it() {
        assert_eq!(Hello { keepalive_s: u16::MAX, ..Hello::question(0) }.keepalive(), KEEPALIVE_MOST);
    }

    #[test]
    fn a_stranger_s_first_bytes_are_no_greeting() {
        assert_eq!(Hello::fields_bytes(*b"GET / HT"), Err(FrameError::NotATunnel));
        assert_eq!(Hello::fields_bytes(*b"EKTN\x03\0\x05\xdc"), Err(FrameError::Version(3)));
        assert_eq!(Hello::fields_bytes(*b"EKTN\x09\x08\0\x10"), Err(FrameError::Version(9)));
        assert_eq!(Hello::fields_bytes(*b"EKTN\x04\x04\xff\xff"), Err(FrameError::Greeting));
    }
}
