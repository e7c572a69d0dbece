//! Packets as they pass on a wire, and what of them a gateway looks at: the native build of `include/ekiden/frame.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{Direction, Packet, native};

/// Where the window stands in a TCP header, and where its checksum.
const WINDOW_AT: usize = 14;
const CHECKSUM_AT: usize = 16;

/// How a frame passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    /// When, in microseconds of any clock that does not step back.
    pub time_us: u64,
    /// Which way.
    pub direction: Direction,
    /// The payload in bytes of each segment that offloads have put together in it; 0 without.
    pub segment: u32,
}

/// A TCP packet, and where its parts stand in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Who sends it.
    pub source: SocketAddr,
    /// Whom it is sent to.
    pub destination: SocketAddr,
    /// Where the two bytes of the window stand.
    pub window_at: usize,
    /// Where the two bytes of TCP's checksum stand.
    pub checksum_at: usize,
    /// What [`StreamGroup::observe`](crate::StreamGroup::observe) takes.
    pub packet: Packet,
}

/// Why a frame is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRead {
    /// It is not TCP in IPv4 or IPv6, or a fragment.
    Other,
    /// A length in it contradicts another one.
    Malformed,
    /// It has TCP-MD5 (RFC 2385) or TCP-AO (RFC 5925), and must not be changed.
    Signed,
}

/// Reads the headers of a whole Ethernet frame, with VLAN tags or without. Checks no checksum.
///
/// # Errors
/// Why it is not looked at.
pub fn parse(bytes: &[u8], passing: Passing) -> Result<Frame, NotRead> {
    let Ok(total) = u32::try_from(bytes.len()) else { return Err(NotRead::Malformed) };
    let (found, frame, packet) = native::parse(bytes, total, passing.segment, passing.direction, passing.time_us);
    match found {
        native::OTHER => return Err(NotRead::Other),
        native::MALFORMED | native::CUT => return Err(NotRead::Malformed),
        native::SIGNED => return Err(NotRead::Signed),
        _ => {}
    }
    let end = |words, port: u16| SocketAddr::new(address(frame.version, words), u16::from_be(port));
    Ok(Frame {
        source: end(frame.source, frame.source_port),
        destination: end(frame.destination, frame.destination_port),
        window_at: frame.tcp as usize + WINDOW_AT,
        checksum_at: frame.tcp as usize + CHECKSUM_AT,
        packet,
    })
}

fn address(version: u32, words: [u32; 4]) -> IpAddr {
    let words = words.map(u32::to_ne_bytes);
    match version {
        4 => Ipv4Addr::from(words[0]).into(),
        _ => {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(words.as_flattened());
            Ipv6Addr::from(bytes).into()
        }
    }
}
