//! References and generators that share no code with the crate.
#![allow(dead_code, reason = "every test takes what it needs")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ekiden_packet::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// RFC 1071 as it says: add 16-bit words, carry around, complement.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    !(sum as u16)
}

/// The checksum over the pseudo-header and the segment: 0 where the segment holds the right one.
pub fn tcp_checksum(source: IpAddr, destination: IpAddr, segment: &[u8]) -> u16 {
    let length = segment.len() as u32;
    let mut bytes = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.extend([0, 6]);
            bytes.extend((length as u16).to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0, 0, 6]);
        }
        _ => panic!("addresses of two versions"),
    }
    bytes.extend(segment);
    checksum(&bytes)
}

/// Puts right checksums into a packet as the crate emits it: no IP options, no extension headers.
pub fn repair(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let (source, destination, start) = addresses(packet);
    packet[start + 16..start + 18].fill(0);
    let sum = tcp_checksum(source, destination, &packet[start..]);
    packet[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
}

/// Whether both checksums of a packet without extension headers are right, over the lengths it states.
pub fn checksums_hold(packet: &[u8]) -> bool {
    let (source, destination, _) = addresses(packet);
    let stated = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    match packet[0] >> 4 {
        4 => {
            let start = usize::from(packet[0] & 15) * 4;
            checksum(&packet[..start]) == 0 && tcp_checksum(source, destination, &packet[start..stated(2)]) == 0
        }
        _ => tcp_checksum(source, destination, &packet[40..40 + stated(4)]) == 0,
    }
}

/// The addresses of a packet, and where its TCP header starts if the IP header is of the usual length.
fn addresses(packet: &[u8]) -> (IpAddr, IpAddr, usize) {
    let v4 = |at: usize| IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap()));
    let v6 = |at: usize| IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap()));
    if packet[0] >> 4 == 4 { (v4(12), v4(16), 20) } else { (v6(8), v6(24), 40) }
}

/// What has to arrive of a segment, counted option by option.
pub fn arrives(mut segment: Segment) -> Segment {
    let options = &mut segment.options;
    if !segment.flags.syn {
        (options.mss, options.window_scale, options.sack_permitted) = (None, None, false);
    }
    options.window_scale = options.window_scale.map(|shift| if shift > 14 { 14 } else { shift });
    let mut free = 40;
    if options.mss.is_some() {
        free -= 4;
    }
    if options.window_scale.is_some() {
        free -= 4;
    }
    match (options.timestamps, options.sack_permitted) {
        (Some(_), _) => free -= 12,
        (None, true) => free -= 4,
        (None, false) => {}
    }
    let mut blocks: Vec<SackBlock> = options.sack.iter().collect();
    while !blocks.is_empty() && 4 + 8 * blocks.len() > free {
        blocks.pop();
    }
    options.sack = blocks.into_iter().collect();
    segment
}

pub fn emitted(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.emit(payload, &mut bytes).unwrap();
    bytes
}

pub fn addresses_of_one_version() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

pub fn options() -> impl Strategy<Value = Options> {
    let block = any::<(u32, u32)>().prop_map(|(start, end)| SackBlock { start: Seq(start), end: Seq(end) });
    let timestamps = any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo });
    let sack = vec(block, 0..=4).prop_map(SackBlocks::from_iter);
    (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), option::of(timestamps), sack).prop_map(
        |(mss, window_scale, sack_permitted, timestamps, sack)| Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            sack,
        },
    )
}

/// Any segment, whose payload is of length 0; half of them are SYNs.
pub fn segment() -> impl Strategy<Value = Segment> {
    let flags = any::<[bool; 6]>().prop_map(|[syn, fin, rst, psh, ece, cwr]| Flags { syn, fin, rst, psh, ece, cwr });
    let numbers = (any::<u32>(), any::<Option<u32>>());
    (any::<[u16; 3]>(), numbers, flags, options()).prop_map(
        |([source, destination, window], (seq, ack), flags, options)| Segment {
            source,
            destination,
            seq: Seq(seq),
            ack: ack.map(Seq),
            flags,
            window,
            options,
            payload: 0,
            ecn: Ecn::NotEct,
        },
    )
}

/// Any packet with its payload.
pub fn packet() -> impl Strategy<Value = (Packet, Vec<u8>)> {
    let ecn = prop_oneof![Just(Ecn::NotEct), Just(Ecn::Ect1), Just(Ecn::Ect0), Just(Ecn::Ce)];
    (addresses_of_one_version(), segment(), ecn, vec(any::<u8>(), 0..100)).prop_map(
        |((source, destination), segment, ecn, payload)| {
            let segment = Segment { payload: payload.len() as u32, ecn, ..segment };
            (Packet { source, destination, segment }, payload)
        },
    )
}

pub fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
