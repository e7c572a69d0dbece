use etherparse::{IpHeaders, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::packet::{Header, TCP};

/// A packet whose checksum holds the sum of the pseudo-header, and what Linux says about it.
fn partial(v6: bool, tcp: bool, flags: u8, size: u16, payload: &[u8]) -> (VnetHeader, Vec<u8>) {
    let builder = match v6 {
        false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
    };
    let mut packet = match tcp {
        true => {
            let mut builder = builder.tcp(1000, 80, u32::MAX - 3_000, 1000).ack(77);
            builder = if flags & 1 != 0 { builder.fin() } else { builder };
            builder = if flags & 8 != 0 { builder.psh() } else { builder };
            builder = if flags & 128 != 0 { builder.cwr() } else { builder };
            let builder = builder.options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]).unwrap();
            let mut packet = vec![0; builder.size(payload.len())];
            builder.write_to_slice(&mut packet, payload).unwrap();
            packet
        }
        false => {
            let builder = builder.udp(1000, 53);
            let mut packet = vec![0; builder.size(payload.len())];
            builder.write_to_slice(&mut packet, payload).unwrap();
            packet
        }
    };
    let at = if v6 { 40 } else { 20 };
    let (length, offset, headers) = if tcp { (packet.len() - at, 16, 32) } else { (packet.len() - at, 6, 8) };
    let addresses = if v6 { &packet[8..40] } else { &packet[12..20] };
    let protocol = if tcp { 6 } else { 17 };
    let words = addresses.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u32>() + length as u32 + protocol;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let field = at + offset;
    packet[field..field + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    let gso_type = match (size, tcp, v6) {
        (0, ..) => 0,
        (_, false, _) => 5,
        (_, true, false) => 1,
        (_, true, true) => 4,
    };
    let mut bytes = [0; 10];
    bytes[0] = 1;
    bytes[1] = gso_type | if tcp && size > 0 && flags & 128 != 0 { 0x80 } else { 0 };
    for (place, value) in [(2, at + headers), (4, size.into()), (6, at), (8, offset)] {
        bytes[place..place + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }
    (VnetHeader::from_frame(bytes), packet)
}

/// A packet's payload, if its lengths and checksums are right.
fn payload(packet: &[u8]) -> Vec<u8> {
    let parsed = SlicedPacket::from_ip(packet).unwrap();
    if let Some(NetSlice::Ipv4(ip)) = &parsed.net {
        assert_eq!(ip.header().to_header().calc_header_checksum(), ip.header().header_checksum());
        assert_eq!(usize::from(ip.header().total_len()), packet.len());
    }
    let (ip, _) = IpHeaders::from_slice(packet).unwrap();
    match (parsed.transport.unwrap(), ip) {
        (TransportSlice::Tcp(tcp), IpHeaders::Ipv4(ip, _)) => {
            assert_eq!(tcp.to_header().calc_checksum_ipv4(&ip, tcp.payload()), Ok(tcp.checksum()));
            tcp.payload().to_vec()
        }
        (TransportSlice::Tcp(tcp), IpHeaders::Ipv6(ip, _)) => {
            assert_eq!(tcp.to_header().calc_checksum_ipv6(&ip, tcp.payload()), Ok(tcp.checksum()));
            tcp.payload().to_vec()
        }
        (TransportSlice::Udp(udp), IpHeaders::Ipv4(ip, _)) => {
            assert_eq!(udp.to_header().calc_checksum_ipv4(&ip, udp.payload()), Ok(udp.checksum()));
            udp.payload().to_vec()
        }
        (TransportSlice::Udp(udp), IpHeaders::Ipv6(ip, _)) => {
            assert_eq!(udp.to_header().calc_checksum_ipv6(&ip, udp.payload()), Ok(udp.checksum()));
            udp.payload().to_vec()
        }
        _ => panic!("neither TCP nor UDP"),
    }
}

proptest! {
    #[test]
    fn segments_are_what_the_super_packet_stands_for(
        v6: bool,
        tcp: bool,
        flags: u8,
        size in 1u16..2_000,
        data in prop::collection::vec(any::<u8>(), 1..10_000),
        room in 0usize..20,
    ) {
        let (vnet, mut packet) = partial(v6, tcp, flags, size, &data);
        let header = Header::read(&packet).unwrap();
        // Shorter segments are no super-packet's, but those of this host's own packets are made all the same.
        if size >= 80 {
            prop_assert_eq!(vnet.check(&packet, &header, 2_100), Ok(()));
        }
        prop_assert_eq!(vnet.with_real_headers(&packet), vnet);
        let whole = packet.clone();
        let segments = split(vnet, &mut packet, room).unwrap();
        prop_assert_eq!(segments.len(), data.len().div_ceil(size.into()));
        let id = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
        let (mut joined, last) = (Vec::new(), segments.len() - 1);
        for (number, segment) in segments.iter().enumerate() {
            let segment = &segment[room..];
            let part = payload(segment);
            prop_assert!(part.len() == usize::from(size) || number == last);
            let own = Header::read(segment).unwrap();
            prop_assert_eq!((own.source, own.destination, own.flow(segment)), (header.source, header.destination, header.flow(&whole)));
            if !v6 {
                prop_assert_eq!(id(segment), id(&whole).wrapping_add(number as u16));
            }
            if header.protocol == TCP {
                let Some(TransportSlice::Tcp(tcp)) = SlicedPacket::from_ip(segment).unwrap().transport else { panic!() };
                prop_assert_eq!(tcp.sequence_number(), (u32::MAX - 3_000).wrapping_add(joined.len() as u32));
                prop_assert_eq!((tcp.fin(), tcp.psh()), (number == last && flags & 1 != 0, number == last && flags & 8 != 0));
                prop_assert_eq!(tcp.cwr(), number == 0 && flags & 128 != 0);
                prop_assert!(tcp.ack() && tcp.options().len() == 12);
            }
            joined.extend(part);
        }
        prop_assert_eq!(joined, data);
    }

    #[test]
    fn a_missing_checksum_is_completed(v6: bool, tcp: bool, data in prop::collection::vec(any::<u8>(), 0..3_000)) {
        let (vnet, mut packet) = partial(v6, tcp, 0, 0, &data);
        let header = Header::read(&packet).unwrap();
        prop_assert_eq!(vnet.check(&packet, &header, 4_000), Ok(()));
        prop_assert!(complete_checksum(vnet, &mut packet));
        prop_assert_eq!(payload(&packet), data);
    }

    #[test]
    fn whatever_a_header_says_nothing_faults(
        bytes: [u8; 10],
        v6: bool,
        tcp: bool,
        data in prop::collection::vec(any::<u8>(), 1..500),
        close: bool,
    ) {
        let (real, packet) = partial(v6, tcp, 0, 100, &data);
        // Near the truth, or anything.
        let mut said = real.to_frame();
        match close {
            true => said[usize::from(bytes[0]) % 10] ^= bytes[1],
            false => said = bytes,
        }
        let vnet = VnetHeader::from_frame(said);
        let header = Header::read(&packet).unwrap();
        let is_right = vnet.check(&packet, &header, 1_500).is_ok();
        for vnet in [vnet, vnet.with_real_headers(&packet)] {
            let segments = split(vnet, &mut packet.clone(), 4);
            prop_assert!(!is_right || !vnet.is_super() || segments.is_ok());
            complete_checksum(vnet, &mut packet.clone());
        }
    }
}
