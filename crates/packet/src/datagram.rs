//! UDP datagrams in IP packets, for captures.

use std::net::SocketAddr;

use etherparse::{UdpHeader, ip_number};

use crate::{Ecn, EmitError, checksum, ip};

/// A UDP datagram in an IP packet, without the bytes of its payload. Both addresses are of IPv4 or both of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// Length of the payload in bytes.
    pub payload: u32,
}

impl Datagram {
    /// Appends the headers to `into`, with the checksum of a payload of zeros. On an error `into` stays as it is.
    pub fn emit_headers(&self, into: &mut Vec<u8>) -> Result<(), EmitError> {
        let too_long = EmitError::TooLong(self.payload);
        let length = u64::from(self.payload) + UdpHeader::LEN as u64;
        let length = u16::try_from(length).map_err(|_| too_long)?;
        let (source, destination) = (self.source.ip(), self.destination.ip());
        ip::append_header([source, destination], ip_number::UDP, Ecn::NotEct, length, too_long, into)?;
        let mut udp = UdpHeader {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
            length,
            checksum: 0,
        };
        let sum = checksum::pseudo_header(source, destination, ip_number::UDP, length).add_slice(&udp.to_bytes());
        // A checksum of 0 would mean that there is none (RFC 768).
        udp.checksum = match sum.ones_complement().to_be() {
            0 => u16::MAX,
            checksum => checksum,
        };
        into.extend_from_slice(&udp.to_bytes());
        Ok(())
    }
}
