//! Errors of parsing and of writing packets.

use std::net::IpAddr;

/// Why bytes are not a TCP segment in an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes end before the headers, or before the length that a header states. Also an IPv6 packet that states
    /// no length, as a jumbogram does (RFC 2675).
    #[error("the packet is shorter than its headers say")]
    Truncated,
    /// The first four bits are neither 4 nor 6.
    #[error("neither IPv4 nor IPv6: the IP version is {0}")]
    Version(u8),
    /// The IPv4 header's length is below 20 bytes, or an extension header is malformed.
    #[error("the IP header is malformed")]
    IpHeader,
    /// The IPv4 header's checksum is wrong.
    #[error("the IPv4 header's checksum is wrong")]
    IpChecksum,
    /// An IP fragment; reassembly is the IP stack's task.
    #[error("the packet is a fragment")]
    Fragment,
    /// Another protocol, by its number in the IP header.
    #[error("not TCP: the IP protocol is {0}")]
    NotTcp(u8),
    /// Longer than an IP packet can be, 65535 bytes.
    #[error("the segment is longer than an IP packet")]
    TooLong,
    /// The TCP checksum, over addresses, header and payload, is wrong.
    #[error("the TCP checksum is wrong")]
    TcpChecksum,
    /// The header's length in words of four bytes is below 5 or beyond the segment's end.
    #[error("the TCP data offset {0} is out of range")]
    DataOffset(u8),
    /// An option's length is not one of its kind, below 2 or beyond the header's end. 0 too if the byte that holds the
    /// length is missing.
    #[error("a TCP option of kind {kind} has the wrong length {length}")]
    OptionLength {
        /// The option's kind.
        kind: u8,
        /// The length as it stands in the header.
        length: u8,
    },
}

/// Why a packet cannot be written as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// One address is of IPv4, the other of IPv6.
    #[error("{source_address} and {destination_address} are of different IP versions")]
    Addresses {
        /// The packet's source.
        source_address: IpAddr,
        /// The packet's destination.
        destination_address: IpAddr,
    },
    /// The packet does not fit the length field of its IP header, 65535 bytes.
    #[error("{0} bytes of payload do not fit an IP packet")]
    TooLong(u32),
    /// The given payload is not as long as the segment says.
    #[error("the segment's payload is {stated} bytes, {given} were given")]
    Payload {
        /// Bytes, as in [`Segment::payload`](crate::Segment::payload).
        stated: u32,
        /// Bytes given.
        given: usize,
    },
}
