//! What Linux says about a packet of a TUN device with offloads (`linux/virtio_net.h`): which checksum is missing, and how a
//! super-packet is cut into segments.
//!
//! A header that contradicts its packet is refused.

use crate::packet::{Header, TCP, UDP};

/// The length of the header that stands before each packet.
pub const VNET_BYTES: usize = 10;

/// The checksum is to be computed. Its field holds the sum of the pseudo-header.
const NEEDS_CHECKSUM: u8 = 1;
/// The kinds of super-packets, and the bit of the first two that says that CWR belongs to the first segment only.
const NONE: u8 = 0;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_L4: u8 = 5;
const ECN: u8 = 0x80;
/// The maximum number of packets for which a super-packet stands: Linux makes no more of one UDP send (UDP_MAX_SEGMENTS), and 64 KB
/// of TCP are fewer with the MSS that every host takes. Each of them costs this host as much as a single packet.
const SEGMENTS_MOST: usize = 128;
/// Where a checksum is in the header of TCP and of UDP.
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

/// Linux's `virtio_net_hdr`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VnetHeader {
    flags: u8,
    /// The kind of super-packet, 0 for a packet that is none.
    pub gso_type: u8,
    /// The length of the headers that each segment has.
    pub hdr_len: u16,
    /// The payload of each segment but the last, which may have less.
    pub gso_size: u16,
    /// Where the checksum's range begins, which extends to the end of the packet.
    pub csum_start: u16,
    /// Where in this range the checksum is.
    pub csum_offset: u16,
}

/// What is wrong with such a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VnetError {
    /// Unknown flags, or none.
    #[error("flags {0:#x}")]
    Flags(u8),
    /// A part of a packet, or no TCP and UDP.
    #[error("neither a whole TCP nor a whole UDP packet")]
    Protocol,
    /// The checksum is not where TCP or UDP have it.
    #[error("a checksum at {start} + {offset}")]
    Checksum {
        /// Where its range begins.
        start: u16,
        /// Where in this range it is.
        offset: u16,
    },
    /// The length of the headers is wrong.
    #[error("headers of {0} bytes")]
    Headers(u16),
    /// The kind of super-packet is unknown, or of another protocol.
    #[error("segments of kind {0:#x}")]
    Kind(u8),
    /// The segments have no payload, less of it than headers, or do not fit the MTU.
    #[error("segments of {0} bytes")]
    Size(u16),
    /// It stands for too many packets.
    #[error("{0} segments, and the most is {SEGMENTS_MOST}")]
    Segments(usize),
}

impl VnetHeader {
    /// As the device writes it.
    pub fn from_device(bytes: [u8; VNET_BYTES]) -> Self {
        Self::read(bytes, u16::from_ne_bytes)
    }

    /// As the device reads it.
    pub fn to_device(self) -> [u8; VNET_BYTES] {
        self.written(u16::to_ne_bytes)
    }

    /// As it is in a frame.
    pub fn from_frame(bytes: [u8; VNET_BYTES]) -> Self {
        Self::read(bytes, u16::from_le_bytes)
    }

    /// As it is in a frame.
    pub fn to_frame(self) -> [u8; VNET_BYTES] {
        self.written(u16::to_le_bytes)
    }

    fn read(bytes: [u8; VNET_BYTES], word: fn([u8; 2]) -> u16) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = bytes;
        let (hdr_len, gso_size) = (word([h0, h1]), word([g0, g1]));
        let (csum_start, csum_offset) = (word([s0, s1]), word([o0, o1]));
        Self { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset }
    }

    fn written(self, bytes: fn(u16) -> [u8; 2]) -> [u8; VNET_BYTES] {
        let ([h0, h1], [g0, g1]) = (bytes(self.hdr_len), bytes(self.gso_size));
        let ([s0, s1], [o0, o1]) = (bytes(self.csum_start), bytes(self.csum_offset));
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Whether the packet's checksum is missing.
    pub fn needs_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    /// Whether the packet is to be cut into segments.
    pub fn is_super(self) -> bool {
        self.gso_type != NONE
    }

    /// The same with the length of the packet's headers, which Linux gives only as a hint: it may be the length of all that
    /// its buffer holds in one piece. What else the device knows of the packet is left out.
    pub fn with_real_headers(mut self, packet: &[u8]) -> Self {
        self.flags &= NEEDS_CHECKSUM;
        let length = transport_bytes(packet, self.csum_start.into(), self.csum_offset);
        self.hdr_len = length.and_then(|length| self.csum_start.checked_add(length)).unwrap_or_default();
        self
    }

    /// Whether the header fits the packet with this `header`, segments fit the MTU, and they are no more and no shorter than
    /// the kernel makes them for a common flow. A node sends what fails this check as single packets.
    pub fn check(self, packet: &[u8], header: &Header, mtu: u16) -> Result<(), VnetError> {
        let Self { flags, gso_type, hdr_len, gso_size, csum_start: start, csum_offset: offset } = self;
        if flags != NEEDS_CHECKSUM {
            return Err(VnetError::Flags(flags));
        }
        let (at, field) = match (header.protocol, header.transport) {
            (TCP, Some(at)) if !header.is_part => (at, TCP_CHECKSUM),
            (UDP, Some(at)) if !header.is_part => (at, UDP_CHECKSUM),
            _ => return Err(VnetError::Protocol),
        };
        if usize::from(start) != at || offset != field {
            return Err(VnetError::Checksum { start, offset });
        }
        let headers = transport_bytes(packet, at, field).map(|length| at + usize::from(length));
        if headers != Some(usize::from(hdr_len)) {
            return Err(VnetError::Headers(hdr_len));
        }
        let (is_v4, is_tcp) = (header.source.is_ipv4(), field == TCP_CHECKSUM);
        let fits = match gso_type & !ECN {
            NONE => gso_type == NONE && gso_size == 0,
            TCP_V4 => is_v4 && is_tcp,
            TCP_V6 => !is_v4 && is_tcp,
            UDP_L4 => gso_type == UDP_L4 && !is_tcp,
            _ => false,
        };
        if !fits {
            return Err(VnetError::Kind(gso_type));
        }
        if !self.is_super() {
            return if packet.len() > usize::from(mtu) { Err(VnetError::Size(gso_size)) } else { Ok(()) };
        }
        let (headers, size) = (usize::from(hdr_len), usize::from(gso_size));
        let payload = packet.len() - headers;
        // With less payload than headers, segments would have more than twice the bytes of the super-packet.
        match () {
            () if payload == 0 || size < headers || headers + size > usize::from(mtu) => Err(VnetError::Size(gso_size)),
            () if payload.div_ceil(size) > SEGMENTS_MOST => Err(VnetError::Segments(payload.div_ceil(size))),
            () => Ok(()),
        }
    }
}

/// The length of the TCP or UDP header at `at`; the position of its checksum says which. `None`: the packet ends before.
fn transport_bytes(packet: &[u8], at: usize, checksum: u16) -> Option<u16> {
    let length = match checksum {
        TCP_CHECKSUM => u16::from(packet.get(at + 12)? >> 4) * 4,
        UDP_CHECKSUM => 8,
        _ => return None,
    };
    let is_whole = length >= checksum + 2 && (checksum == UDP_CHECKSUM || length >= 20);
    (is_whole && at + usize::from(length) <= packet.len()).then_some(length)
}

#[cfg(test)]
mod tests;
