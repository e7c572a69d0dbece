//! Service classes: which class a stream is of, and how many of one are open at a time.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::peer::{accept_node, frame};
use crate::common::*;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ekiden_relay_proto::leg::{FrameKind, Open};

/// A node with these classes whose streams all go to a peer at this address.
fn entry(peer: SocketAddr, more: &str) -> ekiden_relay::Relay {
    node(&format!(
        "name = \"entry\"\nthreads = 2\n\
         [listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nclass = \"web\"\n\
         [listen.plain]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
         [listen.locked]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nclass = \"web\"\nusers = {{ alice = \"{}\", bob = \"{}\" }}\n\
         [peer.next]\naddress = \"{peer}\"\nplain_key_file = \"key\"\n\
         [[route]]\nto = [\"*:22\"]\nvia = [\"next\", \"last\"]\nclass = \"interactive\"\n\
         [[route]]\nto = [\"*\"]\nvia = [\"next\"]\n\
         [class.web]\n[class.staff]\nusers = [\"alice\"]\n{more}",
        hash_of_secret(),
        hash_of_secret()
    ))
}

/// A SOCKS client that has not asked for anything yet, as a user if one is named.
fn client(proxy: SocketAddr, user: Option<&str>) -> TcpStream {
    let mut stream = connect(proxy);
    stream.write_all(&[5, 1, if user.is_some() { 2 } else { 0 }]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    if let Some(user) = user {
        stream.write_all(&[&[1, user.len() as u8], user.as_bytes(), &[6], b"secret"].concat()).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
    }
    stream
}

/// The same, which has asked for a destination, and has not waited for the answer.
fn ask(proxy: SocketAddr, user: Option<&str>, to: impl Into<SocketAddr>) -> TcpStream {
    let (mut stream, to) = (client(proxy, user), to.into());
    let IpAddr::V4(ip) = to.ip() else { panic!("{to}") };
    stream.write_all(&[&[5, 1, 0, 1], &ip.octets()[..], &to.port().to_be_bytes()].concat()).unwrap();
    stream
}

#[test]
fn a_route_says_the_class_before_the_user_and_the_user_before_the_listener() {
    let (listener, address) = listener();
    let node = entry(address, "");
    // A connection that ends without an answer would be followed by another one with the same request.
    let mut unanswered = Vec::new();
    let mut class = |listen: &str, user: Option<&str>, port: u16| {
        let _client = ask(node.address(listen).unwrap(), user, ([192, 0, 2, 1], port));
        unanswered.push(accept_node(&listener));
        let (kind, body) = frame(unanswered.last_mut().unwrap());
        assert_eq!(kind, FrameKind::Open);
        Open::decode(&body).unwrap().class
    };
    assert_eq!(class("socks", None, 80), "web");
    assert_eq!(class("plain", None, 80), "");
    assert_eq!(class("locked", Some("alice"), 80), "staff");
    assert_eq!(class("locked", Some("bob"), 80), "web");
    for listen in ["socks", "plain"] {
        assert_eq!(class(listen, None, 22), "interactive");
    }
    assert_eq!(class("locked", Some("alice"), 22), "interactive");
}

#[test]
fn a_node_passes_on_a_class_that_it_does_not_know() {
    let (listener, address) = listener();
    let middle = leg_node(Mode::Plain, "next", Some(("last", address)), "[class.other]\n");
    let node = entry(middle.address("leg").unwrap(), "");
    let _client = ask(node.address("socks").unwrap(), None, ([192, 0, 2, 1], 22));
    let (_, body) = frame(&mut accept_node(&listener));
    assert_eq!(Open::decode(&body).unwrap().class, "interactive");
}

/// The SOCKS reply, if it comes within this time.
fn reply(stream: &mut TcpStream, within: Duration) -> Option<u8> {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).ok().map(|()| reply[1])
}

#[test]
fn streams_of_a_class_wait_for_their_turn_and_others_do_not() {
    let last = leg_node(Mode::Plain, "next", None, "");
    let node = entry(last.address("leg").unwrap(), "[class.bulk]\nstreams = 2\nwait = \"20s\"\n");
    let host = echo();
    let [bulk, web] = ["plain", "socks"].map(|name| node.address(name).unwrap());
    let open = |proxy: SocketAddr| socks(proxy, "127.0.0.1", host.port());
    let ask = |proxy: SocketAddr| ask(proxy, None, host);
    let mut running: Vec<TcpStream> =
        (0..2).map(|_| open(bulk)).map(|(code, stream)| (code == 0).then_some(stream).unwrap()).collect();
    let mut third = ask(bulk);
    assert_eq!(reply(&mut third, Duration::from_millis(300)), None);
    // It has come after the third by now, whose turn is first.
    let mut fourth = ask(bulk);
    assert_eq!(reply(&mut fourth, Duration::from_millis(300)), None);
    // Another class has turns of its own.
    assert_eq!(open(web).0, 0);
    assert_eq!(exchange(running.pop().unwrap(), b"over"), b"over");
    assert_eq!(reply(&mut third, PATIENCE), Some(0));
    assert_eq!(reply(&mut fourth, Duration::from_millis(300)), None);
    // A client that waits no more leaves its place.
    drop(fourth);
    let mut fifth = ask(bulk);
    assert_eq!(exchange(third, b"over too"), b"over too");
    assert_eq!(reply(&mut fifth, PATIENCE), Some(0));
}

#[test]
fn a_stream_whose_turn_does_not_come_is_refused_with_the_reason() {
    let last = leg_node(Mode::Plain, "next", None, "");
    let more =
        "[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n[class.bulk]\nstreams = 1\nwait = \"200ms\"\n";
    let node = entry(last.address("leg").unwrap(), more);
    let host = server(|mut stream| {
        while !read_head(&mut stream).is_empty() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let web = node.address("web").unwrap();
    let get = |client: &mut TcpStream| {
        write!(client, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let head = read_head(client);
        if head.starts_with("HTTP/1.1 200 ") {
            body(client, 2);
        }
        head
    };
    // Clients that keep their connection, and have nothing to ask, take no turn.
    let mut clients = [connect(web), connect(web)];
    for _ in 0..2 {
        for client in &mut clients {
            assert!(get(client).starts_with("HTTP/1.1 200 "));
        }
    }
    let (code, _stream) = socks(node.address("plain").unwrap(), "127.0.0.1", host.port());
    assert_eq!(code, 0);
    let begun = Instant::now();
    let mut client = connect(web);
    let head = get(&mut client);
    assert!(head.starts_with("HTTP/1.1 503 ") && begun.elapsed() >= Duration::from_millis(200), "{head}");
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    assert!(said.contains("node entry has 1 streams of the class bulk to node next"), "{said}");
}

/// A node where bob's streams are of a class with one turn, and an origin that keeps a connection for a second. Returns the node, the one
/// behind it, and the origin's address.
fn with_one_turn_for_bob() -> (ekiden_relay::Relay, ekiden_relay::Relay, SocketAddr) {
    let last = leg_node(Mode::Plain, "next", None, "");
    let hash = hash_of_secret();
    let more = format!(
        "[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\nusers = {{ alice = \"{hash}\", bob = \"{hash}\" }}\n\
         [class.bob]\nusers = [\"bob\"]\nstreams = 1\n"
    );
    let node = entry(last.address("leg").unwrap(), &more);
    let host = server(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while stream.read(&mut byte).is_ok_and(|n| n == 1) {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            }
        }
    });
    (node, last, host)
}

/// One request on a client's connection, which must not be sent twice.
fn post(web: &mut TcpStream, user: &str, host: SocketAddr) {
    let login = BASE64_STANDARD.encode(format!("{user}:secret"));
    write!(
        web,
        "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {login}\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let head = read_head(web);
    assert!(head.starts_with("HTTP/1.1 200 "), "{user}: {head}");
    body(web, 2);
}

/// Bob's turn is taken, and given back after two seconds.
fn hold_bobs_turn(node: &ekiden_relay::Relay, host: SocketAddr) {
    let mut held = ask(node.address("locked").unwrap(), Some("bob"), host);
    assert_eq!(reply(&mut held, PATIENCE), Some(0));
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        drop(held);
    });
}

#[test]
fn a_kept_origin_is_not_used_for_another_class() {
    let (node, _last, host) = with_one_turn_for_bob();
    let mut web = connect(node.address("web").unwrap());
    hold_bobs_turn(&node, host);
    let begun = Instant::now();
    post(&mut web, "alice", host);
    // The connection that is kept is of her class.
    post(&mut web, "bob", host);
    assert!(begun.elapsed() >= Duration::from_secs(1), "bob has not waited for his turn");
}

#[test]
fn a_kept_origin_that_has_gone_while_its_request_waited_is_not_used() {
    let (node, _last, host) = with_one_turn_for_bob();
    let mut web = connect(node.address("web").unwrap());
    post(&mut web, "bob", host);
    hold_bobs_turn(&node, host);
    post(&mut web, "bob", host);
}
