//! `reply = "early"` and `"connected"`: what a client is told, and when.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::common::*;

/// One early listener of each kind that has something to answer.
const EARLY: &str = "[listen.socksearly]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nreply = \"early\"\n\
                     [listen.webearly]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\nreply = \"early\"\n";

const LIMITS: &str = "[limits]\nconnect = \"300ms\"\n";

fn request_tunnel(proxy: SocketAddr, target: SocketAddr) -> (String, TcpStream) {
    let mut stream = connect(proxy);
    write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
    (read_head(&mut stream), stream)
}

/// A destination that never answers: its queue is full.
fn silent() -> (SocketAddr, socket2::Socket, TcpStream) {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let waiting = TcpStream::connect(address).unwrap();
    (address, full, waiting)
}

#[test]
fn an_early_client_is_told_success_and_then_reset_and_a_connected_one_is_told_why() {
    let (silent, _full, _waiting) = silent();
    for count in [0, 1, 3] {
        let chain = Chain::with(count, &format!("{LIMITS}{EARLY}"), LIMITS);
        for (target, reply, status) in [(closed_port(), 5, "502"), (silent, 6, "504")] {
            let host = target.ip().to_string();
            let (code, mut early) = socks(chain.address("socksearly"), &host, target.port());
            assert_eq!(code, 0, "{count} nodes, {target}");
            assert!(!ends_cleanly(&mut early), "{count} nodes, {target}");
            let (head, mut early) = request_tunnel(chain.address("webearly"), target);
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert!(!ends_cleanly(&mut early), "{count} nodes, {target}");
            assert_eq!(socks(chain.address("socks"), &host, target.port()).0, reply, "{count} nodes");
            let (head, _) = request_tunnel(chain.address("web"), target);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{count} nodes: {head}");
        }
    }
}

#[test]
fn what_a_nodes_own_routes_refuse_is_refused_early_too() {
    let refuse = "[[route]]\nto = [\"*:26\"]\naction = \"refuse\"\n";
    let chain = Chain::with(1, &format!("{EARLY}{refuse}"), "");
    let target = "127.0.0.1:26".parse().unwrap();
    assert_eq!(socks(chain.address("socksearly"), "127.0.0.1", 26).0, 2);
    let (head, _) = request_tunnel(chain.address("webearly"), target);
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[test]
fn early_streams_carry_everything_in_order() {
    let server = late_echo();
    let data = noise(1_000_000, 1);
    for count in [0, 1, 3] {
        let chain = Chain::with(count, EARLY, "");
        // The first ones over fresh connections, the others over warm ones.
        for round in 0..3 {
            let (_, stream) = socks(chain.address("socksearly"), "127.0.0.1", server.port());
            assert!(exchange(stream, &data) == data, "socks, {count} nodes, round {round}");
            let (_, stream) = request_tunnel(chain.address("webearly"), server);
            assert!(exchange(stream, &data) == data, "http, {count} nodes, round {round}");
            let (_, stream) = request_tunnel(chain.address("webearly"), server);
            assert!(exchange(stream, b"").is_empty());
        }
        // Payload that did not wait for the answer.
        let mut stream = connect(chain.address("webearly"));
        write!(stream, "CONNECT {server} HTTP/1.1\r\nHost: x\r\n\r\nfirst ").unwrap();
        stream.write_all(b"second").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all.ends_with(b"\r\n\r\nfirst second"), "{}", String::from_utf8_lossy(&all));
    }
}
