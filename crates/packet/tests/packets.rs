//! Packets to bytes and back: whole, cut, flipped and random.

use std::net::IpAddr;

use crate::support::*;
use ekiden_packet::*;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_packet_comes_back_from_its_bytes((packet, payload) in packet()) {
        let bytes = emitted(&packet, &payload);
        prop_assert!(checksums_hold(&bytes));
        let ip = if packet.source.is_ipv4() { 20 } else { 40 };
        prop_assert_eq!(bytes.len(), ip + packet.segment.header_bytes() as usize + payload.len());
        let arrived = Packet { segment: arrives(packet.segment), ..packet };
        prop_assert_eq!(Packet::parse(&bytes), Ok((arrived, &payload[..])));
        prop_assert_eq!(packet.segment.as_sent(), arrived.segment);
        prop_assert_eq!(packet.segment.header_bytes(), arrived.segment.header_bytes());
        // The ECN field is in the IP header.
        let segment = Segment { ecn: Ecn::NotEct, ..arrived.segment };
        prop_assert_eq!(Segment::parse(&bytes[ip..], packet.source, packet.destination), Ok((segment, &payload[..])));
    }

    #[test]
    fn headers_alone_are_those_of_a_payload_of_zeros((packet, payload) in packet()) {
        let whole = emitted(&packet, &vec![0; payload.len()]);
        let mut headers = vec![1, 2, 3];
        packet.emit_headers(&mut headers).unwrap();
        prop_assert_eq!(&headers[3..], &whole[..whole.len() - payload.len()]);
    }

    #[test]
    fn a_cut_packet_is_truncated((packet, payload) in packet(), cut: prop::sample::Index) {
        let bytes = emitted(&packet, &payload);
        prop_assert_eq!(Packet::parse(&bytes[..cut.index(bytes.len())]), Err(ParseError::Truncated));
    }

    #[test]
    fn bytes_after_the_packet_are_not_read((packet, payload) in packet(), padding: [u8; 6]) {
        let mut bytes = emitted(&packet, &payload);
        bytes.extend(padding);
        let arrived = Packet { segment: arrives(packet.segment), ..packet };
        prop_assert_eq!(Packet::parse(&bytes), Ok((arrived, &payload[..])));
    }

    #[test]
    fn a_damaged_packet_is_refused_or_its_checksums_hold(
        (packet, payload) in packet(), damage in vec(any::<(prop::sample::Index, u8)>(), 1..6),
    ) {
        let whole = emitted(&packet, &payload);
        let mut bytes = whole.clone();
        for (at, value) in damage {
            bytes[at.index(whole.len())] ^= value;
        }
        if let Ok((parsed, _)) = Packet::parse(&bytes) {
            // Extension headers are not for the reference.
            prop_assert!((parsed.source.is_ipv6() && bytes[6] != 6) || checksums_hold(&bytes));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..120)) {
        let _ = Packet::parse(&bytes);
        for first in [0x45, 0x46, 0x60] {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            let _ = Packet::parse(&bytes);
        }
    }

    /// TCP, or one of the headers that may stand before it, in a packet that states its right length.
    #[test]
    fn arbitrary_extension_headers_never_panic(
        mut bytes in vec(any::<u8>(), 40..160), protocol in prop::sample::select(vec![6u8, 0, 43, 44, 51, 60]), words in 0..9u8,
    ) {
        let length = bytes.len() as u16;
        bytes[0] = 0x60;
        bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
        bytes[6] = protocol;
        // The next header's next header and length.
        if let Some([next, size]) = bytes.get_mut(40..42) {
            (*next, *size) = (protocol, words);
        }
        let _ = Packet::parse(&bytes);
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[6..8].fill(0);
        bytes[9] = protocol;
        repair(&mut bytes);
        let _ = Packet::parse(&bytes);
    }

    /// The checksums are right, so that all of the TCP header is read. What is accepted can be sent again.
    #[test]
    fn arbitrary_tcp_headers_never_panic((source, destination) in addresses_of_one_version(), tcp in vec(any::<u8>(), 20..100)) {
        let empty = Packet { source, destination, segment: Segment::default() };
        let mut bytes = emitted(&empty, &[]);
        let ip = bytes.len() - 20;
        let stated = if ip == 20 { 2 } else { 4 };
        let length = if ip == 20 { 20 + tcp.len() } else { tcp.len() } as u16;
        bytes.truncate(ip);
        bytes[stated..stated + 2].copy_from_slice(&length.to_be_bytes());
        bytes.extend(&tcp);
        repair(&mut bytes);
        match Packet::parse(&bytes) {
            Ok((packet, payload)) => {
                let again = emitted(&packet, payload);
                prop_assert_eq!(Packet::parse(&again), Ok((Packet { segment: arrives(packet.segment), ..packet }, payload)));
            }
            Err(ParseError::DataOffset(offset)) => {
                prop_assert_eq!(offset, tcp[12] >> 4);
                prop_assert!(offset < 5 || usize::from(offset) * 4 > tcp.len());
            }
            Err(error) => prop_assert!(matches!(error, ParseError::OptionLength { .. }), "{}", error),
        }
    }
}

#[test]
fn no_flipped_bit_changes_a_packet_unnoticed() {
    for hex in [SYN, SYN_SIX, SACKS_BESIDE_TIMESTAMPS, SACKS_ALONE] {
        let mut plain = bytes_of(hex);
        let mut with_payload = Vec::new();
        let (mut packet, _) = Packet::parse(&plain).unwrap();
        packet.segment.payload = 41;
        packet.emit(&std::array::from_fn::<u8, 41, _>(|at| at as u8 * 5), &mut with_payload).unwrap();
        for bytes in [&mut plain, &mut with_payload] {
            let original = bytes.clone();
            let expected = Packet::parse(&original).unwrap();
            for bit in 0..original.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(mut parsed) = Packet::parse(bytes) {
                    // Traffic class, flow label and hop limit: no checksum covers them, and but for ECN they are not read.
                    assert!(original[0] >> 4 == 6 && (bit / 8 < 4 || bit / 8 == 7), "bit {bit} of {hex}");
                    parsed.0.segment.ecn = expected.0.segment.ecn;
                    assert_eq!(parsed, expected, "bit {bit} of {hex}");
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

/// These are from Linux 6.18, read from a TUN device.
const SYN: &str = "4500003c9fd44000400686e30a0100010a010002 ae881389e9bb841d00000000a002faf011570000
    020405b4 0402080a726c855900000000 0103030a";
const SYN_SIX: &str = "600cb6e200280640fd000000000000000000000000000001fd000000000000000000000000000002
    e48613895210e7f200000000a002fd20f2a90000 020405a0 0402080a46b0e57e00000000 0103030a";
const SACKS_BESIDE_TIMESTAMPS: &str =
    "450000509fd84000400686cb0a0100010a010002 ae881389e9bb841efffffff1f010003fc0010000
    0101080a726c855a000003e8 0101051a0000002d000000370000001900000023000000050000000f";
/// With net.ipv4.tcp_timestamps = 0.
const SYN_WITHOUT_TIMESTAMPS: &str = "45000034717740004006b5480a0100010a010002 b69e1389bd9ea70a000000008002faf031480000
    020405b4 01010402 0103030a";
const SACKS_ALONE: &str = "4500004c717c40004006b52b0a0100010a010002 b69e1389bd9ea70bfffffff1e010003fd5450000
    01010522000000410000004b0000002d000000370000001900000023000000050000000f";
/// The answer to a segment of a connection that is gone.
const RST: &str = "4500002800004000400626cc0a0100010a010002 ae881389e9bb841f00000000500400006bef0000";

#[test]
fn packets_of_linux_are_understood() {
    let [near, far]: [IpAddr; 2] = ["10.1.0.1".parse().unwrap(), "10.1.0.2".parse().unwrap()];
    let packet = |segment| Packet { source: near, destination: far, segment };
    let syn = Flags { syn: true, ..Flags::default() };
    let sack = |blocks: &[(u32, u32)]| -> SackBlocks {
        blocks.iter().map(|(start, end)| SackBlock { start: Seq(*start), end: Seq(*end) }).collect()
    };
    let first = Segment {
        source: 44680,
        destination: 5001,
        seq: Seq(0xe9bb841d),
        ack: None,
        flags: syn,
        window: 64240,
        options: Options {
            mss: Some(1460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 0x726c8559, echo: 0 }),
            sack: SackBlocks::default(),
        },
        ..Segment::default()
    };
    let options = Options {
        timestamps: Some(Timestamps { value: 0x726c855a, echo: 1000 }),
        sack: sack(&[(45, 55), (25, 35), (5, 15)]),
        ..Options::default()
    };
    let beside = Segment {
        seq: Seq(0xe9bb841e),
        ack: Some(Seq(0xfffffff1)),
        flags: Flags::default(),
        window: 63,
        options,
        ..first
    };
    let sack = sack(&[(65, 75), (45, 55), (25, 35), (5, 15)]);
    let alone =
        Segment { source: 46750, seq: Seq(0xbd9ea70b), options: Options { sack, ..Options::default() }, ..beside };
    let without = Segment {
        source: 46750,
        seq: Seq(0xbd9ea70a),
        options: Options { timestamps: None, ..first.options },
        ..first
    };
    let reset = Segment {
        seq: Seq(0xe9bb841f),
        flags: Flags { rst: true, ..Flags::default() },
        window: 0,
        options: Options::default(),
        ..first
    };
    let six = Packet {
        source: "fd00::1".parse().unwrap(),
        destination: "fd00::2".parse().unwrap(),
        segment: Segment {
            source: 58502,
            seq: Seq(0x5210e7f2),
            window: 64800,
            options: Options {
                mss: Some(1440),
                timestamps: Some(Timestamps { value: 0x46b0e57e, echo: 0 }),
                ..first.options
            },
            ..first
        },
    };
    for (hex, expected) in [
        (SYN, packet(first)),
        (SACKS_BESIDE_TIMESTAMPS, packet(beside)),
        (SYN_WITHOUT_TIMESTAMPS, packet(without)),
        (SACKS_ALONE, packet(alone)),
        (RST, packet(reset)),
        (SYN_SIX, six),
    ] {
        let mut linux = bytes_of(hex);
        assert_eq!(Packet::parse(&linux), Ok((expected, &[][..])));
        // The fields in which ours differ: IPv4's identification, IPv6's flow label.
        if linux[0] == 0x45 {
            linux[4..6].fill(0)
        } else {
            linux[1..4].fill(0)
        }
        repair(&mut linux);
        assert_eq!(emitted(&expected, &[]), linux);
    }
}

#[test]
fn every_error_of_a_packet_has_its_cause() {
    let edited = |hex: &str, edits: &[(usize, u8)]| {
        let mut bytes = bytes_of(hex);
        for (at, value) in edits {
            bytes[*at] = *value;
        }
        repair(&mut bytes);
        Packet::parse(&bytes).map(|_| ())
    };
    assert_eq!(edited(SYN, &[]), Ok(()));
    assert_eq!(Packet::parse(&[]), Err(ParseError::Truncated));
    assert_eq!(Packet::parse(&[0x55; 60]), Err(ParseError::Version(5)));
    assert_eq!(edited(SYN, &[(0, 0x44)]), Err(ParseError::IpHeader));
    assert_eq!(edited(SYN, &[(3, 61)]), Err(ParseError::Truncated));
    assert_eq!(edited(SYN, &[(3, 19)]), Err(ParseError::Truncated));
    assert_eq!(edited(SYN, &[(3, 39)]), Err(ParseError::Truncated));
    assert_eq!(edited(SYN, &[(6, 0x20)]), Err(ParseError::Fragment));
    assert_eq!(edited(SYN, &[(7, 1)]), Err(ParseError::Fragment));
    assert_eq!(edited(SYN, &[(9, 17)]), Err(ParseError::NotTcp(17)));
    assert_eq!(edited(SYN, &[(32, 0x40)]), Err(ParseError::DataOffset(4)));
    assert_eq!(edited(SYN, &[(32, 0xb0)]), Err(ParseError::DataOffset(11)));
    assert_eq!(edited(SYN, &[(41, 3)]), Err(ParseError::OptionLength { kind: 2, length: 3 }));
    assert_eq!(edited(SYN_SIX, &[(5, 0)]), Err(ParseError::Truncated));
    assert_eq!(edited(SYN_SIX, &[(6, 17)]), Err(ParseError::NotTcp(17)));
    assert_eq!(edited(SYN_SIX, &[(6, 44)]), Err(ParseError::Fragment));
    let mut bytes = bytes_of(SYN);
    bytes[36] ^= 1;
    assert_eq!(Packet::parse(&bytes), Err(ParseError::TcpChecksum));
    bytes[8] -= 1;
    assert_eq!(Packet::parse(&bytes), Err(ParseError::IpChecksum));
    let any = IpAddr::from([0; 4]);
    assert_eq!(Segment::parse(&[0; 65536], any, any), Err(ParseError::TooLong));
    assert_eq!(Segment::parse(&[0; 19], any, any), Err(ParseError::Truncated));
}

#[test]
fn what_no_ip_packet_can_carry_is_not_emitted() {
    let [four, six]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    let packet = |source, destination, payload| Packet {
        source,
        destination,
        segment: Segment { payload, ..Segment::default() },
    };
    let mut into = vec![7];
    let headers = |packet: Packet, into: &mut Vec<u8>| packet.emit_headers(into);
    assert_eq!(headers(packet(four, four, 65496), &mut into), Err(EmitError::TooLong(65496)));
    assert_eq!(headers(packet(six, six, 65516), &mut into), Err(EmitError::TooLong(65516)));
    assert_eq!(headers(packet(six, six, u32::MAX), &mut into), Err(EmitError::TooLong(u32::MAX)));
    let addresses = EmitError::Addresses { source_address: four, destination_address: six };
    assert_eq!(headers(packet(four, six, 0), &mut into), Err(addresses));
    assert_eq!(packet(four, four, 2).emit(&[0], &mut into), Err(EmitError::Payload { stated: 2, given: 1 }));
    assert_eq!(into, [7]);
    for (address, payload) in [(four, 65495), (six, 65515)] {
        let longest = packet(address, address, payload);
        assert_eq!(Packet::parse(&emitted(&longest, &vec![9; payload as usize])).unwrap().0, longest);
    }
}

#[test]
fn fields_that_are_not_read_do_not_matter() {
    let expected = Packet::parse(&bytes_of(SYN)).unwrap().0;
    // DSCP; identification; TTL; acknowledgment number without ACK; reserved bits; URG; urgent pointer.
    for (at, value) in [(1, 0xfc), (4, 9), (8, 1), (28, 9), (32, 0xaf), (33, 0x22), (38, 9)] {
        let mut bytes = bytes_of(SYN);
        bytes[at] = value;
        repair(&mut bytes);
        assert_eq!(Packet::parse(&bytes).unwrap().0, expected, "byte {at}");
    }
}

#[test]
fn ip_options_and_extension_headers_are_skipped() {
    let mut four = bytes_of(SYN);
    let expected = Packet::parse(&four).unwrap().0;
    four.splice(20..20, [1, 1, 1, 0]);
    (four[0], four[3]) = (0x46, 64);
    four[10..12].fill(0);
    let sum = checksum(&four[..24]);
    four[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(Packet::parse(&four).unwrap().0, expected);

    let mut six = bytes_of(SYN_SIX);
    let expected = Packet::parse(&six).unwrap().0;
    // Destination options: next header TCP, 8 bytes, a PadN of four.
    six.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
    (six[5], six[6]) = (48, 60);
    assert_eq!(Packet::parse(&six).unwrap().0, expected);
    // A fragment header of a first fragment of several.
    (six[6], six[43]) = (44, 1);
    assert_eq!(Packet::parse(&six), Err(ParseError::Fragment));
}
