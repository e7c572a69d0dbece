//! A client that leaves while its destination is being reached takes nobody's time and descriptors any more.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Instant;

use crate::common::*;
use ekiden_net::steer::ignore_new;

/// Far longer than a test takes.
const LONG: &str = "[limits]\nconnect = \"300s\"\n";

/// A listener that lets nobody in.
fn silent() -> (TcpListener, SocketAddr) {
    let (listener, address) = listener();
    ignore_new(&listener).unwrap();
    (listener, address)
}

/// Sockets of this machine that try to connect there, each once: the kernel's table may name one twice.
fn connecting(to: SocketAddr) -> usize {
    let remote = format!(":{:04X} 02 ", to.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let tries = table.lines().filter(|line| line.contains(&remote));
    tries.map(|line| line.split_whitespace().take(3).skip(1).collect::<Vec<_>>()).collect::<BTreeSet<_>>().len()
}

/// Something that a client sends, or nothing.
type Client = (&'static str, Vec<u8>);

fn clients(to: SocketAddr) -> Vec<Client> {
    let mut socks = vec![5, 1, 0, 5, 1, 0, 1];
    let SocketAddr::V4(v4) = to else { panic!("{to}") };
    socks.extend(v4.ip().octets());
    socks.extend(to.port().to_be_bytes());
    vec![
        ("socks", socks.clone()),
        ("early", socks),
        ("web", format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").into()),
        ("web", format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").into()),
        ("fixed", Vec::new()),
    ]
}

fn chain(mode: Mode, count: usize, to: SocketAddr) -> Chain {
    let entry = format!(
        "[listen.early]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nreply = \"early\"\n\
         [listen.fixed]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"{to}\"\n{LONG}"
    );
    Chain::of(mode, count, &entry, LONG)
}

#[test]
fn a_reset_ends_the_attempt_on_every_way() {
    for (mode, count) in [(Mode::Plain, 0), (Mode::Plain, 1), (Mode::Tls, 2)] {
        let (_silent, to) = silent();
        let chain = chain(mode, count, to);
        for (listener, request) in clients(to) {
            let mut client = connect(chain.address(listener));
            client.write_all(&request).unwrap();
            wait_until("it is tried", || connecting(to) == 1);
            reset(client);
            wait_until(&format!("{listener} over {count} nodes has given up"), || connecting(to) == 0);
        }
        wait_until("nothing is busy", || chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0));
    }
}

#[test]
fn the_end_of_a_client_that_must_be_answered_first_ends_the_attempt() {
    let (_silent, to) = silent();
    let chain = chain(Mode::Plain, 1, to);
    for (listener, request) in [&clients(to)[0], &clients(to)[2]] {
        let mut client = connect(chain.address(listener));
        client.write_all(request).unwrap();
        wait_until("it is tried", || connecting(to) == 1);
        client.shutdown(Shutdown::Write).unwrap();
        wait_until(&format!("{listener} has given up"), || connecting(to) == 0);
    }
}

#[test]
fn the_end_of_a_client_that_may_still_listen_ends_nothing() {
    let (_silent, to) = silent();
    let chain = chain(Mode::Plain, 0, to);
    let all = clients(to);
    let mut with_payload = all[0].clone();
    with_payload.1.extend(b"sent without waiting");
    for (listener, request) in [&all[1], &all[3], &all[4], &with_payload] {
        let mut client = connect(chain.address(listener));
        client.write_all(request).unwrap();
        wait_until("it is tried", || connecting(to) == 1);
        client.shutdown(Shutdown::Write).unwrap();
        // By then another client's end has been noticed, and this one's too.
        let mut other = connect(chain.address("socks"));
        other.write_all(&all[0].1).unwrap();
        wait_until("both are tried", || connecting(to) == 2);
        other.shutdown(Shutdown::Write).unwrap();
        let start = Instant::now();
        wait_until("the other has given up", || connecting(to) == 1);
        std::thread::sleep(start.elapsed());
        assert_eq!(connecting(to), 1, "{listener}");
        reset(client);
        wait_until("it has given up", || connecting(to) == 0);
    }
}

#[test]
fn what_was_sent_before_an_end_arrives() {
    let server = late_echo();
    let chain = Chain::new(0);
    let mut client = connect(chain.address("socks"));
    let mut request = clients(server)[0].1.clone();
    request.extend(b"all of it");
    client.write_all(&request).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(b"all of it"), "{answer:?}");
}
