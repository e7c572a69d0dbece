//! TCP headers of anything in an IPv4 packet whose sums are right: what is read reads the same when it is written again.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use ekiden_packet::{Packet, Segment};
use libfuzzer_sys::fuzz_target;

const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2)];
/// Where the checksum stands in a TCP header.
const SUM_AT: usize = 16;

fuzz_target!(|data: &[u8]| {
    // As it came, whose sums are hardly ever right.
    let _ = Packet::parse(data);
    let mut bytes = data[..data.len().min(1480)].to_vec();
    if bytes.len() < 20 {
        return;
    }
    bytes[SUM_AT..SUM_AT + 2].fill(0);
    let sum = checksum(&bytes);
    bytes[SUM_AT..SUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    let [source, destination] = ENDS.map(IpAddr::V4);
    let Ok((segment, payload)) = Segment::parse(&bytes, source, destination) else { return };
    assert!(segment.header_bytes() <= 60 && segment.payload as usize == payload.len());
    let packet = Packet { source, destination, segment };
    let mut again = Vec::new();
    packet.emit(payload, &mut again).expect("it fits");
    let (read, rest) = Packet::parse(&again).expect("what was written can be read");
    assert_eq!((read.segment, rest), (segment.as_sent(), payload));
});

/// The sum over the pseudo header and the segment (RFC 9293, section 3.1).
fn checksum(bytes: &[u8]) -> u16 {
    let ends: Vec<u8> = ENDS.iter().flat_map(|end| end.octets()).collect();
    let length = u32::try_from(bytes.len()).expect("it is short");
    let words = ends
        .chunks(2)
        .chain(bytes.chunks(2))
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum::<u32>() + 6 + length;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
