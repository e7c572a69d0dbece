//! Nodes of different builds: what one does not know it skips, passes on or refuses, as its sender says.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use ekiden_relay::Relay;
use ekiden_relay_proto::leg::{
    About, FrameKind, HEADER_BYTES, Header, Open, Opened, VERSIONS, decode_failed, encode_failed, fields,
};
use ekiden_relay_proto::{Failure, FailureCode};

use crate::common::log::logged;
use crate::common::peer::{accept_node, any_frame, ask_for, frame, greet, say};
use crate::common::*;

/// A field, and a frame, of a newer build.
const FIELD: u16 = 100;
const REQUIRED: u16 = 0x8000;
const HOP: u16 = 0x4000;
const TYPE: u8 = 200;

/// A frame of an unknown type with these flags.
fn unknown(flags: u8, body: &[u8]) -> Vec<u8> {
    [&[TYPE, flags, 0, 0, 0, 0, 0, body.len() as u8], body].concat()
}

fn field(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    fields::put(&mut out, kind, value);
    out
}

fn open(chain: &[&str], to: SocketAddr, passed: Vec<u8>) -> Open {
    let chain = chain.iter().map(|name| name.to_string()).collect();
    Open { chain, class: String::new(), target: to.into(), client: None, id: None, passed }
}

/// The bytes of the next frame, whatever it is.
fn raw(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    stream.read_exact(&mut bytes).unwrap();
    let length = u32::from_be_bytes(bytes[4..].try_into().unwrap()) as usize;
    bytes.resize(HEADER_BYTES + length, 0);
    stream.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
    bytes
}

/// Whether the node ends the connection, and does not merely say nothing.
fn is_ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A node between the test as its dialler and the test as its peer: their connections to it, and the body of the OPEN that the
/// peer has got.
fn between(node: &Relay, listener: &TcpListener, passed: Vec<u8>) -> (TcpStream, TcpStream, Vec<u8>) {
    let mut near = greet(connect(node.address("leg").unwrap()));
    near.write_all(&open(&["far"], "192.0.2.1:80".parse().unwrap(), passed).encode()).unwrap();
    let mut far = accept_node(listener);
    let (kind, body) = frame(&mut far);
    assert_eq!(kind, FrameKind::Open);
    (near, far, body)
}

#[test]
fn a_node_in_the_middle_passes_on_what_it_does_not_know() {
    let (listener, address) = listener();
    let node = leg_node(Mode::Plain, "middle", Some(("far", address)), "");
    let passed = field(FIELD | REQUIRED, b"for the exit");
    let sent = [&passed[..], &field(FIELD | HOP, b"for the next node")].concat();
    let (mut near, mut far, asked) = between(&node, &listener, sent);
    let to = "192.0.2.1:80".parse().unwrap();
    assert_eq!(asked, open(&[], to, passed).encode()[HEADER_BYTES..]);
    // Answers, too.
    let answer = Opened { passed: field(FIELD, b"of the exit"), ..Opened::at(None) };
    far.write_all(&answer.encode()).unwrap();
    assert_eq!(frame(&mut near), (FrameKind::Opened, answer.encode()[HEADER_BYTES..].to_vec()));
    let said = |text: &[u8]| Header::frame(FrameKind::Data, text);
    for (mut from, mut to) in
        [(&near, &far), (&far, &near)].map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
    {
        let all = [said(b"one"), unknown(3, b"passed on"), unknown(3, b""), unknown(1, b"skipped"), said(b"two")];
        from.write_all(&all.concat()).unwrap();
        let mut payload = Vec::new();
        let mut others = Vec::new();
        while payload.len() < 6 {
            let frame = raw(&mut to);
            if frame[0] == FrameKind::Data as u8 {
                payload.extend(&frame[HEADER_BYTES..])
            } else {
                others.push(frame)
            }
            assert!(others.is_empty() || payload.len() >= 3, "in their place");
        }
        assert_eq!((&payload[..], others), (&b"onetwo"[..], vec![unknown(3, b"passed on"), unknown(3, b"")]));
    }
    say(&near, FrameKind::End);
    assert_eq!(raw(&mut far), Header { kind: FrameKind::End, length: 0 }.encode());
    say(&far, FrameKind::Delivered);
    assert_eq!(frame(&mut near).0, FrameKind::Delivered);
}

#[test]
fn a_refusal_is_passed_on_with_a_code_and_fields_that_a_node_does_not_know() {
    let (listener, address) = listener();
    let node = leg_node(Mode::Plain, "middle", Some(("far", address)), "");
    let (mut near, mut far, _) = between(&node, &listener, Vec::new());
    let failure = Failure::told(99, "of a newer build", field(FIELD, b"more"));
    far.write_all(&encode_failed(&failure)).unwrap();
    let (kind, body) = frame(&mut near);
    assert_eq!(kind, FrameKind::Failed);
    let told = decode_failed(&body).unwrap();
    assert_eq!((told.code, told.number(), &told.passed), (FailureCode::Other, 99, &failure.passed));
    assert!(told.text.contains("of a newer build"), "{told}");
}

#[test]
fn an_exit_skips_frames_and_says_what_it_must_know_and_does_not() {
    log::keep();
    let (hosts, host) = listener();
    let node = leg_node(Mode::Plain, "exit", None, "");
    let mut near = greet(connect(node.address("leg").unwrap()));
    near.write_all(&About { build: "9.9.9".into(), ..About::default() }.encode()).unwrap();
    let required = open(&[], host, field(FIELD | REQUIRED, b""));
    near.write_all(&[required.encode(), Header { kind: FrameKind::End, length: 0 }.encode().to_vec()].concat())
        .unwrap();
    let (kind, body) = frame(&mut near);
    assert_eq!(kind, FrameKind::Failed);
    let failure = decode_failed(&body).unwrap();
    let build = About::own().build;
    let builds = format!("it is ekiden 9.9.9, and this node ekiden {build}");
    assert_eq!(failure.code, FailureCode::Unsupported);
    assert!(failure.text.contains("requires field 0x8064") && failure.text.ends_with(&builds), "{failure}");
    assert_eq!(logged(&builds).len(), 1, "{:?}", logged(&builds));
    // The connection is as good as before, and carries the next stream.
    near.write_all(&unknown(1, b"between two streams")).unwrap();
    ask_for(&mut near, host);
    let (mut host, _) = hosts.accept().unwrap();
    let said = |text: &[u8]| Header::frame(FrameKind::Data, text);
    near.write_all(&[said(b"one"), unknown(3, &[7; 200]), said(b"two")].concat()).unwrap();
    let mut got = [0; 6];
    host.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"onetwo");
}

#[test]
fn an_unknown_frame_that_may_not_be_skipped_ends_the_connection_and_both_builds_are_named() {
    log::keep();
    let node = leg_node(Mode::Plain, "strict", None, "");
    let mut near = greet(connect(node.address("leg").unwrap()));
    near.write_all(&About { build: "9.9.8".into(), ..About::default() }.encode()).unwrap();
    near.write_all(&unknown(0, b"x")).unwrap();
    assert!(is_ended(&mut near));
    let line = format!("it is ekiden 9.9.8, and this node ekiden {}", About::own().build);
    wait_until("it is said", || logged(&line).len() == 1);
    assert!(logged(&line)[0].contains("a frame of type 200, which this node does not know"), "{:?}", logged(&line));
}

#[test]
fn a_dialler_refuses_such_a_frame_and_names_both_builds() {
    log::keep();
    let (listener, address) = listener();
    let node = leg_node(Mode::Plain, "middle", Some(("newer", address)), "");
    let mut near = greet(connect(node.address("leg").unwrap()));
    near.write_all(&open(&["newer"], "192.0.2.1:80".parse().unwrap(), Vec::new()).encode()).unwrap();
    let mut far = accept_node(&listener);
    assert_eq!(frame(&mut far).0, FrameKind::Open);
    let about = About { build: "9.9.7".into(), ..About::default() };
    far.write_all(&[about.encode(), unknown(0, b"x")].concat()).unwrap();
    let (kind, body) = frame(&mut near);
    assert_eq!(kind, FrameKind::Failed);
    let said = decode_failed(&body).unwrap().text;
    let builds = format!("it is ekiden 9.9.7, and this node ekiden {}", About::own().build);
    assert!(said.contains("a frame of type 200, which this node does not know") && said.contains(&builds), "{said}");
}

#[test]
fn frames_that_are_skipped_are_not_skipped_for_ever() {
    log::keep();
    let node = leg_node(Mode::Plain, "patient", None, "");
    let mut near = greet(connect(node.address("leg").unwrap()));
    near.write_all(&unknown(1, b"x").repeat(17)).unwrap();
    assert!(is_ended(&mut near));
}

#[test]
fn a_node_says_what_it_is_once_before_its_first_answer_or_when_it_is_asked() {
    let (_hosts, host) = listener();
    let node = leg_node(Mode::Plain, "exit", None, "");
    for asks in [false, true] {
        let mut near = greet(connect(node.address("leg").unwrap()));
        let about = About { asks, ..About::own() };
        near.write_all(&[about.encode(), about.encode()].concat()).unwrap();
        let heard = asks.then(|| any_frame(&mut near));
        near.write_all(&open(&[], host, Vec::new()).encode()).unwrap();
        let (kind, body) = heard.unwrap_or_else(|| any_frame(&mut near));
        assert_eq!((kind, About::decode(&body)), (FrameKind::About, Ok(About::own())));
        assert_eq!(any_frame(&mut near).0, FrameKind::Opened);
    }
}

#[test]
fn a_node_that_speaks_no_common_version_is_told_so() {
    let node = leg_node(Mode::Plain, "exit", None, "");
    let mut near = connect(node.address("leg").unwrap());
    let newer = VERSIONS[0] + 1;
    near.write_all(&Header::frame(FrameKind::Hello, &[&[1, newer][..], &[0; 32]].concat())).unwrap();
    let (kind, body) = frame(&mut near);
    assert_eq!(kind, FrameKind::Failed);
    let said = decode_failed(&body).unwrap().text;
    assert!(
        said.ends_with(&format!("speaks version {newer} of the leg protocol, and this one {}", VERSIONS[0])),
        "{said}"
    );
}

/// Two real nodes tell each other their builds, which `ekiden status` and `ekiden doctor` show.
#[test]
fn a_probe_names_the_build_of_the_node() {
    for mode in [Mode::Plain, Mode::Tls] {
        let node = leg_node(mode, "there", None, "");
        let (own, known, address) = (mode.node("key"), mode.peer("key"), node.address("leg").unwrap());
        let config = config(&format!("name = \"here\"\n{own}[peer.there]\naddress = \"{address}\"\n{known}"));
        assert_eq!(ekiden_relay::probe(&config, "there").unwrap().build, Some(About::own().build), "{mode:?}");
    }
}
