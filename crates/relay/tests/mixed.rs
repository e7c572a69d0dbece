//! A listener that takes SOCKS5, SOCKS4 and HTTP on one port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::*;

const OPEN: &str = "[listen.m]\nkind = \"mixed\"\naddress = \"127.0.0.1:0\"\n";

fn locked() -> String {
    format!("{OPEN}users = {{ me = \"{}\" }}\n", hash_of_secret())
}

fn sent(proxy: SocketAddr, request: &[u8]) -> TcpStream {
    let mut client = connect(proxy);
    client.write_all(request).unwrap();
    client
}

/// SOCKS4 with an address, and 4a with a name.
fn socks4(host: SocketAddr) -> [Vec<u8>; 2] {
    let [high, low] = host.port().to_be_bytes();
    [
        [&[4, 1, high, low, 127, 0, 0, 1][..], b"me\0"].concat(),
        [&[4, 1, high, low, 0, 0, 0, 1][..], b"me\0localhost\0"].concat(),
    ]
}

/// Everything that comes until the end or a reset.
fn rest(mut client: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all);
    all
}

#[test]
fn each_is_served_by_its_first_byte() {
    let (node, host) = (node(OPEN), echo());
    let proxy = node.address("m").unwrap();
    let (code, client) = socks(proxy, "127.0.0.1", host.port());
    assert_eq!(code, 0);
    assert_eq!(exchange(client, b"five"), b"five");
    for request in socks4(host) {
        // In one piece with what is said to the host, and byte by byte.
        let mut client = sent(proxy, &[&request[..], b"fo"].concat());
        let mut reply = [0; 8];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..2], [0, 0x5a]);
        assert_eq!(exchange(client, b"ur"), b"four");
        let mut client = connect(proxy);
        request.iter().for_each(|byte| client.write_all(&[*byte]).unwrap());
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..2], [0, 0x5a]);
    }
    let mut client = sent(proxy, format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
    assert_eq!(exchange(client, b"http"), b"http");
    // What speaks none of them is answered as by an HTTP proxy.
    assert!(rest(sent(proxy, b"nonsense\r\n\r\n")).starts_with(b"HTTP/1.1 400 "));
    assert!(rest(sent(proxy, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")).starts_with(b"\x15\x03\x01"));
}

#[test]
fn a_destination_that_is_not_reached_is_told_in_the_words_of_each() {
    let node = node(OPEN);
    let (proxy, nobody) = (node.address("m").unwrap(), spare_port());
    assert_eq!(socks(proxy, "127.0.0.1", nobody.port()).0, 5);
    for request in socks4(nobody) {
        assert_eq!(rest(sent(proxy, &request)), [0, 0x5b, 0, 0, 0, 0, 0, 0]);
    }
    let mut client = sent(proxy, format!("CONNECT {nobody} HTTP/1.1\r\nHost: {nobody}\r\n\r\n").as_bytes());
    assert!(read_head(&mut client).starts_with("HTTP/1.1 502 "));
}

#[test]
fn with_users_nobody_passes_without_a_password() {
    let (node, host) = (node(&locked()), echo());
    let proxy = node.address("m").unwrap();
    let connect = |line: &str| {
        let mut client = sent(proxy, format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{line}\r\n").as_bytes());
        read_head(&mut client)
    };
    assert!(connect("").starts_with("HTTP/1.1 407 "));
    assert!(connect("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n").starts_with("HTTP/1.1 200 "));
    assert_eq!(rest(sent(proxy, &[5, 1, 0])), [5, 0xff]);
    let mut client = sent(proxy, b"\x05\x01\x02\x01\x02me\x06secret");
    let mut answers = [0; 4];
    client.read_exact(&mut answers).unwrap();
    assert_eq!(answers, [5, 2, 1, 0]);
    assert_eq!(socks_request(&mut client, "127.0.0.1", host.port()), 0);
    for request in socks4(host) {
        assert_eq!(rest(sent(proxy, &request)), [0, 0x5b, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn a_listener_that_becomes_another_takes_no_socks_any_more() {
    let (mut node, host) = (node(&OPEN.replace(":0", &format!(":{}", spare_port().port()))), echo());
    let proxy = node.address("m").unwrap();
    let [four, _] = socks4(host);
    let mut clients = [connect(proxy), connect(proxy)];
    clients[0].write_all(&[5, 1, 0]).unwrap();
    clients[0].read_exact(&mut [0; 2]).unwrap();
    clients[1].write_all(&four[..5]).unwrap();
    wait_until("both are accepted", || node.connections() == 2);
    let http = format!("[listen.m]\nkind = \"http\"\naddress = \"{proxy}\"\n");
    node.reload(config(&http)).unwrap();
    let [high, low] = host.port().to_be_bytes();
    clients[0].write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low]).unwrap();
    clients[1].write_all(&four[5..]).unwrap();
    for client in clients {
        // Refused, if the listener was another before the first byte was looked at.
        let told = rest(client);
        assert!(told.is_empty() || told == [0, 0x5b, 0, 0, 0, 0, 0, 0], "{told:?}");
    }
}

#[test]
fn who_says_nothing_is_let_go() {
    let text = format!("[limits]\nhandshake = \"1s\"\n{OPEN}");
    let node = node(&text);
    let mut silent = connect(node.address("m").unwrap());
    assert!(silent.read(&mut [0]).map_or(true, |n| n == 0));
    wait_until("its place is free", || node.connections() == 0);
}
