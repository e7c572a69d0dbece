//! Headers of the PROXY protocol before connections: read from those who are trusted, and written by forwards.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use crate::common::*;
use ekiden_relay::Relay;
use ekiden_relay_proto::proxy_protocol::{Addresses, Version, read, write};

const VERSIONS: [(Version, &str); 2] = [(Version::V1, "v1"), (Version::V2, "v2")];

fn told(source: &str) -> Addresses {
    let source: SocketAddr = source.parse().unwrap();
    let destination = if source.is_ipv4() { "198.51.100.7:443" } else { "[2001:db8::7]:443" };
    Addresses { source, destination: destination.parse().unwrap() }
}

fn is_reset(mut stream: TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(n) => panic!("{n} bytes instead of a reset"),
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A forward to `to`, a SOCKS5 and an HTTP proxy that are told by 127.0.0.1 and ::1.
fn told_node(to: SocketAddr, extra: &str) -> Relay {
    let from = "proxy_protocol_from = [\"127.0.0.1\", \"127.0.7.0/24\", \"::1\"]";
    node(&format!(
        "[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"{to}\"\n{from}\n\
         [listen.fwd6]\nkind = \"forward\"\naddress = \"[::1]:0\"\nto = \"{to}\"\n{from}\n\
         [listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n{from}\n\
         [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n{from}\n{extra}"
    ))
}

#[test]
fn a_header_is_taken_off_on_every_listener_however_it_arrives() {
    let server = late_echo();
    let relay = told_node(server, "");
    let (fwd, fwd6) = (relay.address("fwd").unwrap(), relay.address("fwd6").unwrap());
    let payload = noise(100_000, 1);
    for (version, _) in VERSIONS {
        for source in ["192.0.2.1:56324", "[2001:db8::1]:56324"] {
            let header = write(version, &told(source));
            for address in [fwd, fwd6] {
                let mut stream = connect(address);
                stream.write_all(&header).unwrap();
                assert!(exchange(stream, &payload) == payload);
                // In one piece with what follows, and byte by byte.
                assert!(exchange(connect(address), &[&header[..], &payload].concat()) == payload);
            }
            let mut stream = connect(fwd);
            for byte in &header {
                stream.write_all(&[*byte]).unwrap();
            }
            assert_eq!(exchange(stream, b"slowly"), b"slowly");

            let mut stream = connect(relay.address("socks").unwrap());
            stream.write_all(&[&header[..], &[5, 1, 0]].concat()).unwrap();
            stream.read_exact(&mut [0; 2]).unwrap();
            assert_eq!(socks_request(&mut stream, "127.0.0.1", server.port()), 0);
            assert_eq!(exchange(stream, b"by socks"), b"by socks");

            let mut stream = connect(relay.address("web").unwrap());
            stream.write_all(&header).unwrap();
            write!(stream, "CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n").unwrap();
            assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
            assert_eq!(exchange(stream, b"by http"), b"by http");
        }
    }
    // The balancer's own connections.
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let mut stream = connect(fwd);
        stream.write_all(header).unwrap();
        assert_eq!(exchange(stream, b"healthy"), b"healthy");
    }
    // Who is not trusted is served as it is, whatever it says.
    let header = write(Version::V1, &told("192.0.2.1:1"));
    assert_eq!(exchange(connect_from([127, 0, 0, 2], fwd), &header), header);
}

#[test]
fn what_is_no_header_is_reset_and_logged() {
    log::keep();
    let logged = |from: SocketAddr| {
        let start = format!("{from} must begin with a PROXY protocol header");
        log::logged(&start).iter().filter(|line| line.starts_with(&start)).count()
    };
    let (listener, address) = listener();
    let relay = told_node(address, "[limits]\nhandshake = \"300ms\"\n");
    // Each from an address of its own: lines about one are counted, not repeated.
    let mut client = 0;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 1 2\r\n", b"\x16\x03\x01", b"PROXY TCP4 192.0.2.1", b""]
    {
        for listener in ["fwd", "socks", "web"] {
            client += 1;
            let mut stream = connect_from([127, 0, 7, client], relay.address(listener).unwrap());
            let from = stream.local_addr().unwrap();
            stream.write_all(bytes).unwrap();
            assert!(is_reset(stream), "{bytes:?}");
            assert_eq!(logged(from), 1, "{bytes:?}");
        }
    }
    // One that only looks whether somebody listens is no news.
    let stream = connect(relay.address("fwd").unwrap());
    let from = stream.local_addr().unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(is_reset(stream));
    assert_eq!(logged(from), 0);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "none of them went anywhere");
}

#[test]
fn the_client_that_is_told_is_who_has_limits() {
    let relay = told_node(late_echo(), "[limits]\nclient_connections = 1\n");
    let come = |source: &str| {
        let mut stream = connect(relay.address("fwd").unwrap());
        stream.write_all(&write(Version::V2, &told(source))).unwrap();
        stream
    };
    // Were they the balancer's, the second were too many.
    let streams: Vec<TcpStream> = ["192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1"].map(come).into();
    wait_until("all are counted", || relay.busy() == 3);
    assert!(is_reset(come("192.0.2.1:2")));
    assert!(is_reset(come("[2001:db8::2]:1")));
    for stream in streams {
        assert_eq!(exchange(stream, b"served"), b"served");
    }
}

/// The header that a connection begins with, and the connection, of which nothing else was read.
fn introduced(listener: &TcpListener) -> (Addresses, TcpStream) {
    let mut stream = accept(listener);
    let mut header = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        header.extend(byte);
        if let Some(complete) = read(&header).unwrap() {
            return (complete.addresses.expect("it tells"), stream);
        }
    }
}

#[test]
fn a_forward_tells_its_destination_who_the_client_is_before_anything_else() {
    for (mode, count) in CHAINS {
        for (i, (_, version)) in VERSIONS.into_iter().enumerate() {
            for early in ["early", "connected"] {
                let (listener, address) = listener();
                let via: Vec<String> = (1..=count).map(|i| format!("n{i}")).collect();
                let via = if count == 0 { String::new() } else { format!("via = {via:?}\n") };
                let forward = |name: &str, at: &str| {
                    format!(
                        "[listen.{name}]\nkind = \"forward\"\naddress = \"{at}:0\"\nto = \"{address}\"\n{via}\
                         reply = \"{early}\"\nproxy_protocol = \"{version}\"\nproxy_protocol_from = [\"127.0.0.9\"]\n"
                    )
                };
                let chain = Chain::of(mode, count, &(forward("fwd", "127.0.0.1") + &forward("fwd6", "[::1]")), "");
                let what = format!("{mode:?}, {count} nodes, {version}, {early}");
                for front in ["fwd", "fwd6"] {
                    let mut client = connect(chain.address(front));
                    // Whether or not the client speaks first.
                    if i == 0 {
                        client.write_all(b"hello").unwrap();
                    }
                    let (addresses, mut server) = introduced(&listener);
                    let (source, destination) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
                    assert_eq!(addresses, Addresses { source, destination }, "{what}");
                    if i == 1 {
                        server.write_all(b"I speak first").unwrap();
                        client.read_exact(&mut [0; 13]).unwrap();
                        client.write_all(b"hello").unwrap();
                    }
                    client.shutdown(Shutdown::Write).unwrap();
                    let mut all = Vec::new();
                    server.read_to_end(&mut all).unwrap();
                    assert_eq!(all, b"hello", "{what}");
                }
                // What it was told itself goes on.
                let mut client = connect_from([127, 0, 0, 9], chain.address("fwd"));
                let was_told = told("[2001:db8::1]:56324");
                client.write_all(&write(Version::V2, &was_told)).unwrap();
                client.write_all(b"hello").unwrap();
                let (addresses, mut server) = introduced(&listener);
                assert_eq!(addresses, was_told, "{what}");
                server.read_exact(&mut [0; 5]).unwrap();
            }
        }
    }
}
