//! What a node does when its peer fails it, seen by a peer that is this test.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::common::peer::{accept_node, frame, say};
use crate::common::*;
use ekiden_relay_proto::leg::{FrameKind, HEADER_BYTES, Header, Opened};

/// Accepts a node and its OPEN.
fn accept_open(listener: &TcpListener) -> TcpStream {
    let mut stream = accept_node(listener);
    assert_eq!(frame(&mut stream).0, FrameKind::Open);
    stream
}

/// A node whose only peer is at `address`, and a connection to that peer that is warm in it.
fn warmed(listener: &TcpListener, address: SocketAddr) -> (ekiden_relay::Relay, TcpStream) {
    let listen = |name: &str, kind: &str, more: &str| {
        format!("[listen.{name}]\nkind = \"{kind}\"\naddress = \"127.0.0.1:0\"\n{more}\n")
    };
    let to = "to = \"192.0.2.1:1\"\nvia = [\"p\"]";
    let entry = node(&format!(
        "{}{}{}{}{}[[route]]\nto = [\"*\"]\nvia = [\"p\"]\n[peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n",
        listen("fwd", "forward", to),
        listen("fwdconnected", "forward", &format!("{to}\nreply = \"connected\"")),
        listen("web", "http", ""),
        listen("webearly", "http", "reply = \"early\""),
        listen("socksearly", "socks5", "reply = \"early\""),
    ));
    let client = connect(entry.address("fwd").unwrap());
    let mut stream = accept_open(listener);
    stream.write_all(&Opened::at(None).encode()).unwrap();
    say(&stream, FrameKind::End);
    drop(client);
    assert_eq!(frame(&mut stream).0, FrameKind::End);
    say(&stream, FrameKind::Delivered);
    wait_until("the stream is over", || entry.busy() == 0);
    (entry, stream)
}

/// A client that has been answered although its destination has not, and has said `early`.
fn answered_early(entry: &ekiden_relay::Relay, listener: &str) -> TcpStream {
    let address = entry.address(listener).unwrap();
    let mut client = match listener {
        "socksearly" => {
            let (code, stream) = socks(address, "192.0.2.1", 1);
            assert_eq!(code, 0);
            stream
        }
        "webearly" => {
            let mut stream = connect(address);
            stream.write_all(b"CONNECT 192.0.2.1:1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
            stream
        }
        _ => connect(address),
    };
    client.write_all(b"early").unwrap();
    client
}

const EARLY: [&str; 3] = ["fwd", "socksearly", "webearly"];

#[test]
fn what_an_early_client_says_travels_with_the_request_and_arrives_once() {
    for front in EARLY {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let mut client = answered_early(&entry, front);
        assert_eq!(frame(&mut warm).0, FrameKind::Open);
        assert_eq!(frame(&mut warm), (FrameKind::Data, b"early".to_vec()), "{front}");
        warm.write_all(&Opened::at(None).encode()).unwrap();
        client.write_all(b"later").unwrap();
        assert_eq!(frame(&mut warm), (FrameKind::Data, b"later".to_vec()), "{front}");
        warm.write_all(&Header::frame(FrameKind::Data, b"answer")).unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}

#[test]
fn a_warm_connection_that_ended_was_not_read_and_is_replaced() {
    for front in EARLY {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let _client = answered_early(&entry, front);
        assert_eq!(frame(&mut warm).0, FrameKind::Open);
        assert_eq!(frame(&mut warm), (FrameKind::Data, b"early".to_vec()));
        drop(warm);
        assert_eq!(frame(&mut accept_open(&listener)), (FrameKind::Data, b"early".to_vec()), "{front}");
    }
}

#[test]
fn what_a_warm_connection_may_have_taken_before_its_reset_is_not_said_again() {
    for front in EARLY {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let mut client = answered_early(&entry, front);
        assert_eq!(frame(&mut warm).0, FrameKind::Open);
        assert_eq!(frame(&mut warm), (FrameKind::Data, b"early".to_vec()));
        reset(warm);
        assert!(!ends_cleanly(&mut client), "{front}");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "{front}: sent again");
    }
    // What may arrive twice, and a request that had nothing with it, is.
    for request in
        ["GET http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT 192.0.2.1:1 HTTP/1.1\r\nHost: x\r\n\r\n"]
    {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let mut client = connect(entry.address("web").unwrap());
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(frame(&mut warm).0, FrameKind::Open);
        reset(warm);
        accept_open(&listener);
    }
}

#[test]
fn an_answer_that_was_begun_is_not_asked_for_again() {
    for answer in [&Opened::at(None).encode()[..3], &[0xff; 8]] {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let mut client = answered_early(&entry, "fwd");
        assert_eq!(frame(&mut warm).0, FrameKind::Open);
        warm.write_all(answer).unwrap();
        drop(warm);
        assert!(!ends_cleanly(&mut client));
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "sent again after {answer:?}");
    }
}

#[test]
fn a_forward_listener_that_replies_when_connected_says_nothing_before_the_answer() {
    let (listener, address) = listener();
    let (entry, mut warm) = warmed(&listener, address);
    let _client = answered_early(&entry, "fwdconnected");
    assert_eq!(frame(&mut warm).0, FrameKind::Open);
    warm.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(warm.read(&mut [0]).is_err(), "sent early");
    warm.set_read_timeout(Some(PATIENCE)).unwrap();
    warm.write_all(&Opened::at(None).encode()).unwrap();
    assert_eq!(frame(&mut warm), (FrameKind::Data, b"early".to_vec()));
}

#[test]
fn a_client_that_resets_before_the_answer_has_not_ended() {
    let (listener, address) = listener();
    let (entry, mut warm) = warmed(&listener, address);
    let client = connect(entry.address("fwd").unwrap());
    assert_eq!(frame(&mut warm).0, FrameKind::Open);
    reset(client);
    // It may be too late for this answer; whoever writes is told of the reset then, and whoever reads shown an end.
    if warm.write_all(&Opened::at(None).encode()).is_err() {
        return;
    }
    let mut rest = Vec::new();
    let ended = warm.read_to_end(&mut rest).is_ok();
    let is_reset = if ended { rest.first() == Some(&(FrameKind::Reset as u8)) } else { rest.is_empty() };
    assert!(is_reset, "{rest:?}");
}

#[test]
fn only_idempotent_requests_are_sent_before_the_answer() {
    for (method, early) in [("GET", true), ("POST", false)] {
        let (listener, address) = listener();
        let (entry, mut warm) = warmed(&listener, address);
        let mut client = connect(entry.address("web").unwrap());
        write!(client, "{method} http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert_eq!(frame(&mut warm).0, FrameKind::Open);
        if !early {
            warm.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            assert!(warm.read(&mut [0]).is_err(), "sent early");
            warm.set_read_timeout(Some(PATIENCE)).unwrap();
            warm.write_all(&Opened::at(None).encode()).unwrap();
        }
        assert_eq!(frame(&mut warm).0, FrameKind::Data);
    }
}

#[test]
fn a_reset_said_by_a_node_is_heard_before_what_is_queued_ahead_of_it_is_delivered() {
    for client_ends in [false, true] {
        let (listener, address) = listener();
        let entry = node(&format!(
            "[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"p\"]\n\
             tcp = {{ send_buffer = \"8KiB\" }}\n[peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\ntcp = {{ receive_buffer = \"4MiB\" }}\n"
        ));
        let mut client = small_client(entry.address("fwd").unwrap());
        let mut peer = accept_open(&listener);
        peer.write_all(&Opened::at(None).encode()).unwrap();
        if client_ends {
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(frame(&mut peer).0, FrameKind::End);
        }
        peer.write_all(&Header::frame(FrameKind::Data, &[7; 1_000_000])).unwrap();
        peer.write_all(&Header { kind: FrameKind::Reset, length: 1 }.encode()).unwrap();
        drop(peer);
        if client_ends {
            // The end of the connection could be one that follows a stream: only what was said before it tells.
            assert!(!ends_cleanly(&mut client));
        } else {
            wait_until("the client is reset without reading", || client.take_error().unwrap().is_some());
        }
    }
}

/// A client that takes little while it does not read.
fn small_client(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(8192).unwrap();
    socket.connect(&address.into()).unwrap();
    let client = TcpStream::from(socket);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

#[test]
fn one_warm_connection_that_was_reset_speaks_for_the_others() {
    let (listener, address) = listener();
    let (entry, mut first) = warmed(&listener, address);
    // The first one is in use while the second one is made, and used last.
    let clients = [connect(entry.address("fwd").unwrap()), connect(entry.address("fwd").unwrap())];
    assert_eq!(frame(&mut first).0, FrameKind::Open);
    let mut second = accept_open(&listener);
    for stream in [&mut first, &mut second] {
        stream.write_all(&Opened::at(None).encode()).unwrap();
        say(stream, FrameKind::End);
    }
    drop(clients);
    assert_eq!((frame(&mut first).0, frame(&mut second).0), (FrameKind::End, FrameKind::End));
    say(&first, FrameKind::Delivered);
    say(&second, FrameKind::Delivered);
    wait_until("both streams are over", || entry.busy() == 0);
    let mut client = answered_early(&entry, "fwd");
    // Which one is taken is the pool's affair.
    let mut streams = vec![first, second];
    let mut at = None;
    wait_until("one is taken", || {
        at = streams.iter().position(|stream| {
            stream.set_nonblocking(true).unwrap();
            let is_taken = stream.peek(&mut [0]).is_ok();
            stream.set_nonblocking(false).unwrap();
            is_taken
        });
        at.is_some()
    });
    let mut taken = streams.remove(at.unwrap());
    assert_eq!(frame(&mut taken).0, FrameKind::Open);
    // Behind it comes what the client has said.
    taken.read_exact(&mut [0; HEADER_BYTES + 5]).unwrap();
    reset(taken);
    assert!(!ends_cleanly(&mut client));
    ends_cleanly(&mut streams[0]);
}

/// How many connections to a peer are made at a time, before it is known how long one takes.
const TURNS: usize = 256;

#[test]
fn a_stream_beyond_the_connections_that_may_be_made_at_a_time_gets_one_that_comes_back() {
    let (listener, address) = listener();
    let (entry, mut warm) = warmed(&listener, address);
    let front = entry.address("fwd").unwrap();
    let first = answered_early(&entry, "fwd");
    assert_eq!(frame(&mut warm).0, FrameKind::Open);
    assert_eq!(frame(&mut warm), (FrameKind::Data, b"early".to_vec()));
    // The peer answers none of the connections that are made for these, so that all turns are taken.
    let others: Vec<_> = (0..=TURNS).map(|_| connect(front)).collect();
    wait_until("all have begun", || entry.busy() == 1 + others.len());
    warm.write_all(&Opened::at(None).encode()).unwrap();
    drop(first);
    assert_eq!(frame(&mut warm).0, FrameKind::End);
    say(&warm, FrameKind::Delivered);
    assert_eq!(frame(&mut warm).0, FrameKind::Open);
}

#[test]
fn a_stream_that_gets_no_connection_in_time_is_refused() {
    let (listener, address) = listener();
    // More than the standard library's 128 are connected, and none is answered.
    socket2::SockRef::from(&listener).listen(2 * TURNS as i32).unwrap();
    let entry = node(&format!(
        "[limits]\nconnect = \"1s\"\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nto = [\"*\"]\nvia = [\"p\"]\n[peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n"
    ));
    let mut clients: Vec<_> = (0..=TURNS).map(|_| connect(entry.address("web").unwrap())).collect();
    for client in &mut clients {
        client.write_all(b"CONNECT 192.0.2.1:1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
    }
    let mut answered = None;
    wait_until("one is answered", || {
        answered = clients.iter().position(|client| client.peek(&mut [0]).is_ok());
        answered.is_some()
    });
    let mut client = clients.swap_remove(answered.unwrap());
    client.set_nonblocking(false).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("had no connection to node p in time"), "{answer}");
}
