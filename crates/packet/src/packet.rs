//! TCP segments in IP packets.

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use etherparse::err::ip::{HeaderError, HeadersError, SliceError};
use etherparse::{IpSlice, ip_number};

use crate::{Ecn, EmitError, ParseError, Segment, checksum, ip};

/// A TCP segment and the addresses it goes between, both of IPv4 or both of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// What the packet carries.
    pub segment: Segment,
}

impl Packet {
    /// Reads an IPv4 or IPv6 packet, and returns it with the segment's payload.
    pub fn parse(bytes: &[u8]) -> Result<(Packet, &[u8]), ParseError> {
        let ip = IpSlice::from_slice(bytes).map_err(from_ip)?;
        match &ip {
            IpSlice::Ipv4(v4) => {
                if !checksum::is_valid(Sum16BitWords::new().add_slice(v4.header().slice())) {
                    return Err(ParseError::IpChecksum);
                }
            }
            // With a payload length of 0, the parser would take all bytes that follow for the payload.
            IpSlice::Ipv6(v6) if v6.header().payload_length() == 0 => return Err(ParseError::Truncated),
            IpSlice::Ipv6(_) => {}
        }
        if ip.is_fragmenting_payload() {
            return Err(ParseError::Fragment);
        }
        let inner = ip.payload();
        if inner.ip_number != ip_number::TCP {
            return Err(ParseError::NotTcp(inner.ip_number.0));
        }
        let (source, destination) = (ip.source_addr(), ip.destination_addr());
        let (mut segment, payload) = Segment::parse(inner.payload, source, destination)?;
        segment.ecn = match &ip {
            IpSlice::Ipv4(v4) => Ecn::from_bits(v4.header().ecn().value()),
            IpSlice::Ipv6(v6) => Ecn::from_bits(v6.header().traffic_class()),
        };
        Ok((Packet { source, destination, segment }, payload))
    }

    /// Appends the packet with its payload to `into`, which stays as it is on an error.
    ///
    /// An IPv4 packet has DF set and the identification 0 (RFC 6864, section 4.1). The hop limit is 64; there is no flow
    /// label.
    pub fn emit(&self, payload: &[u8], into: &mut Vec<u8>) -> Result<(), EmitError> {
        if u32::try_from(payload.len()) != Ok(self.segment.payload) {
            return Err(EmitError::Payload { stated: self.segment.payload, given: payload.len() });
        }
        self.write(payload, into)?;
        into.extend_from_slice(payload);
        Ok(())
    }

    /// As [`Packet::emit`], but the headers only, with the checksum of a payload of zeros: for packets whose payload is not
    /// stored.
    pub fn emit_headers(&self, into: &mut Vec<u8>) -> Result<(), EmitError> {
        self.write(&[], into)
    }

    /// Appends the headers. Zeros at the end of a payload do not change its checksum, so `payload` may leave them out.
    fn write(&self, payload: &[u8], into: &mut Vec<u8>) -> Result<(), EmitError> {
        let too_long = EmitError::TooLong(self.segment.payload);
        let length = u64::from(self.segment.header_bytes()) + u64::from(self.segment.payload);
        let length = u16::try_from(length).map_err(|_| too_long)?;
        ip::append_header([self.source, self.destination], ip_number::TCP, self.segment.ecn, length, too_long, into)?;
        let mut tcp = self.segment.header();
        let sum =
            checksum::pseudo_header(self.source, self.destination, ip_number::TCP, length).add_slice(&tcp.to_bytes());
        tcp.checksum = sum.add_slice(payload).ones_complement().to_be();
        into.extend_from_slice(&tcp.to_bytes());
        Ok(())
    }
}

fn from_ip(error: SliceError) -> ParseError {
    match error {
        SliceError::Len(_) => ParseError::Truncated,
        SliceError::IpHeaders(HeadersError::Ip(HeaderError::UnsupportedIpVersion { version_number })) => {
            ParseError::Version(version_number)
        }
        SliceError::IpHeaders(_) => ParseError::IpHeader,
    }
}
