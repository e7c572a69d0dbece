//! The Internet checksum (RFC 1071) as TCP and UDP use it.

use std::net::IpAddr;

use etherparse::IpNumber;
use etherparse::checksum::Sum16BitWords;

/// The sum over the pseudo-header of a segment or datagram of `length` bytes, header and payload (RFC 9293, section 3.1,
/// and RFC 768; for IPv6, RFC 8200, section 8.1).
///
/// The layouts of IPv4 and IPv6 differ in zeros only, so their sums are computed alike.
pub(crate) fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: IpNumber, length: u16) -> Sum16BitWords {
    let addresses = add_address(add_address(Sum16BitWords::new(), source), destination);
    addresses.add_2bytes([0, protocol.0]).add_2bytes(length.to_be_bytes())
}

/// Whether `sum`, which includes the checksum itself, shows no error.
pub(crate) fn is_valid(sum: Sum16BitWords) -> bool {
    sum.ones_complement() == 0
}

fn add_address(sum: Sum16BitWords, address: IpAddr) -> Sum16BitWords {
    match address {
        IpAddr::V4(v4) => sum.add_slice(&v4.octets()),
        IpAddr::V6(v6) => sum.add_slice(&v6.octets()),
    }
}
