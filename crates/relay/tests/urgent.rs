//! Urgent data (RFC 9293 §3.8.5): the urgent byte itself is not carried; what is before and behind it all is, and so is the end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::common::*;
use socket2::SockRef;

fn send_urgent(stream: &TcpStream) {
    SockRef::from(stream).send_out_of_band(b"!").unwrap();
}

/// A connection through `count` nodes, and its other end.
fn pair(mode: Mode, count: usize) -> (Chain, TcpStream, TcpStream) {
    let (listener, address) = listener();
    let chain = Chain::of(mode, count, "", "");
    let client = chain.socks(address);
    let server = accept(&listener);
    (chain, client, server)
}

#[test]
fn an_urgent_byte_in_the_middle_of_bulk_ends_nothing_and_stops_nothing() {
    const BEFORE: usize = 512 << 10;
    let data = noise(BEFORE + 201_000, 5);
    for (mode, count) in CHAINS {
        for is_from_client in [true, false] {
            let (_chain, client, server) = pair(mode, count);
            let (mut sender, mut receiver) = if is_from_client { (client, server) } else { (server, client) };
            let got = std::thread::scope(|scope| {
                scope.spawn(|| {
                    sender.write_all(&data[..BEFORE]).unwrap();
                    send_urgent(&sender);
                    sender.write_all(&data[BEFORE..]).unwrap();
                    sender.shutdown(Shutdown::Write).unwrap();
                });
                let mut got = Vec::new();
                receiver.read_to_end(&mut got).map(|_| got)
            });
            let got = got.unwrap_or_else(|error| panic!("{mode:?}, {count} nodes: {error}"));
            assert_eq!(got.len(), data.len(), "{mode:?}, {count} nodes, from client: {is_from_client}");
            assert!(got == data, "{mode:?}, {count} nodes, from client: {is_from_client}");
        }
    }
}

#[test]
fn bulk_behind_an_urgent_byte_needs_nothing_more_to_arrive() {
    const BEFORE: usize = 3 << 20;
    let data = noise(BEFORE + 1000, 6);
    let (_chain, mut client, mut server) = pair(Mode::Plain, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data[..BEFORE]).unwrap();
            send_urgent(&client);
            // And then nothing, until the other end has all of it.
            client.write_all(&data[BEFORE..]).unwrap();
        });
        let mut got = vec![0; data.len()];
        server.read_exact(&mut got).unwrap();
        assert!(got == data);
    });
}

#[test]
fn a_few_bytes_behind_an_urgent_one_need_nothing_more_to_arrive() {
    for (mode, count) in CHAINS {
        let (_chain, client, mut server) = pair(mode, count);
        for _ in 0..20 {
            // In one segment, so that there is one event for all of it.
            let socket = SockRef::from(&client);
            socket.set_tcp_nodelay(false).unwrap();
            socket.set_tcp_cork(true).unwrap();
            (&client).write_all(b"abc").unwrap();
            send_urgent(&client);
            (&client).write_all(b"def").unwrap();
            socket.set_tcp_cork(false).unwrap();
            let mut got = [0; 6];
            server.read_exact(&mut got).unwrap_or_else(|error| panic!("{mode:?}, {count} nodes: {error}"));
            assert_eq!(&got, b"abcdef");
            (&server).write_all(b"next").unwrap();
            (&client).read_exact(&mut [0; 4]).unwrap();
        }
    }
}
