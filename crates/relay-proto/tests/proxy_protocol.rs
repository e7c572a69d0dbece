//! The PROXY protocol: headers as HAProxy's doc/proxy-protocol.txt has them, and arbitrary bytes.

use std::net::{IpAddr, SocketAddr};

use ekiden_relay_proto::proxy_protocol::{Addresses, Header, MAX_HEADER, Version, read, write};
use proptest::prelude::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A header of version 2.
fn bytes(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, family]);
    header.extend((rest.len() as u16).to_be_bytes());
    header.extend(rest);
    header
}

#[test]
fn the_addresses_are_read_and_written_as_they_are_specified() {
    let v4 = Addresses { source: address("192.0.2.1:56324"), destination: address("198.51.100.7:443") };
    let v6 = Addresses { source: address("[2001:db8::1]:56324"), destination: address("[2001:db8::2]:443") };
    let line4 = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n".to_vec();
    let line6 = b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n".to_vec();
    let bytes4 = bytes(1, 0x11, &[192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 1, 187]);
    let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let rest = [&octets("2001:db8::1")[..], &octets("2001:db8::2"), &[0xdc, 0x04, 1, 187]].concat();
    let bytes6 = bytes(1, 0x21, &rest);
    for (version, addresses, header) in
        [(Version::V1, v4, line4), (Version::V1, v6, line6), (Version::V2, v4, bytes4), (Version::V2, v6, bytes6)]
    {
        assert_eq!(write(version, &addresses), header);
        let with_payload = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(read(&with_payload), Ok(Some(Header { length: header.len(), addresses: Some(addresses) })));
    }
}

#[test]
fn a_connection_that_is_nobody_else_s_counts_as_it_is() {
    let no_addresses = |input: &[u8]| {
        assert_eq!(read(input), Ok(Some(Header { length: input.len(), addresses: None })), "{input:x?}");
    };
    no_addresses(b"PROXY UNKNOWN\r\n");
    no_addresses(b"PROXY UNKNOWN ffff:f...f:ffff whatever + 65535\r\n");
    // LOCAL, with addresses or without; what is no TCP: unspecified, Unix sockets, UDP.
    no_addresses(&bytes(0, 0x00, b""));
    no_addresses(&bytes(0, 0x11, &[1; 12]));
    no_addresses(&bytes(1, 0x00, b"anything"));
    no_addresses(&bytes(1, 0x31, &[b'a'; 216]));
    no_addresses(&bytes(1, 0x12, &[1; 12]));
    let mixed = Addresses { source: address("192.0.2.1:1"), destination: address("[2001:db8::2]:443") };
    assert_eq!(write(Version::V1, &mixed), b"PROXY UNKNOWN\r\n");
    no_addresses(&write(Version::V2, &mixed));
}

#[test]
fn what_else_it_tells_is_skipped() {
    let mut rest = vec![192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 1, 187];
    rest.extend([1, 0, 2, b'h', b'2', 0xee, 0, 1, 0]);
    let header = bytes(1, 0x11, &rest);
    let addresses = Addresses { source: address("192.0.2.1:56324"), destination: address("198.51.100.7:443") };
    assert_eq!(read(&header), Ok(Some(Header { length: header.len(), addresses: Some(addresses) })));
    let longest = bytes(1, 0x00, &vec![0; MAX_HEADER - 16]);
    assert_eq!(read(&longest), Ok(Some(Header { length: MAX_HEADER, addresses: None })));
    let too_long = bytes(1, 0x00, &vec![0; MAX_HEADER - 15]);
    read(&too_long[..16]).expect_err("seen before it has arrived");
}

#[test]
fn what_is_no_header_is_refused() {
    for input in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x05\x01\x00",
        b"PROXX",
        b"proxy TCP4 192.0.2.1 198.51.100.7 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1 2\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1 2 \r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1 65536\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 01 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 2\r\n",
        b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 198.51.100.7 1 2\r\n",
        b"PROXY TCP4 192.0.2.1\r198.51.100.7 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n",
        b"PROXY\r\n",
        b"\r\n\r\nGET",
        &bytes(2, 0x11, &[1; 12]),
        &bytes(1, 0x11, &[1; 11]),
        &bytes(1, 0x41, &[1; 12]),
        &bytes(1, 0x13, &[1; 12]),
    ] {
        let error = read(input).expect_err(&String::from_utf8_lossy(input)).to_string();
        assert!(!error.is_empty() && !error.contains(['\r', '\n']), "{error}");
    }
    let version_one = [&b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c"[..], &[1; 12]].concat();
    read(&version_one).unwrap_err();
    // An endless line is not waited for.
    let mut endless = b"PROXY UNKNOWN ".to_vec();
    endless.resize(106, b'a');
    assert_eq!(read(&endless), Ok(None));
    endless.push(b'a');
    read(&endless).unwrap_err();
}

/// What arbitrary bytes follow.
const STARTS: &[&[u8]] = &[
    b"",
    b"PROXY ",
    b"PROXY TCP4 192.0.2.1 ",
    b"PROXY UNKNOWN",
    b"\r\n\r\n\0\r\nQUIT\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
];

fn any_addresses() -> impl Strategy<Value = Addresses> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    (prop_oneof![v4, v6], any::<(u16, u16)>()).prop_map(|((source, destination), (from, to))| Addresses {
        source: SocketAddr::new(source, from),
        destination: SocketAddr::new(destination, to),
    })
}

proptest! {
    #[test]
    fn every_header_is_read_as_it_was_written_and_not_before_it_is_complete(
        addresses in any_addresses(),
        v2 in any::<bool>(),
        payload in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let header = write(if v2 { Version::V2 } else { Version::V1 }, &addresses);
        let length = header.len();
        for cut in 0..length {
            prop_assert_eq!(read(&header[..cut]), Ok(None), "{} of {}", cut, length);
        }
        let input = [header, payload].concat();
        prop_assert_eq!(read(&input), Ok(Some(Header { length, addresses: Some(addresses) })));
    }

    #[test]
    fn arbitrary_bytes_are_read_the_same_however_they_arrive(
        start in proptest::sample::select(STARTS),
        rest in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let input = [start, &rest[..]].concat();
        let whole = read(&input);
        for cut in 0..input.len() {
            match read(&input[..cut]) {
                Ok(None) => prop_assert!(cut < MAX_HEADER),
                early => {
                    prop_assert_eq!(&early, &whole);
                    if let Ok(Some(header)) = early {
                        prop_assert!(header.length <= cut);
                    }
                }
            }
        }
    }
}
