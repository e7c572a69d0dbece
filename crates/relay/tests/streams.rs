//! Streams through no, one and three nodes: bytes, ends, resets and failures.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::common::*;

#[test]
fn every_front_end_carries_a_half_closed_exchange_over_any_chain() {
    let server = late_echo();
    let data = noise(3_000_000, 1);
    for (mode, count) in CHAINS {
        let via: Vec<String> = (1..=count).map(|i| format!("n{i}")).collect();
        let forward =
            format!("[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"{server}\"\nvia = {via:?}\n");
        let forward = if count == 0 { forward.replace("via = []", "") } else { forward };
        let chain = Chain::of(mode, count, &forward, "");
        for round in 0..3 {
            assert!(exchange(chain.socks(server), &data) == data, "socks, {mode:?}, {count} nodes, round {round}");
            assert!(exchange(chain.tunnel(server), &data) == data, "http, {mode:?}, {count} nodes, round {round}");
            assert!(
                exchange(connect(chain.address("fwd")), &data) == data,
                "forward, {mode:?}, {count} nodes, round {round}"
            );
            assert!(exchange(connect(chain.address("fwd")), b"") == b"", "empty forward, {mode:?}, {count} nodes");
            assert!(exchange(connect(chain.address("fwd")), b"x") == b"x", "short forward, {mode:?}, {count} nodes");
        }
    }
}

#[test]
fn the_server_may_end_first_and_go_on_listening() {
    for (mode, count) in CHAINS {
        let chain = Chain::of(mode, count, "", "");
        let (listener, address) = listener();
        let server = std::thread::spawn(move || {
            let mut stream = accept(&listener);
            stream.write_all(b"that is all").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).map(|_| all)
        });
        let mut client = chain.socks(address);
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"that is all");
        let data = noise(1_000_000, 2);
        client.write_all(&data).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(server.join().unwrap().unwrap() == data, "{mode:?}, {count} nodes");
    }
}

#[test]
fn small_pieces_alternate_with_large_ones() {
    let server = echo();
    for (mode, count) in CHAINS {
        let chain = Chain::of(mode, count, "", "");
        let mut stream = chain.socks(server);
        for (i, length) in [1, 100, 16_383, 16_384, 16_385, 200_000, 3, 70_000, 1_048_577, 1].into_iter().enumerate() {
            let data = noise(length, i as u64 + 7);
            let mut writer = stream.try_clone().unwrap();
            let mut back = vec![0; length];
            std::thread::scope(|scope| {
                scope.spawn(|| writer.write_all(&data).unwrap());
                stream.read_exact(&mut back).unwrap();
            });
            assert!(back == data, "{length} bytes, {mode:?}, {count} nodes");
        }
    }
}

#[test]
fn sixty_four_megabytes_both_ways_at_once() {
    let server = echo();
    let data = noise(64 << 20, 3);
    for (mode, count) in [CHAINS[0], CHAINS[3], CHAINS[4]] {
        let chain = Chain::of(mode, count, "", "");
        assert!(exchange(chain.socks(server), &data) == data, "{mode:?}, {count} nodes");
    }
}

#[test]
fn a_slow_receiver_gets_everything() {
    let data = noise(20 << 20, 4);
    let expected = data.clone();
    let (listener, address) = listener();
    let server = std::thread::spawn(move || {
        let mut stream = accept(&listener);
        let _ = stream.write_all(&data);
        // Gone before the receiver has begun to read: what was accepted must still arrive.
        drop(stream);
    });
    let chain = Chain::new(3);
    let mut client = chain.socks(address);
    client.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert!(all == expected);
    server.join().unwrap();
}

#[test]
fn a_reset_by_either_host_is_a_reset_for_the_other() {
    for (mode, count) in CHAINS {
        let chain = Chain::of(mode, count, "", "");
        for server_resets in [true, false] {
            for bytes in [0, 10, 1_000_000] {
                let (listener, address) = listener();
                let client = chain.socks(address);
                let server = accept(&listener);
                let (mut resetting, mut other) = if server_resets { (server, client) } else { (client, server) };
                resetting.write_all(&noise(bytes, 5)).unwrap();
                // Both directions have carried something; then one host gives up.
                other.write_all(b"hello").unwrap();
                resetting.read_exact(&mut [0; 5]).unwrap();
                reset(resetting);
                assert!(!ends_cleanly(&mut other), "{mode:?}, {count} nodes, {server_resets}, {bytes} bytes");
            }
        }
    }
}

#[test]
fn failures_come_back_as_the_right_socks_replies() {
    for (mode, count) in CHAINS {
        let refuse = "[[route]]\nto = [\"*:26\", \"forbidden.example\"]\naction = \"refuse\"\n";
        let chain = Chain::of(mode, count, refuse, "");
        let proxy = chain.address("socks");
        let closed = closed_port();
        assert_eq!(socks(proxy, "127.0.0.1", closed.port()).0, 5, "{mode:?}, {count} nodes: refused");
        assert_eq!(socks(proxy, "localhost", closed.port()).0, 5, "{mode:?}, {count} nodes: refused by name");
        assert_eq!(socks(proxy, "no-such-host.invalid", 80).0, 4, "{mode:?}, {count} nodes: no such name");
        assert_eq!(socks(proxy, "127.0.0.1", 26).0, 2, "{mode:?}, {count} nodes: a route refuses");
        assert_eq!(socks(proxy, "forbidden.example", 80).0, 2, "{mode:?}, {count} nodes: a route refuses");
        // After failures the chain still works.
        assert_eq!(exchange(chain.socks(late_echo()), b"fine"), b"fine");
    }
}

#[test]
fn an_exit_refuses_what_its_own_routes_refuse_also_by_name() {
    let refuse = "[[route]]\nto = [\"127.0.0.0/8\", \"::1\"]\naction = \"refuse\"\n";
    let chain = Chain::with(1, "", refuse);
    let server = echo();
    assert_eq!(socks(chain.address("socks"), "127.0.0.1", server.port()).0, 2);
    assert_eq!(socks(chain.address("socks"), "localhost", server.port()).0, 2);
}

#[test]
fn an_exit_refuses_and_allows_names() {
    let server = echo();
    let port = server.port();
    let reply = |routes: &str, host: &str| {
        let chain = Chain::with(1, "", routes);
        socks(chain.address("socks"), host, port).0
    };
    let refuse = "[[route]]\nto = [\"localhost\"]\naction = \"refuse\"\n";
    assert_eq!(reply(refuse, "localhost"), 2);
    assert_eq!(reply(refuse, "127.0.0.1"), 0);
    let allow = "[[route]]\nto = [\"localhost\"]\naction = \"direct\"\n[[route]]\nto = [\"*\"]\naction = \"refuse\"\n";
    assert_eq!(reply(allow, "localhost"), 0);
    assert_eq!(reply(allow, "127.0.0.1"), 2);
    assert_eq!(reply(allow, "elsewhere.invalid"), 2, "refused before it is resolved");
    let network = "[[route]]\nto = [\"127.0.0.0/8\", \"::1\"]\naction = \"refuse\"\n";
    assert_eq!(reply(&format!("{network}{allow}"), "localhost"), 2, "a network before the name");
}

#[test]
fn a_destination_that_does_not_answer_times_out() {
    // A listener whose queue is full ignores further connections.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let _waiting = TcpStream::connect(address).unwrap();
    for (mode, count) in CHAINS {
        let limits = "[limits]\nconnect = \"300ms\"\n";
        let chain = Chain::of(mode, count, limits, limits);
        assert_eq!(socks(chain.address("socks"), "127.0.0.1", address.port()).0, 6, "{mode:?}, {count} nodes");
        let mut stream = connect(chain.address("web"));
        write!(stream, "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 504 "), "{mode:?}, {count} nodes");
    }
}

#[test]
fn passwords_are_asked_for_and_checked() {
    let chain = Chain::new(0);
    let server = late_echo();
    for (user, password, right) in [("alice", "secret", true), ("alice", "wrong", false), ("bob", "secret", false)] {
        let mut stream = connect(chain.address("locked"));
        stream.write_all(&[5, 2, 0, 2]).unwrap();
        let mut reply = [0; 2];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [5, 2]);
        let mut login = vec![1, user.len() as u8];
        login.extend(user.as_bytes());
        login.push(password.len() as u8);
        login.extend(password.as_bytes());
        stream.write_all(&login).unwrap();
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[1] == 0, right, "{user} {password}");
        if right {
            assert_eq!(socks_request(&mut stream, "127.0.0.1", server.port()), 0);
            assert_eq!(exchange(stream, b"in"), b"in");
        }
    }
    // Without offering a password there is no way in.
    let mut stream = connect(chain.address("locked"));
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut reply = [0; 2];
    // A refusal of the method ends the conversation.
    match stream.read_exact(&mut reply) {
        Ok(()) => assert_eq!(reply, [5, 0xff]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof),
    }
}

#[test]
fn other_commands_and_payload_sent_with_the_request() {
    let chain = Chain::new(1);
    for command in [2, 3] {
        let mut stream = connect(chain.address("socks"));
        stream.write_all(&[5, 1, 0, 5, command, 0, 1, 127, 0, 0, 1, 0, 80]).unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[3], 7);
    }
    let server = late_echo();
    let [high, low] = server.port().to_be_bytes();
    let mut stream = connect(chain.address("socks"));
    stream.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low, b'h', b'i']).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.ends_with(b"hi"), "{all:?}");
}
