//! What a node does when a warm connection fails it, seen by a peer that is this test.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::*;
use ekiden_relay_proto::segment::{Acceptor, HEADER_BYTES, Header, Key, Kind, encode_opened};

fn frame(stream: &mut TcpStream) -> (Kind, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = Header::decode(header).unwrap();
    let mut body = vec![0; header.length as usize];
    stream.read_exact(&mut body).unwrap();
    (header.kind, body)
}

/// Accepts a node and its OPEN.
fn accept_node(listener: &TcpListener) -> TcpStream {
    let mut stream = accept(listener);
    let mut acceptor = Acceptor::new(Key([0xaa; 32]), [7; 32]);
    let hello = frame(&mut stream).1;
    stream.write_all(&acceptor.hello(&hello).unwrap()).unwrap();
    let auth = frame(&mut stream).1;
    acceptor.authenticate(&auth).unwrap();
    assert_eq!(frame(&mut stream).0, Kind::Open);
    stream
}

/// A node whose only peer is at `address`, and a connection to that peer that is warm in it.
fn warmed(listener: &TcpListener, address: SocketAddr) -> (ekiden_relay::Relay, TcpStream) {
    let entry = node(&format!(
        "[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"p\"]\n\
         [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n[[route]]\nto = [\"*\"]\nvia = [\"p\"]\n\
         [peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n"
    ));
    let client = connect(entry.address("fwd").unwrap());
    let mut stream = accept_node(listener);
    let end = Header { kind: Kind::End, length: 0 }.encode();
    stream.write_all(&encode_opened(None)).unwrap();
    stream.write_all(&end).unwrap();
    drop(client);
    assert_eq!(frame(&mut stream).0, Kind::End);
    wait_until("the stream is over", || entry.busy() == 0);
    (entry, stream)
}

#[test]
fn a_warm_connection_is_replaced_only_if_it_ended_before_an_answer() {
    for (answer, again) in [(&b""[..], true), (&encode_opened(None)[..3], false), (&[0xff; 8], false)] {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let mut client = connect(entry.address("fwd").unwrap());
        client.write_all(b"early").unwrap();
        assert_eq!(frame(&mut warm).0, Kind::Open);
        assert_eq!(frame(&mut warm), (Kind::Data, b"early".to_vec()));
        warm.write_all(answer).unwrap();
        drop(warm);
        if again {
            let mut next = accept_node(&listener);
            assert_eq!(frame(&mut next), (Kind::Data, b"early".to_vec()));
        } else {
            ends_cleanly(&mut client);
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "sent again after {answer:?}");
        }
    }
}

#[test]
fn only_idempotent_requests_are_sent_before_the_answer() {
    for (method, early) in [("GET", true), ("POST", false)] {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let mut client = connect(entry.address("web").unwrap());
        write!(client, "{method} http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert_eq!(frame(&mut warm).0, Kind::Open);
        if !early {
            warm.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            assert!(warm.read(&mut [0]).is_err(), "sent early");
            warm.set_read_timeout(Some(PATIENCE)).unwrap();
            warm.write_all(&encode_opened(None)).unwrap();
        }
        assert_eq!(frame(&mut warm).0, Kind::Data);
    }
}
