//! The protocol on a tunnel's TCP connection: a greeting of each side, then frames.
//!
//! A frame begins with three bytes of length, in network byte order, and one byte of kind: 0, a packet with all its
//! checksums; 1, a `virtio_net_hdr` of ten bytes, its numbers in little-endian order, and the packet that it describes. A
//! length and a kind of 0 are a keep-alive.
//!
//! The dialler may send FILL of the leg protocol before its greeting, to see whether full segments pass.

use std::time::Duration;

use ekiden_relay_proto::leg::{FrameKind, Header};

use crate::vnet::{VNET_BYTES, VnetError};

/// The first bytes of a greeting.
const MAGIC: &[u8; 4] = b"EKTN";
/// The version of what follows.
const VERSION: u8 = 3;
/// In a greeting: the side's device takes what has a `virtio_net_hdr`.
const TAKES_SUPER: u8 = 1;
/// In a greeting: packets of the other side were dropped because of their source addresses. A node that does not know the
/// bit ignores it.
const HAS_DROPPED: u8 = 2;

/// A greeting's beginning, which is the same in every version, and the rest of it.
pub const VERSION_BYTES: usize = 8;
/// The length of a greeting.
pub const HELLO_BYTES: usize = 11;
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
/// A frame without content.
pub const KEEP_ALIVE: [u8; HEAD_BYTES] = [0; HEAD_BYTES];
/// After the greeting, this number of keep-alive times without data means that the other end has gone.
pub const SILENCES: u32 = 4;

/// The greeting of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The other side speaks something else.
    #[error("it does not speak the tunnel's protocol; is this the address of a tunnel?")]
    NotATunnel,
    /// Of another build.
    #[error(
        "it speaks version {0} of the tunnel's protocol, and this node version {VERSION}: both must be of the same build"
    )]
    Version(u8),
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
    /// Of a kind that this version does not know.
    #[error("a frame of kind {0}")]
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
        Self { connection, mtu: 0, takes_super: false, keepalive_s: 0, has_dropped: false }
    }

    /// Whether it only asks.
    pub fn is_question(self) -> bool {
        self.mtu == 0
    }

    /// The silence after which the side sends a keep-alive. It is at most what a configuration allows: otherwise a peer
    /// could hold this end's connection for days.
    pub fn keepalive(self) -> Duration {
        Duration::from_secs(self.keepalive_s.into()).min(KEEPALIVE_MOST)
    }

    /// As bytes.
    pub fn encode(self) -> [u8; HELLO_BYTES] {
        let [m0, m1, m2, m3] = *MAGIC;
        let [high, low] = self.mtu.to_be_bytes();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.takes_super, TAKES_SUPER) | flag(self.has_dropped, HAS_DROPPED);
        let [k0, k1] = self.keepalive_s.to_be_bytes();
        [m0, m1, m2, m3, VERSION, self.connection, high, low, flags, k0, k1]
    }

    /// Whether the first bytes are a greeting of this version. Others may be shorter.
    pub fn check_version(bytes: [u8; VERSION_BYTES]) -> Result<(), FrameError> {
        match bytes.split_first_chunk() {
            Some((magic, &[VERSION, ..])) if magic == MAGIC => Ok(()),
            Some((magic, &[other, ..])) if magic == MAGIC => Err(FrameError::Version(other)),
            _ => Err(FrameError::NotATunnel),
        }
    }

    /// From bytes of this version.
    pub fn decode(bytes: [u8; HELLO_BYTES]) -> Self {
        let [_, _, _, _, _, connection, high, low, flags, k0, k1] = bytes;
        let (mtu, keepalive_s) = (u16::from_be_bytes([high, low]), u16::from_be_bytes([k0, k1]));
        let [takes_super, has_dropped] = [TAKES_SUPER, HAS_DROPPED].map(|flag| flags & flag != 0);
        Self { connection, mtu, takes_super, keepalive_s, has_dropped }
    }
}

/// The number of bytes that follow to fill a segment, if a connection begins with a FILL.
pub fn filling(first: [u8; VERSION_BYTES]) -> Option<usize> {
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

    proptest! {
        #[test]
        fn a_greeting_is_read_as_it_was_written(connection: u8, mtu: u16, takes_super: bool, keepalive_s: u16, has_dropped: bool) {
            let hello = Hello { connection, mtu, takes_super, keepalive_s, has_dropped };
            let bytes = hello.encode();
            prop_assert_eq!(Hello::check_version(*bytes.first_chunk().unwrap()), Ok(()));
            prop_assert_eq!(Hello::decode(bytes), hello);
        }
    }

    #[test]
    fn a_question_is_told_from_a_greeting() {
        let decoded = |hello: Hello| Hello::decode(hello.encode());
        assert!(decoded(Hello::question(3)).is_question());
        assert!(!decoded(Hello { mtu: 1280, ..Hello::question(3) }).is_question());
    }

    #[test]
    fn a_peer_s_silence_is_no_longer_than_a_configuration_may_have_it() {
        assert_eq!(Hello { keepalive_s: u16::MAX, ..Hello::question(0) }.keepalive(), KEEPALIVE_MOST);
    }

    #[test]
    fn a_stranger_s_first_bytes_are_no_greeting() {
        assert_eq!(Hello::check_version(*b"GET / HT"), Err(FrameError::NotATunnel));
        assert_eq!(Hello::check_version(*b"EKTN\x01\0\x05\xdc"), Err(FrameError::Version(1)));
    }
}
