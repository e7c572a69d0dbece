//! SOCKS4 and 4a: requests, and arbitrary bytes.

use std::net::SocketAddr;

use ekiden_relay_proto::socks4::{MAX_REQUEST, reply, step};
use ekiden_relay_proto::socks5::Step;
use proptest::prelude::*;

/// The destination and what was consumed, or why it is refused.
fn asked(request: &[u8]) -> Result<(String, usize), &'static str> {
    match step(request) {
        Step::Connect { consumed, target } => Ok((target.to_string(), consumed)),
        Step::Refuse { reply, reason } => {
            assert_eq!(reply, [0, 0x5b, 0, 0, 0, 0, 0, 0]);
            Err(reason)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_and_a_name_are_asked_for() {
    assert_eq!(asked(b"\x04\x01\x00\x50\xc0\x00\x02\x01me\0payload"), Ok(("192.0.2.1:80".into(), 11)));
    assert_eq!(asked(b"\x04\x01\x01\xbb\x00\x00\x00\x07\0example.ORG\0"), Ok(("example.org:443".into(), 21)));
    assert_eq!(asked(b"\x04\x01\x00\x16\x00\x00\x00\x01\x002001:db8::1\0"), Ok(("[2001:db8::1]:22".into(), 21)));
}

#[test]
fn what_is_no_request_is_refused() {
    let long = |name: &[u8]| [b"\x04\x01\x00\x50\x00\x00\x00\x01", name, &[b'x'; 256]].concat();
    for (request, reason) in [
        (b"\x05\x01".to_vec(), "not a SOCKS4 request"),
        (b"\x04\x02\x00\x50\xc0\x00\x02\x01\0".to_vec(), "only the CONNECT command is supported"),
        (b"\x04\x01\x00\x00\xc0\x00\x02\x01\0".to_vec(), "not a destination"),
        (b"\x04\x01\x00\x50\x00\x00\x00\x01\0\0".to_vec(), "not a destination"),
        (b"\x04\x01\x00\x50\x00\x00\x00\x01\0a b\0".to_vec(), "not a destination"),
        (long(b""), "a user's name of more than 255 bytes"),
        (long(b"\0"), "a host's name of more than 255 bytes"),
    ] {
        assert_eq!(asked(&request), Err(reason));
    }
}

#[test]
fn the_reply_tells_the_bound_address() {
    let bound: SocketAddr = "192.0.2.9:4660".parse().unwrap();
    assert_eq!(reply(true, Some(bound)), [0, 0x5a, 0x12, 0x34, 192, 0, 2, 9]);
    assert_eq!(reply(true, Some("[::1]:4660".parse().unwrap())), [0, 0x5a, 0, 0, 0, 0, 0, 0]);
}

proptest! {
    /// What decides stays, whatever comes behind it; and no more is waited for than the longest request.
    #[test]
    fn arbitrary_bytes_read_the_same_however_much_has_come(
        start in prop_oneof![Just(&b""[..]), Just(&b"\x04\x01\x00\x50\x00\x00\x00\x01"[..])],
        bytes in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..600),
    ) {
        let input = [start, &bytes].concat();
        let mut decided = Step::More;
        for length in 0..=input.len() {
            let now = step(&input[..length]);
            if decided == Step::More {
                prop_assert!(now != Step::More || length < MAX_REQUEST);
                decided = now;
            } else {
                prop_assert_eq!(&now, &decided);
            }
        }
    }
}
