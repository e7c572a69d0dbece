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

/// The body of a dialler's HELLO that offers these versions.
fn offer(versions: &[u8]) -> Vec<u8> {
    [&[versions.len() as u8], versions, &[0; NONCE_BYTES]].concat()
}

#[test]
fn of_several_versions_one_is_taken_that_both_speak_and_otherwise_both_are_named() {
    let newest = VERSIONS[0];
    let answered = Acceptor::new(KEY, [2; 32]).hello(&offer(&[newest + 2, newest + 1, newest])).unwrap();
    assert_eq!(body(&answered, FrameKind::Hello)[0], newest);
    let refused = Acceptor::new(KEY, [2; 32]).hello(&offer(&[newest + 2, newest + 1])).unwrap_err();
    assert_eq!(refused, HandshakeError::Version(vec![newest + 2, newest + 1]));
    let said = format!(
        "the other node speaks version {}, {} of the leg protocol, and this one {newest}",
        newest + 2,
        newest + 1
    );
    assert_eq!(refused.to_string(), said);
    for malformed in [&[][..], &[0], &[1, 2], &offer(&[]), &offer(&[2; 17]), &[&offer(&[2])[..], &[0]].concat()] {
        assert_eq!(Acceptor::new(KEY, [2; 32]).hello(malformed), Err(HandshakeError::Malformed), "{malformed:?}");
    }
}

#[test]
fn nobody_between_two_nodes_changes_the_versions_that_they_offer() {
    let dialler = Dialler::new(KEY, "island", [1; 32]);
    let mut acceptor = Acceptor::new(KEY, [2; 32]);
    // The offer of a newer dialler, without its newest version.
    let offered = body(&dialler.hello(), FrameKind::Hello).to_vec();
    let longer = [&[2, VERSIONS[0], VERSIONS[0] + 1], &offered[2..]].concat();
    let hello = acceptor.hello(&longer).unwrap();
    assert_eq!(dialler.auth(body(&hello, FrameKind::Hello)), Err(HandshakeError::WrongKey));
    // The acceptor's choice.
    let mut hello = body(&acceptor.hello(&offered).unwrap(), FrameKind::Hello).to_vec();
    hello[0] += 1;
    assert_eq!(dialler.auth(&hello), Err(HandshakeError::WrongKey));
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
        passed: Vec::new(),
    };
    assert_eq!(open.encode(), b"\x03\0\0\0\0\0\0\x0f\x01\x05tokyo\0\x03\x03a.b\0\x50");
    let id = Some(*b"0123456789abcdef");
    assert_eq!(Open { id, ..open.clone() }.encode()[8 + 15..], *b"\0\x02\0\x100123456789abcdef");
    let client = Some("192.0.2.9:4660".parse().unwrap());
    assert_eq!(
        Open { client, class: "web".into(), ..open }.encode(),
        b"\x03\0\0\0\0\0\0\x1d\x01\x05tokyo\x03web\x03\x03a.b\0\x50\0\x01\0\x07\x01\xc0\0\x02\x09\x12\x34"
    );
    assert_eq!(
        Opened { bound: "192.0.2.1:258".parse().unwrap(), passed: Vec::new() }.encode(),
        b"\x04\0\0\0\0\0\0\x07\x01\xc0\0\x02\x01\x01\x02"
    );
    let failure = Failure::new(FailureCode::Refused, "no");
    assert_eq!(encode_failed(&failure), b"\x05\0\0\0\0\0\0\x04\x01\x02no");
    assert_eq!(encode_ask(&["tokyo".to_owned()]), b"\x0a\0\0\0\0\0\0\x07\x01\x05tokyo");
    let about = About { build: "0.1.0".into(), capabilities: 5, asks: true };
    assert_eq!(about.encode(), b"\x0e\x01\0\0\0\0\0\x19\0\x01\0\x050.1.0\0\x02\0\x08\0\0\0\0\0\0\0\x05\0\x03\0\0");
    assert_eq!(Header { kind: FrameKind::Data, length: 258 }.encode(), *b"\x06\0\0\0\0\0\x01\x02");
    assert_eq!(Header { kind: FrameKind::Delivered, length: 0 }.encode(), *b"\x09\0\0\0\0\0\0\0");
    assert!(Header::decode(*b"\x09\0\0\0\0\0\0\x01").is_err());
}

/// Fields that no node knows, for the last one.
fn unknown_fields() -> impl Strategy<Value = Vec<u8>> {
    let field = (100u16..0x4000, prop::collection::vec(any::<u8>(), 0..20));
    prop::collection::vec(field, 0..4).prop_map(|all| {
        let mut bytes = Vec::new();
        all.iter().for_each(|(kind, value)| fields::put(&mut bytes, *kind, value));
        bytes
    })
}

#[test]
fn unknown_fields_are_passed_on_unless_they_are_for_this_node_alone_and_refused_where_they_are_required() {
    const REQUIRED: u16 = 0x8000;
    const HOP: u16 = 0x4000;
    let read = |chain: &[&str], kind: u16| {
        let (mut passed, chain) = (Vec::new(), chain.iter().map(|name| name.to_string()).collect());
        fields::put(&mut passed, kind, b"value");
        let target = Target { host: Host::Name("a".into()), port: 1 };
        let open = Open { chain, class: String::new(), target, client: None, id: None, passed: passed.clone() };
        let read = Open::decode(body(&open.encode(), FrameKind::Open));
        read.map(|open| if open.passed == passed { "passed" } else { "skipped" })
    };
    let error = |kind| MessageError::Required(FrameKind::Open, kind);
    let refused = |kind| Err(error(kind));
    for (kind, in_the_middle, at_the_exit) in [
        (100, Ok("passed"), Ok("passed")),
        (100 | HOP, Ok("skipped"), Ok("skipped")),
        (100 | REQUIRED, Ok("passed"), refused(100 | REQUIRED)),
        (100 | REQUIRED | HOP, refused(100 | REQUIRED | HOP), refused(100 | REQUIRED | HOP)),
    ] {
        assert_eq!((read(&["tokyo"], kind), read(&[], kind)), (in_the_middle, at_the_exit), "{kind:#x}");
    }
    assert_eq!(
        error(100 | REQUIRED).to_string(),
        "a Open frame that requires field 0x8064, which this node does not know"
    );
}

#[test]
fn a_known_field_comes_once_and_whole() {
    let open = Open {
        chain: Vec::new(),
        class: String::new(),
        target: Target { host: Host::Name("a".into()), port: 1 },
        client: Some("192.0.2.9:4660".parse().unwrap()),
        id: Some([7; ID_BYTES]),
        passed: Vec::new(),
    };
    let encoded = open.encode();
    let whole = body(&encoded, FrameKind::Open);
    let bare = Open { client: None, id: None, ..open }.encode().len() - HEADER_BYTES;
    let fields = &whole[bare..];
    let refused = |bytes: &[u8]| assert_eq!(Open::decode(bytes), Err(MessageError::Malformed(FrameKind::Open)));
    refused(&[whole, fields].concat());
    refused(&[whole, &fields[..11]].concat());
    // Cut anywhere but between two fields.
    (bare + 1..whole.len()).filter(|cut| cut - bare != 11).for_each(|cut| refused(&whole[..cut]));
    let about = About::own().encode();
    let twice = [body(&about, FrameKind::About), body(&about, FrameKind::About)].concat();
    assert_eq!(About::decode(&twice), Err(MessageError::Malformed(FrameKind::About)));
    let mut longer = whole[..bare].to_vec();
    fields::put(&mut longer, 2, &[7; ID_BYTES + 1]);
    refused(&longer);
    // No chain, no class; an address where a name is due.
    for text in ["::", "192.0.2.1", "::ffff:192.0.2.1"] {
        refused(&[&[0, 0, 3, text.len() as u8], text.as_bytes(), &[0, 80]].concat());
    }
}

#[test]
fn a_frame_of_an_unknown_type_is_skipped_only_if_its_sender_says_so() {
    let header = |kind, flags, length: u8| [kind, flags, 0, 0, 0, 0, 0, length];
    assert_eq!(Header::read(header(77, 0, 3)), Err(ProtocolError::UnknownType(77)));
    for first in [0, b'E'] {
        assert_eq!(Header::read(header(first, 1, 3)), Err(ProtocolError::OtherProgram));
    }
    assert_eq!(Header::decode(header(77, 1, 3)), Err(ProtocolError::UnknownType(77)), "where no other may be");
    let Ok(Found::Unknown(unknown)) = Header::read(header(77, 3, 3)) else { panic!("it may be skipped") };
    assert_eq!((unknown.length(), unknown.is_passed(), unknown.encode()), (3, true, header(77, 3, 3)));
    assert!(matches!(Header::read(header(77, 1, 3)), Ok(Found::Unknown(unknown)) if !unknown.is_passed()));
    let long = [77, 1, 0, 0, 0, 0, 16, 1];
    assert_eq!(Header::read(long), Err(ProtocolError::UnknownLength { kind: 77, length: 4097 }));
    // A known one has no flags but its own.
    assert_eq!(Header::read(header(6, 1, 3)), Err(ProtocolError::Reserved));
    assert!(matches!(Header::read(header(14, 1, 0)), Ok(Found::Known(Header { kind: FrameKind::About, .. }))));
}

#[test]
fn what_is_skipped_in_a_stream_is_none_of_its_payload() {
    let mut decoder = FrameDecoder::default();
    let unknown = [77, 1, 0, 0, 0, 0, 0, 2];
    assert!(matches!(decoder.took_header(&unknown), Ok(Some(Event::Unknown(_)))));
    assert!(decoder.payload() == 2 && decoder.is_unknown());
    decoder.took_payload(1);
    assert!(decoder.is_unknown());
    decoder.took_payload(1);
    assert!(!decoder.is_unknown());
    assert_eq!(decoder.took_header(&Header { kind: FrameKind::Data, length: 3 }.encode()), Ok(Some(Event::Data(3))));
    assert!(!decoder.is_unknown());
    decoder.took_payload(3);
    decoder.took_header(&Header { kind: FrameKind::End, length: 0 }.encode()).unwrap();
    assert_eq!(decoder.took_header(&unknown), Err(ProtocolError::UnknownType(77)), "behind END");
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
        unknown in unknown_fields(),
    ) {
        let passed = unknown;
        let open = Open { chain, class, target, client, id, passed };
        prop_assert_eq!(Open::decode(body(&open.encode(), FrameKind::Open)), Ok(open));
    }

    #[test]
    fn answers_read_back(address: std::net::SocketAddrV4, code: u8, text in "[a-z :0-9]{0,200}", passed in unknown_fields()) {
        let opened = Opened { bound: address.into(), passed: passed.clone() };
        prop_assert_eq!(Opened::decode(body(&opened.encode(), FrameKind::Opened)), Ok(opened));
        // Also a code that this node does not know.
        let failure = Failure::told(code, &text, passed);
        prop_assert_eq!(decode_failed(body(&encode_failed(&failure), FrameKind::Failed)), Ok(failure));
    }

    #[test]
    fn arbitrary_bodies_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Open::decode(&bytes);
        let _ = Opened::decode(&bytes);
        let _ = decode_failed(&bytes);
        let _ = decode_ask(&bytes);
        let _ = About::decode(&bytes);
        let mut acceptor = Acceptor::new(KEY, [2; 32]);
        let _ = acceptor.hello(&bytes);
        prop_assert!(acceptor.authenticate(&bytes).is_err());
        prop_assert!(Dialler::new(KEY, "x", [1; 32]).auth(&bytes).is_err());
    }

    #[test]
    fn a_stream_reads_the_same_however_it_is_split(
        pieces in prop::collection::vec((1u32..2000, any::<bool>()), 0..8),
        end in prop_oneof![Just(FrameKind::End), Just(FrameKind::Delivered)],
        tail in prop::collection::vec(any::<u8>(), 0..20),
        cuts in prop::collection::vec(1usize..700, 1..40),
    ) {
        let mut wire = Vec::new();
        for (length, is_unknown) in pieces {
            let mut header = Header { kind: FrameKind::Data, length }.encode();
            if is_unknown {
                (header[0], header[1]) = (77, 1);
            }
            wire.extend(header);
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
            payload += if decoder.is_unknown() { 0 } else { n };
            decoder.took_payload(n as u32);
            continue;
        }
        match decoder.took_header(bytes) {
            Ok(Some(Event::Data(length))) => assert!(length <= MAX_DATA),
            Ok(Some(Event::Unknown(unknown))) => assert!(unknown.length() <= MAX_CONTROL),
            Ok(Some(end)) => return (payload, Some(Ok(end)), at),
            Ok(None) => {}
            Err(violation) => return (payload, Some(Err(violation)), at),
        }
    }
    (payload, None, at)
}
