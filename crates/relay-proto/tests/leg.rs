//! The leg protocol: its two ends against each other, and arbitrary bytes against each.

use ekiden_relay_proto::leg::*;
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};
use proptest::prelude::*;

/// The body of a frame, whose header must fit it.
fn body(frame: &[u8], kind: FrameKind) -> &[u8] {
    let (header, body) = frame.split_first_chunk::<HEADER_BYTES>().unwrap();
    assert_eq!(Header::decode(*header), Ok(Header { kind, length: body.len() as u32 }));
    body
}

const KEY: SharedSecret = SharedSecret([7; 32]);

#[test]
fn two_nodes_with_one_key_find_each_other() {
    let dialler = Dialler::new(KEY, "island", [1; 32]);
    let mut acceptor = Acceptor::new(KEY, [2; 32]);
    let hello = acceptor.hello(body(&dialler.hello(), FrameKind::Hello)).unwrap();
    let auth = dialler.auth(body(&hello, FrameKind::Hello)).unwrap();
    assert_eq!(acceptor.authenticate(body(&auth, FrameKind::Auth)), Ok("island".to_owned()));
}

#[test]
fn another_key_is_noticed_by_both_ends() {
    let dialler = Dialler::new(SharedSecret([8; 32]), "island", [1; 32]);
    let mut acceptor = Acceptor::new(KEY, [2; 32]);
    let hello = acceptor.hello(body(&dialler.hello(), FrameKind::Hello)).unwrap();
    assert_eq!(dialler.auth(body(&hello, FrameKind::Hello)), Err(HandshakeError::WrongKey));
    // A dialler that does not care, and one that sends what the acceptor itself sent.
    let mut forged = body(&hello, FrameKind::Hello)[1 + NONCE_BYTES..].to_vec();
    forged.extend(b"island");
    assert_eq!(acceptor.authenticate(&forged), Err(HandshakeError::WrongKey));
}

#[test]
fn a_recorded_proof_is_worth_nothing_on_another_connection() {
    let dialler = Dialler::new(KEY, "island", [1; 32]);
    let mut first = Acceptor::new(KEY, [2; 32]);
    let hello = first.hello(body(&dialler.hello(), FrameKind::Hello)).unwrap();
    let auth = dialler.auth(body(&hello, FrameKind::Hello)).unwrap();
    let mut second = Acceptor::new(KEY, [3; 32]);
    second.hello(body(&dialler.hello(), FrameKind::Hello)).unwrap();
    assert_eq!(second.authenticate(body(&auth, FrameKind::Auth)), Err(HandshakeError::WrongKey));
    // The acceptor's recorded HELLO for another dialler's nonce.
    let other = Dialler::new(KEY, "island", [4; 32]);
    assert_eq!(other.auth(body(&hello, FrameKind::Hello)), Err(HandshakeError::WrongKey));
    // A proof for one name is not one for another.
    let mut renamed = body(&auth, FrameKind::Auth).to_vec();
    *renamed.last_mut().unwrap() = b'x';
    assert_eq!(first.authenticate(&renamed), Err(HandshakeError::WrongKey));
}

#[test]
fn another_version_is_named() {
    let mut acceptor = Acceptor::new(KEY, [2; 32]);
    let mut hello = vec![2];
    hello.extend([0; 32]);
    assert_eq!(acceptor.hello(&hello), Err(HandshakeError::Version(2)));
}

#[test]
fn a_key_is_not_printed_and_must_be_64_digits() {
    assert_eq!(SharedSecret::from_hex(&format!(" {}\n", "07".repeat(32))), Some(KEY));
    assert_eq!(SharedSecret::from_hex(&"7".repeat(63)), None);
    assert_eq!(SharedSecret::from_hex(&"x".repeat(64)), None);
    assert!(!format!("{KEY:?}").contains('7'));
}

#[test]
fn the_byte_layouts_are_those_of_the_document() {
    let open = Open {
        chain: vec!["tokyo".into()],
        class: String::new(),
        target: Target { host: Host::Name("a.b".into()), port: 80 },
        client: None,
        id: None,
    };
    assert_eq!(open.encode(), b"\x03\0\0\0\0\0\0\x0f\x01\x05tokyo\0\x03\x03a.b\0\x50");
    let id = Some(*b"0123456789abcdef");
    assert_eq!(Open { id, ..open.clone() }.encode()[8 + 15..], *b"\x050123456789abcdef");
    let client = Some("192.0.2.9:4660".parse().unwrap());
    assert_eq!(
        Open { client, class: "web".into(), ..open }.encode(),
        b"\x03\0\0\0\0\0\0\x19\x01\x05tokyo\x03web\x03\x03a.b\0\x50\x01\xc0\0\x02\x09\x12\x34"
    );
    assert_eq!(
        encode_opened(Some("192.0.2.1:258".parse().unwrap())),
        b"\x04\0\0\0\0\0\0\x07\x01\xc0\0\x02\x01\x01\x02"
    );
    let failure = Failure::new(FailureCode::Refused, "no");
    assert_eq!(encode_failed(&failure), b"\x05\0\0\0\0\0\0\x03\x01no");
    assert_eq!(Header { kind: FrameKind::Data, length: 258 }.encode(), *b"\x06\0\0\0\0\0\x01\x02");
    assert_eq!(Header { kind: FrameKind::Delivered, length: 0 }.encode(), *b"\x09\0\0\0\0\0\0\0");
    assert!(Header::decode(*b"\x09\0\0\0\0\0\0\x01").is_err());
}

fn target() -> impl Strategy<Value = Target> {
    let host = prop_oneof![
        any::<std::net::IpAddr>().prop_map(Host::Ip),
        "[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,9}){0,3}".prop_map(Host::Name),
    ];
    (host, 1u16..).prop_map(|(host, port)| Target { host, port })
}

proptest! {
    #[test]
    fn messages_read_back(
        target in target(),
        chain in prop::collection::vec("[a-z0-9_.-]{1,64}", 0..=MAX_CHAIN),
        class in "[a-z0-9_.-]{0,64}",
        client in prop::option::of((any::<std::net::IpAddr>(), 1u16..).prop_map(std::net::SocketAddr::from)),
        id: Option<[u8; ID_BYTES]>,
    ) {
        let open = Open { chain, class, target, client, id };
        prop_assert_eq!(Open::decode(body(&open.encode(), FrameKind::Open)), Ok(open));
    }

    #[test]
    fn answers_read_back(address: std::net::SocketAddrV4, code in 1u8..=12, text in "[a-z :0-9]{0,200}") {
        let address = address.into();
        prop_assert_eq!(decode_opened(body(&encode_opened(Some(address)), FrameKind::Opened)), Ok(address));
        let failure = Failure::new(FailureCode::from_wire(code), text);
        prop_assert_eq!(decode_failed(body(&encode_failed(&failure), FrameKind::Failed)), Ok(failure));
    }

    #[test]
    fn arbitrary_bodies_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Open::decode(&bytes);
        let _ = decode_opened(&bytes);
        let _ = decode_failed(&bytes);
        let mut acceptor = Acceptor::new(KEY, [2; 32]);
        let _ = acceptor.hello(&bytes);
        prop_assert!(acceptor.authenticate(&bytes).is_err());
        prop_assert!(Dialler::new(KEY, "x", [1; 32]).auth(&bytes).is_err());
    }

    #[test]
    fn a_stream_reads_the_same_however_it_is_split(
        pieces in prop::collection::vec(1u32..2000, 0..8),
        end in prop_oneof![Just(FrameKind::End), Just(FrameKind::Delivered)],
        tail in prop::collection::vec(any::<u8>(), 0..20),
        cuts in prop::collection::vec(1usize..700, 1..40),
    ) {
        let mut wire = Vec::new();
        for length in pieces {
            wire.extend(Header { kind: FrameKind::Data, length }.encode());
            wire.extend(vec![0xab; length as usize]);
        }
        wire.extend(Header { kind: end, length: 0 }.encode());
        let length = wire.len();
        wire.extend(tail);
        let event = if end == FrameKind::End { Event::End } else { Event::Delivered };
        let by_dialler = receive(dialler(), &wire, &[usize::MAX]);
        prop_assert_eq!((&by_dialler.1, by_dialler.2), (&Some(Ok(event)), length));
        prop_assert_eq!(receive(dialler(), &wire, &cuts), by_dialler);
        let by_acceptor = receive(FrameDecoder::default(), &wire, &[usize::MAX]);
        let expected = if end == FrameKind::End { Ok(Event::End) } else { Err(ProtocolError::OutOfPlace(end)) };
        prop_assert_eq!((&by_acceptor.1, by_acceptor.2), (&Some(expected), length));
        prop_assert_eq!(receive(FrameDecoder::default(), &wire, &cuts), by_acceptor);
    }

    #[test]
    fn arbitrary_bytes_read_the_same_however_they_are_split(
        wire in prop::collection::vec(prop_oneof![Just(0u8), 0u8..11, any::<u8>()], 0..400),
        cuts in prop::collection::vec(1usize..30, 1..40),
    ) {
        for decoder in [FrameDecoder::default(), dialler()] {
            prop_assert_eq!(receive(decoder, &wire, &cuts), receive(decoder, &wire, &[usize::MAX]));
        }
    }
}

#[test]
fn only_a_reset_may_follow_an_end_and_delivered_both() {
    let header = |kind, length| Header { kind, length }.encode();
    let ended = |mut decoder: FrameDecoder| {
        assert_eq!(decoder.took_header(&header(FrameKind::End, 0)), Ok(Some(Event::End)));
        decoder
    };
    let refused = |mut decoder: FrameDecoder, kind, length| {
        assert_eq!(decoder.took_header(&header(kind, length)), Err(ProtocolError::OutOfPlace(kind)));
    };
    for (kind, length) in [(FrameKind::Data, 3), (FrameKind::End, 0)] {
        refused(ended(dialler()), kind, length);
        refused(ended(FrameDecoder::default()), kind, length);
    }
    assert_eq!(ended(dialler()).took_header(&header(FrameKind::Reset, 2)), Ok(Some(Event::Reset(2))));
    let mut delivered = ended(dialler());
    assert_eq!(delivered.took_header(&header(FrameKind::Delivered, 0)), Ok(Some(Event::Delivered)));
    refused(delivered, FrameKind::Delivered, 0);
    // Nothing can be delivered whose end was not said.
    refused(ended(FrameDecoder::default()), FrameKind::Delivered, 0);
}

/// A dialler's receiving half after its END.
fn dialler() -> FrameDecoder {
    let mut decoder = FrameDecoder::default();
    decoder.said_end();
    decoder
}

/// What a receiver that reads at most as many bytes at once as `cuts` say (again and again) makes of `wire`: the payload's
/// length, how it ended, and how many bytes it took.
fn receive(
    mut decoder: FrameDecoder,
    wire: &[u8],
    cuts: &[usize],
) -> (usize, Option<Result<Event, ProtocolError>>, usize) {
    let mut payload = 0;
    let mut at = 0;
    let mut cuts = cuts.iter().cycle();
    while at < wire.len() {
        let cut = *cuts.next().unwrap();
        let due = decoder.payload() as usize;
        let n = if due > 0 { due.min(cut) } else { decoder.header_missing().min(cut) }.min(wire.len() - at);
        let bytes = &wire[at..at + n];
        at += n;
        if due > 0 {
            decoder.took_payload(n as u32);
            payload += n;
            continue;
        }
        match decoder.took_header(bytes) {
            Ok(Some(Event::Data(length))) => assert!(length <= MAX_DATA),
            Ok(Some(end)) => return (payload, Some(Ok(end)), at),
            Ok(None) => {}
            Err(violation) => return (payload, Some(Err(violation)), at),
        }
    }
    (payload, None, at)
}
