//! Clients that say nothing or too much.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::*;
use ekiden_relay_proto::FailureCode;
use ekiden_relay_proto::leg::{FrameKind, Header, decode_failed};

#[test]
fn silent_connections_are_dropped_while_clients_are_served() {
    let chain = Chain::with(1, "[limits]\nhandshake = \"500ms\"\n", "[limits]\nhandshake = \"500ms\"\n");
    let server = late_echo();
    let mut silent = Vec::new();
    for address in [chain.address("socks"), chain.address("web"), chain.nodes[0].address("leg").unwrap()] {
        silent.extend((0..200).map(|_| connect(address)));
    }
    assert_eq!(exchange(chain.socks(server), b"served"), b"served");
    assert_eq!(exchange(chain.tunnel(server), b"served"), b"served");
    for stream in &mut silent {
        ends_cleanly(stream);
    }
    assert_eq!(exchange(chain.socks(server), b"served"), b"served");
    wait_until("all are gone", || chain.entry.connections() == 0);
}

#[test]
fn half_a_request_is_as_good_as_none() {
    let chain = Chain::with(0, "[limits]\nhandshake = \"200ms\"\n", "");
    for (listener, bytes) in
        [("socks", &b"\x05\x01"[..]), ("socks", b"\x05\x01\x00\x05\x01\x00\x03\xff"), ("web", b"GET http://x/ HT")]
    {
        let mut stream = connect(chain.address(listener));
        stream.write_all(bytes).unwrap();
        let mut answer = String::new();
        let end = stream.read_to_string(&mut answer);
        if listener == "web" {
            assert!(end.is_ok() && answer.starts_with("HTTP/1.1 408 "), "{end:?} {answer}");
        } else {
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
}

#[test]
fn more_connections_than_allowed_wait() {
    let chain = Chain::with(0, "[limits]\nconnections = 2\n", "");
    let server = late_echo();
    let first = chain.socks(server);
    let second = chain.socks(server);
    let (sender, receiver) = std::sync::mpsc::channel();
    let address = chain.address("socks");
    let third = std::thread::spawn(move || {
        let (code, stream) = socks(address, "127.0.0.1", server.port());
        sender.send(code).unwrap();
        exchange(stream, b"third")
    });
    assert!(receiver.recv_timeout(std::time::Duration::from_millis(200)).is_err(), "served beyond the limit");
    assert_eq!(exchange(first, b"first"), b"first");
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(0));
    assert_eq!(third.join().unwrap(), b"third");
    assert_eq!(exchange(second, b"second"), b"second");
}

#[test]
fn a_silent_stream_and_an_old_one_are_reset_and_others_are_not() {
    let server = echo();
    for count in [0, 1] {
        let idle = Chain::with(count, "[limits]\nidle = \"1s\"\n", "");
        let begun = std::time::Instant::now();
        let (mut silent, mut busy) = (idle.socks(server), idle.socks(server));
        let over = std::thread::spawn(move || ends_cleanly(&mut silent));
        while !over.is_finished() || begun.elapsed() < std::time::Duration::from_millis(1500) {
            busy.write_all(b"x").unwrap();
            busy.read_exact(&mut [0]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(!over.join().unwrap(), "{count} nodes");
        assert!(begun.elapsed().as_millis() >= 1000);

        let old = Chain::with(count, "[limits]\nlifetime = \"1s\"\n", "");
        let begun = std::time::Instant::now();
        let mut busy = old.socks(server);
        while busy.write_all(b"x").and_then(|()| busy.read_exact(&mut [0])).is_ok() {}
        assert!(begun.elapsed().as_millis() >= 1000);
        wait_until("nothing is left", || old.entry.busy() == 0 && old.nodes.iter().all(|node| node.busy() == 0));
    }
}

/// A node with a leg listener and a SOCKS listener, for 16 connections.
fn small_node() -> ekiden_relay::Relay {
    let socks = "[limits]\nconnections = 16\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";
    leg_node(Mode::Plain, "small", None, socks)
}

/// Asks until the node has room. The connection of a refused stream is for the next one.
fn open_when_there_is_room(leg: &mut TcpStream, target: SocketAddr) {
    wait_until("there is room for another stream", || {
        let is_open = peer::ask(leg, target).0 == FrameKind::Opened;
        if !is_open {
            peer::say(leg, FrameKind::End);
        }
        is_open
    });
}

#[test]
fn idle_connections_of_a_node_make_room_for_others() {
    let (node, server) = (small_node(), late_echo());
    let [leg, proxy] = ["leg", "socks"].map(|listener| node.address(listener).unwrap());
    let mut streams: Vec<_> = (0..12).map(|_| peer::open_at(leg, echo())).collect();
    let _idle: Vec<_> = (0..15).map(|_| peer::greet(connect(leg))).collect();
    wait_until("a quarter of all are idle", || node.connections() == 16);
    for _ in 0..3 {
        let (code, stream) = socks(proxy, "127.0.0.1", server.port());
        assert_eq!((code, exchange(stream, b"served")), (0, b"served".to_vec()));
    }
    // Another node comes in, too, once there is room for its stream, and those that are under way go on.
    streams.pop();
    let mut other = peer::greet(connect(leg));
    open_when_there_is_room(&mut other, echo());
    for stream in streams.iter_mut().chain([&mut other]) {
        stream.write_all(&Header::frame(FrameKind::Data, b"x")).unwrap();
        assert_eq!(peer::frame(stream), (FrameKind::Data, b"x".to_vec()));
    }
}

#[test]
fn connections_of_refused_streams_make_room_for_others() {
    let (node, server) = (small_node(), late_echo());
    let [leg, proxy] = ["leg", "socks"].map(|listener| node.address(listener).unwrap());
    // None of them says END, which the node waits for.
    let refused = |mut stream| {
        assert_eq!(peer::ask(&mut stream, closed_port()).0, FrameKind::Failed);
        stream
    };
    let _refused: Vec<_> = (0..16).map(|_| refused(peer::greet(connect(leg)))).collect();
    assert_eq!(node.connections(), 16);
    let begun = std::time::Instant::now();
    for _ in 0..3 {
        let (code, stream) = socks(proxy, "127.0.0.1", server.port());
        assert_eq!((code, exchange(stream, b"served")), (0, b"served".to_vec()));
    }
    // Half of `limits.handshake`, for which the node waits for that END.
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[test]
fn a_connection_is_not_tried_for_ever() {
    let node = small_node();
    let mut leg = peer::greet(connect(node.address("leg").unwrap()));
    let fill = Header::frame(FrameKind::Fill, &[0]);
    for _ in 0..8 {
        leg.write_all(&fill).unwrap();
        assert_eq!(peer::frame(&mut leg).0, FrameKind::Fill);
    }
    leg.write_all(&fill).unwrap();
    let mut rest = Vec::new();
    let _ = leg.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{} bytes", rest.len());
}

#[test]
fn a_node_leaves_streams_to_others() {
    let (node, echo) = (small_node(), echo());
    let [leg, proxy] = ["leg", "socks"].map(|listener| node.address(listener).unwrap());
    let mut open: Vec<_> = (0..12).map(|_| peer::open_at(leg, echo)).collect();
    let mut more = peer::greet(connect(leg));
    let (kind, said) = peer::ask(&mut more, echo);
    assert_eq!(kind, FrameKind::Failed);
    let failure = decode_failed(&said).unwrap();
    assert!(failure.code == FailureCode::Overloaded && failure.text.contains("node small: 12 "), "{failure:?}");
    assert_eq!(socks(proxy, "127.0.0.1", echo.port()).0, 0);
    peer::say(&more, FrameKind::End);
    drop(open.pop());
    open_when_there_is_room(&mut more, echo);
}
