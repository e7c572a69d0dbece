//! The PROXY protocol, versions 1 and 2: a header before the first byte of a connection that tells whose connection it is
//! (HAProxy's doc/proxy-protocol.txt).

use std::net::SocketAddr;

use ppp::{v1, v2};

/// The longest header that is read, in bytes. One of version 1 has at most 107; one of version 2 can carry more about the
/// connection than its addresses (TLVs), which is skipped.
pub const MAX_HEADER: usize = 4096;

/// The longest header of version 1, with its CR LF (§2.1).
const MAX_LINE: usize = 107;

/// Of version 2: the bytes before the addresses, and where among them the length of what follows is (§2.2).
const FIXED: usize = 16;
const LENGTH: std::ops::Range<usize> = 14..16;

/// How a header is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// As a line of text.
    V1,
    /// As bytes.
    V2,
}

/// Between whom a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Who made it.
    pub source: SocketAddr,
    /// Whom it was made to.
    pub destination: SocketAddr,
}

/// A header that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its bytes; what follows is payload.
    pub length: usize,
    /// What it tells. `None`: it is the sender's own connection, such as a health check (LOCAL), or one that is not known or
    /// not of TCP over IP: the connection counts as what it looks like.
    pub addresses: Option<Addresses>,
}

/// What a connection begins with is no such header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

/// Reads a header from the first bytes of a connection. `None`: it is not complete, and all of `input` belongs to it.
///
/// # Errors
/// No bytes behind `input` make it a header.
pub fn read(input: &[u8]) -> Result<Option<Header>, Malformed> {
    match input.first() {
        None => Ok(None),
        Some(b'P') => read_line(input),
        Some(_) => read_bytes(input),
    }
}

/// The header for a connection.
pub fn write(version: Version, addresses: &Addresses) -> Vec<u8> {
    let Addresses { source, destination } = addresses;
    let between = (*source, *destination);
    match version {
        Version::V1 => v1::Addresses::from(between).to_string().into_bytes(),
        Version::V2 => {
            v2::Builder::with_addresses(v2::Version::Two | v2::Command::Proxy, v2::Protocol::Stream, between)
                .build()
                .expect("the addresses are far below the most that its length can say")
        }
    }
}

/// Version 1.
fn read_line(input: &[u8]) -> Result<Option<Header>, Malformed> {
    begins(input, b"PROXY ")?;
    let Some(end) = input.iter().take(MAX_LINE).position(|&b| b == b'\n') else {
        return match input.len() < MAX_LINE {
            true => Ok(None),
            false => Err(Malformed(format!("a line of more than {MAX_LINE} bytes"))),
        };
    };
    let line = &input[..=end];
    let header = v1::Header::try_from(line).ok().filter(|header| header.header.len() == line.len());
    let Some(header) = header else { return Err(Malformed("a line that is no header".into())) };
    let addresses = match header.addresses {
        v1::Addresses::Unknown => None,
        // What reads numbers takes a sign too.
        _ if line.contains(&b'+') => return Err(Malformed("a port with a sign".into())),
        v1::Addresses::Tcp4(ip) => Some(Addresses {
            source: (ip.source_address, ip.source_port).into(),
            destination: (ip.destination_address, ip.destination_port).into(),
        }),
        v1::Addresses::Tcp6(ip) => Some(Addresses {
            source: (ip.source_address, ip.source_port).into(),
            destination: (ip.destination_address, ip.destination_port).into(),
        }),
    };
    Ok(Some(Header { length: line.len(), addresses }))
}

/// Version 2.
fn read_bytes(input: &[u8]) -> Result<Option<Header>, Malformed> {
    begins(input, v2::PROTOCOL_PREFIX)?;
    if let Some(length) = input.get(LENGTH) {
        let length = FIXED + usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length > MAX_HEADER {
            return Err(Malformed(format!("a header of {length} bytes, more than {MAX_HEADER}")));
        }
    }
    let header = match v2::Header::try_from(input) {
        Ok(header) => header,
        Err(v2::ParseError::Incomplete(_) | v2::ParseError::Partial(..)) => return Ok(None),
        Err(error) => return Err(Malformed(format!("a header of version 2 that is none: {error}"))),
    };
    let addresses = match (header.command, header.protocol, header.addresses) {
        (v2::Command::Proxy, v2::Protocol::Stream, v2::Addresses::IPv4(ip)) => Some(Addresses {
            source: (ip.source_address, ip.source_port).into(),
            destination: (ip.destination_address, ip.destination_port).into(),
        }),
        (v2::Command::Proxy, v2::Protocol::Stream, v2::Addresses::IPv6(ip)) => Some(Addresses {
            source: (ip.source_address, ip.source_port).into(),
            destination: (ip.destination_address, ip.destination_port).into(),
        }),
        _ => None,
    };
    Ok(Some(Header { length: header.len(), addresses }))
}

fn begins(input: &[u8], beginning: &[u8]) -> Result<(), Malformed> {
    match input.iter().zip(beginning).all(|(a, b)| a == b) {
        true => Ok(()),
        false => Err(Malformed("it does not begin with a header".into())),
    }
}
