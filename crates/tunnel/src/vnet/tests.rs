use etherparse::PacketBuilder;

use super::*;

const MTU: u16 = 1500;

fn packet(v6: bool, tcp: bool) -> Vec<u8> {
    packet_of(3_000, v6, tcp)
}

fn packet_of(payload: usize, v6: bool, tcp: bool) -> Vec<u8> {
    let content = vec![7; payload];
    let builder = match v6 {
        false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
    };
    match tcp {
        true => {
            let builder = builder.tcp(1, 2, 3, 4);
            let mut packet = vec![0; builder.size(payload)];
            builder.write_to_slice(&mut packet, &content).unwrap();
            packet
        }
        false => {
            let builder = builder.udp(1, 2);
            let mut packet = vec![0; builder.size(payload)];
            builder.write_to_slice(&mut packet, &content).unwrap();
            packet
        }
    }
}

fn check(vnet: VnetHeader, packet: &[u8]) -> Result<(), VnetError> {
    vnet.check(packet, &Header::read(packet).unwrap(), MTU)
}

#[test]
fn a_header_must_fit_its_packet() {
    let flags = NEEDS_CHECKSUM;
    let tcp4 = VnetHeader { flags, gso_type: TCP_V4, hdr_len: 40, gso_size: 1460, csum_start: 20, csum_offset: 16 };
    let tcp6 = VnetHeader { gso_type: TCP_V6, hdr_len: 60, gso_size: 1440, csum_start: 40, ..tcp4 };
    let udp4 = VnetHeader { gso_type: UDP_L4, hdr_len: 28, csum_offset: 6, ..tcp4 };
    let (v4, v6, udp) = (packet(false, true), packet(true, true), packet(false, false));
    for (vnet, packet) in [(tcp4, &v4), (tcp6, &v6), (udp4, &udp), (VnetHeader { gso_type: TCP_V4 | ECN, ..tcp4 }, &v4)]
    {
        assert_eq!(check(vnet, packet), Ok(()));
    }
    let mut part = v4.clone();
    part[6] |= 0x20;
    let cases = [
        (VnetHeader { flags: 0, ..tcp4 }, &v4, VnetError::Flags(0)),
        (VnetHeader { flags: 3, ..tcp4 }, &v4, VnetError::Flags(3)),
        (tcp4, &part, VnetError::Protocol),
        (tcp4, &udp, VnetError::Checksum { start: 20, offset: 16 }),
        (VnetHeader { csum_start: 21, ..tcp4 }, &v4, VnetError::Checksum { start: 21, offset: 16 }),
        (VnetHeader { csum_offset: 6, ..tcp4 }, &v4, VnetError::Checksum { start: 20, offset: 6 }),
        (VnetHeader { hdr_len: 44, ..tcp4 }, &v4, VnetError::Headers(44)),
        (VnetHeader { gso_type: TCP_V6, ..tcp4 }, &v4, VnetError::Kind(TCP_V6)),
        (VnetHeader { gso_type: UDP_L4, ..tcp4 }, &v4, VnetError::Kind(UDP_L4)),
        (VnetHeader { gso_type: UDP_L4 | ECN, ..udp4 }, &udp, VnetError::Kind(UDP_L4 | ECN)),
        (VnetHeader { gso_type: 3, ..udp4 }, &udp, VnetError::Kind(3)),
        (VnetHeader { gso_type: NONE, ..tcp4 }, &v4, VnetError::Kind(NONE)),
        (VnetHeader { gso_type: NONE, gso_size: 0, ..tcp4 }, &v4, VnetError::Size(0)),
        (VnetHeader { gso_size: 0, ..tcp4 }, &v4, VnetError::Size(0)),
        (VnetHeader { gso_size: 1461, ..tcp4 }, &v4, VnetError::Size(1461)),
        (VnetHeader { gso_size: u16::MAX, ..tcp4 }, &v4, VnetError::Size(u16::MAX)),
    ];
    for (vnet, packet, error) in cases {
        assert_eq!(check(vnet, packet), Err(error), "{vnet:?}");
    }
    // The length of the TCP header is what it says itself.
    let mut long = v4.clone();
    long[32] = 0xf0;
    assert_eq!(check(VnetHeader { hdr_len: 80, ..tcp4 }, &long), Err(VnetError::Size(1460)));
    assert_eq!(check(VnetHeader { hdr_len: 80, gso_size: 1420, ..tcp4 }, &long), Ok(()));
    long[32] = 0x40;
    assert_eq!(check(VnetHeader { hdr_len: 36, ..tcp4 }, &long), Err(VnetError::Headers(36)));
}

#[test]
fn what_linux_only_hints_at_is_put_right() {
    let v4 = packet(false, true);
    let said =
        VnetHeader { flags: 3, gso_type: TCP_V4, hdr_len: 1500, gso_size: 1460, csum_start: 20, csum_offset: 16 };
    assert_eq!(said.with_real_headers(&v4), VnetHeader { flags: 1, hdr_len: 40, ..said });
    assert_eq!(VnetHeader::from_device(said.to_device()), said);
    assert_eq!(said.to_frame(), [3, 1, 0xdc, 5, 0xb4, 5, 20, 0, 16, 0]);
}

/// 3 MB of super-packets with one byte in each segment would be 62 MB of packets, and cost a core at 5 Mbit/s.
#[test]
fn a_super_packet_stands_for_few_packets_and_not_for_twice_its_bytes() {
    let tcp = VnetHeader {
        flags: NEEDS_CHECKSUM,
        gso_type: TCP_V4,
        hdr_len: 40,
        gso_size: 1460,
        csum_start: 20,
        csum_offset: 16,
    };
    let udp = VnetHeader { gso_type: UDP_L4, hdr_len: 28, csum_offset: 6, ..tcp };
    for (vnet, is_tcp) in [(tcp, true), (udp, false)] {
        for payload in [1, 100, 5_000, 20_000, 60_000] {
            let packet = packet_of(payload, false, is_tcp);
            for gso_size in 1..=1460 {
                let segments = payload.div_ceil(gso_size.into());
                let bytes = segments * usize::from(vnet.hdr_len) + payload;
                let taken = check(VnetHeader { gso_size, ..vnet }, &packet).is_ok();
                assert!(!taken || segments <= 128 && bytes <= 2 * packet.len(), "{payload} {gso_size}");
                // What flows have that are not made for harm.
                assert!(taken || gso_size < 512, "{payload} {gso_size}");
            }
        }
    }
    assert_eq!(check(VnetHeader { gso_size: 1, ..tcp }, &packet(false, true)), Err(VnetError::Size(1)));
    let long = packet_of(60_000, false, true);
    assert_eq!(check(VnetHeader { gso_size: 100, ..tcp }, &long), Err(VnetError::Segments(600)));
}
