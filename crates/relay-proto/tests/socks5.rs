//! SOCKS5: the conversations of RFC 1928 and 1929, and arbitrary bytes.

use ekiden_relay_proto::socks5::{MAX_MESSAGE, Server, Step, reply};
use ekiden_relay_proto::{FailureCode, Host};
use proptest::prelude::*;

/// Feeds `input` in pieces, dropping what is consumed; returns every step but [`Step::More`], and what was left over.
fn talk(server: &mut Server, input: &[u8], cuts: &[usize]) -> (Vec<Step>, usize) {
    let mut buffer: Vec<u8> = Vec::new();
    let mut steps = Vec::new();
    let mut rest = input;
    let mut cuts = cuts.iter().cycle();
    loop {
        let step = server.step(&buffer);
        let (consumed, over) = match &step {
            Step::More if rest.is_empty() => return (steps, buffer.len()),
            Step::More => {
                // An incomplete message is shorter than the longest.
                assert!(buffer.len() < MAX_MESSAGE);
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                buffer.extend(now);
                rest = later;
                continue;
            }
            Step::Reply { consumed, .. } => (*consumed, false),
            Step::Login { consumed, .. } => (*consumed, false),
            Step::Connect { consumed, .. } => (*consumed, true),
            Step::Refuse { .. } => (0, true),
        };
        if let Step::Login { user, password, .. } = &step {
            server.password(user == b"u" && password == b"p");
        }
        buffer.drain(..consumed);
        steps.push(step);
        if over {
            return (steps, buffer.len() + rest.len());
        }
    }
}

#[test]
fn a_name_is_asked_for_without_a_password() {
    let input = b"\x05\x02\x02\x00\x05\x01\x00\x03\x0bexample.ORG\x01\xbbpayload";
    let (steps, left) = talk(&mut Server::new(false), input, &[usize::MAX]);
    assert_eq!(steps[0], Step::Reply { consumed: 4, reply: vec![5, 0] });
    let Step::Connect { target, .. } = &steps[1] else { panic!("{steps:?}") };
    assert_eq!(target.to_string(), "example.org:443");
    assert_eq!(left, 7);
}

#[test]
fn an_address_is_asked_for_with_a_password() {
    let mut input = b"\x05\x01\x02\x01\x01u\x01p\x05\x01\x00\x04".to_vec();
    input.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 22]);
    let (steps, left) = talk(&mut Server::new(true), &input, &[1]);
    assert_eq!(left, 0);
    let Some(Step::Connect { target, .. }) = steps.last() else { panic!("{steps:?}") };
    assert_eq!(target.to_string(), "[2001:db8::1]:22");
}

#[test]
fn an_address_sent_as_a_name_is_an_address() {
    let input = b"\x05\x01\x00\x05\x01\x00\x03\x0910.0.0.10\x00\x50";
    let (steps, _) = talk(&mut Server::new(false), input, &[3]);
    let Some(Step::Connect { target, .. }) = steps.last() else { panic!("{steps:?}") };
    assert_eq!(target.host, Host::Ip("10.0.0.10".parse().unwrap()));
}

#[test]
fn everything_else_is_refused_with_its_reply() {
    let refused = |password: bool, input: &[u8]| match talk(&mut Server::new(password), input, &[2]).0.pop() {
        Some(Step::Refuse { reply, .. }) => reply,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(false, b"\x06\x01"), b"");
    assert_eq!(refused(false, b"SSH-2.0"), b"");
    assert_eq!(refused(false, b"\x05\x01\x02"), b"\x05\xff");
    assert_eq!(refused(true, b"\x05\x01\x00"), b"\x05\xff");
    assert_eq!(refused(true, b"\x05\x01\x02\x02\x01u\x01p"), b"\x01\x01");
    assert_eq!(refused(true, b"\x05\x01\x02\x01\x01u\x01q\x05"), b"");
    assert_eq!(refused(false, b"\x05\x01\x00\x05\x02\x00\x01\x7f\0\0\x01\0\x50")[1], 7);
    assert_eq!(refused(false, b"\x05\x01\x00\x05\x03\x00\x01\x7f\0\0\x01\0\x50")[1], 7);
    assert_eq!(refused(false, b"\x05\x01\x00\x05\x01\x00\x02")[1], 8);
    assert_eq!(refused(false, b"\x05\x01\x00\x05\x01\x00\x03\x03a b\0\x50")[1], 1);
    assert_eq!(refused(false, b"\x05\x01\x00\x05\x01\x00\x01\x7f\0\0\x01\0\0")[1], 1);
}

#[test]
fn other_protocols_are_refused_in_their_own_words() {
    for cut in [1, usize::MAX] {
        for password in [false, true] {
            let refused = |input: &[u8]| match talk(&mut Server::new(password), input, &[cut]).0.pop() {
                Some(Step::Refuse { reply, reason }) => (reply, reason),
                other => panic!("{other:?}"),
            };
            let (reply, reason) = refused(b"CONNECT a:80 HTTP/1.1\r\n\r\n");
            assert!(reply.starts_with(b"HTTP/1.1 400 ") && reason.contains("HTTP"));
            let (reply, reason) = refused(b"\x04\x01\x00\x50");
            assert!(reply == [0, 0x5b, 0, 0, 0, 0, 0, 0] && reason.contains("SOCKS4"));
            let (reply, reason) = refused(b"\x16\x03\x01\x02\x00");
            assert!(reply == [0x15, 3, 1, 0, 2, 2, 40] && reason.contains("TLS"));
        }
    }
}

#[test]
fn replies_have_the_layout_of_the_rfc() {
    assert_eq!(reply(0, Some("1.2.3.4:5".parse().unwrap())), [5, 0, 0, 1, 1, 2, 3, 4, 0, 5]);
    assert_eq!(reply(FailureCode::Refused.socks_reply(), None), [5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_read_the_same_however_they_are_split(
        start in prop_oneof![Just(&b""[..]), Just(&b"GET"[..]), Just(&b"\x16"[..]), Just(&b"\x05\x01\x00"[..]), Just(&b"\x05\x01\x02"[..]), Just(&b"\x05\x01\x00\x05\x01\x00"[..])],
        bytes in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..600),
        cuts in prop::collection::vec(1usize..20, 1..20),
        password: bool,
    ) {
        let input = [start, &bytes].concat();
        let whole = talk(&mut Server::new(password), &input, &[usize::MAX]);
        prop_assert_eq!(talk(&mut Server::new(password), &input, &cuts), whole);
    }
}
