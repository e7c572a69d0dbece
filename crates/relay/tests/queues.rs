//! Connections that wait to be accepted when their listener changes or goes: they are served, not reset.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::*;
use ekiden_relay::Relay;

/// How many wait. More than a few, so that every worker's socket has some.
const WAITING: usize = 24;

/// A node with a SOCKS listener at `address`, unless it is `None`, and another one.
fn text(address: Option<SocketAddr>, connections: u32, tcp: &str) -> String {
    let listener = |name: &str, address: SocketAddr| {
        format!("[listen.{name}]\nkind = \"socks5\"\naddress = \"{address}\"\ntcp = {{ {tcp} }}\n")
    };
    let other = listener("other", "127.0.0.1:0".parse().unwrap());
    let socks = address.map(|address| listener("socks", address)).unwrap_or_default();
    format!("threads = 2\n[limits]\nconnections = {connections}\n{other}{socks}")
}

/// A node that is full with one stream, and clients that wait to be accepted; each has asked already.
fn full() -> (Relay, SocketAddr, TcpStream, Vec<TcpStream>) {
    let address = spare_port();
    let relay = node(&text(Some(address), 1, ""));
    let (code, stream) = socks(address, "127.0.0.1", echo().port());
    assert_eq!(code, 0);
    let ask = |_| {
        let mut client = connect(address);
        client.write_all(&[5, 1, 0]).unwrap();
        client
    };
    let waiting = (0..WAITING).map(ask).collect();
    (relay, address, stream, waiting)
}

/// Whether each is answered, in SOCKS.
fn all_are_served(clients: Vec<TcpStream>) {
    for (i, mut client) in clients.into_iter().enumerate() {
        let mut answer = [0; 2];
        client.read_exact(&mut answer).unwrap_or_else(|error| panic!("client {i}: {error}"));
        assert_eq!(answer, [5, 0]);
    }
}

#[test]
fn a_listener_that_changes_its_tcp_settings_serves_those_that_wait() {
    let (mut relay, address, _stream, waiting) = full();
    for (i, tcp) in ["keepalive = \"30s\"", "keepalive = \"20s\""].into_iter().enumerate() {
        relay.reload(config(&text(Some(address), 1 + i as u32, tcp))).unwrap();
    }
    relay.reload(config(&text(Some(address), 1000, ""))).unwrap();
    all_are_served(waiting);
    // And serves those that come now, whichever sockets are still there.
    for _ in 0..100 {
        assert_eq!(socks(address, "127.0.0.1", echo().port()).0, 0);
    }
}

#[test]
fn new_connections_do_not_come_to_sockets_that_are_being_closed() {
    let (mut relay, address, _stream, waiting) = full();
    relay.reload(config(&text(Some(address), 1, "keepalive = \"30s\""))).unwrap();
    // There a SYN would be dropped, and sent again after a second.
    let soon = Duration::from_millis(500);
    let new: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect_timeout(&address, soon).unwrap()).collect();
    relay.reload(config(&text(Some(address), 1000, "keepalive = \"30s\""))).unwrap();
    all_are_served(waiting);
    drop(new);
}

#[test]
fn a_listener_that_is_removed_serves_those_that_wait_and_its_address_is_free_then() {
    let (mut relay, address, _stream, waiting) = full();
    relay.reload(config(&text(None, 1000, ""))).unwrap();
    all_are_served(waiting);
    let moment = Duration::from_millis(100);
    wait_until("nobody listens", || match TcpStream::connect_timeout(&address, moment) {
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        Ok(_) => panic!("a new connection was taken"),
    });
}

#[test]
fn a_listener_that_comes_back_at_once_serves_all() {
    let (mut relay, address, _stream, waiting) = full();
    relay.reload(config(&text(None, 1000, ""))).unwrap();
    relay.reload(config(&text(Some(address), 1000, ""))).unwrap();
    for _ in 0..100 {
        assert_eq!(socks(address, "127.0.0.1", echo().port()).0, 0);
    }
    all_are_served(waiting);
}

#[test]
fn a_node_that_stops_serves_those_that_wait_and_takes_no_more() {
    let (mut relay, address, stream, waiting) = full();
    relay.stop_accepting();
    assert!(TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_err(), "a new connection was taken");
    drop(stream);
    let server = echo();
    // One at a time, in any order: the node stays as full as it was.
    std::thread::scope(|scope| {
        for mut client in waiting {
            scope.spawn(move || {
                let mut answer = [0; 2];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(socks_request(&mut client, "127.0.0.1", server.port()), 0);
                assert_eq!(exchange(client, b"still"), b"still");
            });
        }
        assert!(relay.busy() > 0);
    });
    wait_until("nothing is busy", || relay.busy() == 0);
}
