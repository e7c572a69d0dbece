//! Reading headers: the shapes of packets that pass, and any bytes.

use std::net::SocketAddr;

use ekiden_window_balance::frame::{Frame, NotRead, Passing, parse};
use ekiden_window_balance::{Block, Direction, flags};
use proptest::prelude::*;

const ACKS: Passing = Passing { time_us: 7, direction: Direction::Acks, segment: 0 };

/// A TCP header with these options, of port 1234 to 443, and a payload.
fn tcp(bits: u8, options: &[u8], payload: usize) -> Vec<u8> {
    let mut tcp = vec![4, 210, 1, 187, 0, 0, 0, 9, 0, 0, 1, 0];
    tcp.extend([((20 + options.len()) / 4 * 16) as u8, bits, 0x12, 0x34, 0, 0, 0, 0]);
    tcp.extend(options);
    tcp.extend(vec![0xaa; payload]);
    tcp
}

fn ipv4(tcp: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend(((20 + tcp.len()) as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    ip.extend(tcp);
    ip
}

fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((rest.len() as u16).to_be_bytes());
    ip.extend([next, 64]);
    ip.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    ip.extend(rest);
    ip
}

/// With an Ethernet header of these types.
fn ethernet(types: &[u16], ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    for (index, kind) in types.iter().enumerate() {
        frame.extend(kind.to_be_bytes());
        if index + 1 < types.len() {
            frame.extend([0, 5]);
        }
    }
    frame.extend(ip);
    frame
}

fn read(frame: &[u8]) -> Frame {
    parse(frame, ACKS).expect("it is read")
}

#[test]
fn a_plain_packet_is_read() {
    let frame = ethernet(&[0x0800], &ipv4(&tcp(flags::ACK, &[], 3)));
    let read = read(&frame);
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert_eq!((read.source, read.destination), (address("192.0.2.1:1234"), address("198.51.100.2:443")));
    assert_eq!((read.window_at, read.checksum_at), (14 + 20 + 14, 14 + 20 + 16));
    let packet = read.packet;
    assert_eq!((packet.seq, packet.ack, packet.window, packet.flags), (9, 256, 0x1234, flags::ACK));
    assert_eq!((packet.length, packet.segment, packet.scale, packet.blocks), (3, 3, -1, 0));
    assert_eq!((packet.time_us, packet.direction), (7, Direction::Acks));
    // Padded to the least length of Ethernet: the payload is what IP says.
    let padded = [frame, vec![0; 20]].concat();
    assert_eq!(parse(&padded, ACKS), Ok(read));
}

#[test]
fn tags_and_extensions_stand_before_it() {
    let inside = ipv4(&tcp(flags::ACK, &[], 0));
    assert_eq!(read(&ethernet(&[0x8100, 0x0800], &inside)).window_at, 18 + 20 + 14);
    assert_eq!(read(&ethernet(&[0x88a8, 0x8100, 0x0800], &inside)).window_at, 22 + 20 + 14);
    assert_eq!(parse(&ethernet(&[0x8100, 0x8100, 0x8100, 0x0800], &inside), ACKS), Err(NotRead::Other));
    let extended = [&[60, 1][..], &[0; 14], &[6, 0], &[0; 6], &tcp(flags::ACK, &[], 0)].concat();
    let read = read(&ethernet(&[0x86dd], &ipv6(0, &extended)));
    assert_eq!((read.window_at, read.source.to_string().as_str()), (14 + 40 + 24 + 14, "[fd00::1]:1234"));
}

#[test]
fn options_are_read_in_any_order() {
    let with = |options: &[u8]| parse(&ethernet(&[0x0800], &ipv4(&tcp(flags::ACK, options, 0))), ACKS);
    let block = |start: u32, end: u32| [start.to_be_bytes(), end.to_be_bytes()].concat();
    let timed = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let usual = [&timed[..], &[1, 1, 5, 18], &block(10, 20), &block(30, 40)].concat();
    let otherwise = [&[5, 18][..], &block(10, 20), &block(30, 40), &timed[2..], &[1, 0]].concat();
    for options in [usual, otherwise] {
        let packet = with(&options).expect("it is read").packet;
        assert_eq!(packet.blocks, 2);
        assert_eq!(packet.block[..2], [Block { start: 10, end: 20 }, Block { start: 30, end: 40 }]);
        assert_eq!(packet.block[2], Block::default());
    }
    assert_eq!(with(&[3, 3, 7, 0]).expect("it is read").packet.scale, 7);
    assert_eq!(with(&[3, 4, 7, 0]).expect("a scale of another length is none").packet.scale, -1);
    assert_eq!(with(&[5, 8, 0, 0, 0, 0, 0, 0]).expect("so are blocks").packet.blocks, 0);
    assert_eq!(with(&[&[19, 18][..], &[0; 18]].concat()), Err(NotRead::Signed));
    assert_eq!(with(&[29, 4, 0, 0]), Err(NotRead::Signed));
    assert_eq!(with(&[2, 0, 0, 0]), Err(NotRead::Malformed));
    assert_eq!(with(&[1, 1, 1, 3]), Err(NotRead::Malformed));
    assert_eq!(with(&[1, 1, 3, 3]), Err(NotRead::Malformed));
    // Nothing counts behind the end of the list.
    assert!(with(&[0, 19, 9, 9]).is_ok());
}

#[test]
fn packets_put_together_tell_their_segments() {
    let frame = ethernet(&[0x0800], &ipv4(&tcp(flags::ACK, &[], 4000)));
    let packet =
        parse(&frame, Passing { direction: Direction::Data, segment: 1448, ..ACKS }).expect("it is read").packet;
    assert_eq!((packet.length, packet.segment), (4000, 1448));
    // Larger than the header can say: it says 0.
    let mut big = frame.clone();
    big[16..18].fill(0);
    let packet = parse(&big, Passing { segment: 1448, ..ACKS }).expect("it is read").packet;
    assert_eq!((packet.length, packet.segment), (4000, 1448));
    assert_eq!(parse(&big, ACKS), Err(NotRead::Malformed));
}

/// Bytes that look like a frame as far as they go.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let options = prop::collection::vec(prop_oneof![Just(0), Just(1), Just(3), Just(5), Just(19), any::<u8>()], 0..11)
        .prop_map(|bytes| bytes.repeat(4));
    let types = prop_oneof![Just(vec![]), Just(vec![0x8100]), Just(vec![0x88a8, 0x8100])];
    let shape = (types, any::<bool>(), any::<u8>(), options, 0_usize..60);
    let frame = shape.prop_map(|(mut types, is_4, bits, options, payload)| {
        let tcp = tcp(bits, &options[..options.len().min(40)], payload);
        types.push(if is_4 { 0x0800 } else { 0x86dd });
        ethernet(&types, &if is_4 { ipv4(&tcp) } else { ipv6(6, &tcp) })
    });
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5);
    (frame, changes, any::<prop::sample::Index>(), any::<bool>()).prop_map(|(mut frame, changes, end, is_cut)| {
        for (index, value) in changes {
            let at = index.index(frame.len());
            frame[at] = value;
        }
        if is_cut {
            frame.truncate(end.index(frame.len()));
        }
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn whatever_is_read_lies_within(
        frame in prop_oneof![frames(), prop::collection::vec(any::<u8>(), 0..200)],
        is_data: bool,
        segment in prop_oneof![Just(0), any::<u32>()],
    ) {
        let direction = if is_data { Direction::Data } else { Direction::Acks };
        let passing = Passing { time_us: 1, direction, segment };
        // A vector of just this size: what reads behind it is found by tools that look for that.
        let frame = frame.into_boxed_slice();
        if let Ok(read) = parse(&frame, passing) {
            let header = read.window_at - 14;
            let header_bytes = usize::from(frame[header + 12] >> 4) * 4;
            prop_assert!(header + header_bytes + read.packet.length as usize <= frame.len());
            prop_assert!(read.checksum_at == header + 16 && read.checksum_at + 2 <= frame.len());
            prop_assert_eq!(read.packet.window.to_be_bytes(), [frame[read.window_at], frame[read.window_at + 1]]);
            prop_assert_eq!(read.source.port().to_be_bytes(), [frame[header], frame[header + 1]]);
            prop_assert!(read.packet.blocks <= 4 && read.packet.scale >= -1 && read.packet.scale <= 255);
            prop_assert_eq!(read.source.is_ipv4(), read.destination.is_ipv4());
            // The bytes behind the packet make no difference.
            let longer = [&frame[..], &[0x5a; 64]].concat();
            let again = parse(&longer, passing);
            prop_assert!(segment != 0 || again == Ok(read));
        }
    }
}
