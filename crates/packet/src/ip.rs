//! IP headers.

use std::net::IpAddr;

use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6Header};

use crate::{Ecn, EmitError};

/// The hop limit (TTL) of a packet, the same as Linux's default.
const HOPS: u8 = 64;

/// Appends the header of a packet that carries `length` bytes. `too_long` is the error if the packet is too long.
pub(crate) fn append_header(
    [source, destination]: [IpAddr; 2],
    protocol: IpNumber,
    ecn: Ecn,
    length: u16,
    too_long: EmitError,
    into: &mut Vec<u8>,
) -> Result<(), EmitError> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4Header::new(length, HOPS, protocol, source.octets(), destination.octets());
            let mut ip = ip.map_err(|_| too_long)?;
            ip.ecn = IpEcn::try_new(ecn as u8).unwrap_or_default();
            ip.header_checksum = ip.calc_header_checksum();
            into.extend_from_slice(&ip.to_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6Header {
                traffic_class: ecn as u8,
                payload_length: length,
                next_header: protocol,
                hop_limit: HOPS,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            into.extend_from_slice(&ip.to_bytes());
        }
        (source_address, destination_address) => {
            return Err(EmitError::Addresses { source_address, destination_address });
        }
    }
    Ok(())
}
