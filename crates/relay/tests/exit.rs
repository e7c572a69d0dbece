//! What an exit connects to: not to what is private or its own, by address or by name, unless its configuration says so.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::common::*;

/// Without this the common nodes would be let to loopback, where their hosts are.
const NOTHING: &str = "[exit]\nallow = [\"192.0.2.1\"]\n";

fn nobody_came(host: &TcpListener) {
    host.set_nonblocking(true).unwrap();
    assert_eq!(host.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    host.set_nonblocking(false).unwrap();
}

/// What an HTTP proxy answers to a request's first line.
fn answer(chain: &Chain, request: &str) -> String {
    let mut stream = connect(chain.address("web"));
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn private_addresses_and_names_that_have_them_are_refused_however_they_are_asked_for() {
    let (host, address) = listener();
    for (mode, count) in CHAINS {
        let (entry, each) = if count == 0 { (NOTHING, "") } else { ("", NOTHING) };
        let early = "[listen.early]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nreply = \"early\"\n";
        let chain = Chain::of(mode, count, &format!("{early}{entry}"), each);
        for destination in [
            "127.0.0.1",
            "127.9.8.7",
            "localhost",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "64:ff9b::7f00:1",
        ] {
            let (code, _) = socks(chain.address("socks"), destination, address.port());
            assert_eq!(code, 2, "{mode:?}, {count} nodes: {destination}");
        }
        for request in [
            format!("CONNECT {address}"),
            format!("GET http://{address}/"),
            format!("GET http://localhost:{}/", address.port()),
        ] {
            let answer = answer(&chain, &request);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{mode:?}, {count} nodes: {request}: {answer}");
            // With the name of the exit, behind nodes.
            let exit = if count == 0 { String::new() } else { format!("node n{count}: ") };
            let why = "the exit does not connect to a loopback address unless its [exit] allow says so";
            assert!(answer.contains(&format!("\n{exit}{why}")), "{answer}");
        }
        if count == 0 {
            // A client that is answered early is told what is known at once.
            assert_eq!(socks(chain.address("early"), "127.0.0.1", address.port()).0, 2);
        }
    }
    nobody_came(&host);
}

#[test]
fn what_is_allowed_is_reached_and_nothing_else() {
    let server = late_echo();
    let (host, other) = listener();
    for (allow, reached, refused) in [
        (format!("\"{server}\""), "127.0.0.1", "localhost-not"),
        (format!("\"127.0.0.0/8:{}\"", server.port()), "::ffff:127.0.0.1", "::1"),
        (format!("\"localhost:{}\"", server.port()), "localhost", "127.0.0.1"),
        (format!("\"*:{}\"", server.port()), "127.0.0.1", "localhost-not"),
    ] {
        let chain = Chain::with(1, "", &format!("[exit]\nallow = [{allow}]\n"));
        let proxy = chain.address("socks");
        let (code, stream) = socks(proxy, reached, server.port());
        assert_eq!(code, 0, "{allow}: {reached}");
        assert_eq!(exchange(stream, b"to and fro"), b"to and fro", "{allow}");
        assert_ne!(socks(proxy, refused, server.port()).0, 0, "{allow}: {refused}");
        assert_eq!(socks(proxy, "127.0.0.1", other.port()).0, 2, "{allow}: another port");
    }
    nobody_came(&host);
}

#[test]
fn what_is_allowed_may_still_be_refused_by_a_route() {
    let server = echo();
    let chain = Chain::with(1, "", "[exit]\nallow = [\"*\"]\n[[route]]\nto = [\"127.0.0.0/8\"]\naction = \"refuse\"\n");
    assert_eq!(socks(chain.address("socks"), "127.0.0.1", server.port()).0, 2);
}

#[test]
fn what_the_configuration_names_needs_no_leave() {
    let server = late_echo();
    let forward =
        format!("[listen.fixed]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"{server}\"\n{NOTHING}");
    let chain = Chain::with(0, &forward, "");
    assert_eq!(exchange(connect(chain.address("fixed")), b"configured"), b"configured");
}
