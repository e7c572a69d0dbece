//! What a new configuration means for connections that are open.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use crate::common::origin::{get, origin};
use crate::common::*;
use base64::Engine;
use ekiden_relay::{Relay, hash_password};
use ekiden_relay_proto::leg::FrameKind;

fn web(users: &str) -> String {
    // On a busy machine the guesses before a login take long.
    let limits = "[limits]\nhandshake = \"60s\"\n";
    format!("{limits}[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\nusers = {{ {users} }}\n")
}

fn with_connection(relay: &Relay, server: SocketAddr) -> TcpStream {
    let mut client = connect(relay.address("web").unwrap());
    assert_eq!(get(&mut client, server, "alice:secret"), 200);
    client
}

#[test]
fn a_user_who_was_removed_or_has_another_password_is_asked_on_a_kept_connection() {
    let (secret, other) = (hash_of_secret(), hash_password(b"other").unwrap());
    let (server, _) = origin();
    let alice = format!("alice = \"{secret}\"");
    let mut relay = node(&web(&alice));
    let mut bob = with_connection(&relay, server);
    relay.reload(config(&web(&format!("bob = \"{secret}\"")))).unwrap();
    assert_eq!(get(&mut bob, server, "alice:secret"), 407);

    relay.reload(config(&web(&alice))).unwrap();
    let (mut old, mut new) = (with_connection(&relay, server), with_connection(&relay, server));
    relay.reload(config(&web(&format!("alice = \"{other}\"")))).unwrap();
    assert_eq!(get(&mut old, server, "alice:secret"), 407);
    assert_eq!(get(&mut new, server, "alice:other"), 200);

    // Who was asked nothing before is asked now.
    relay.reload(config(&web(""))).unwrap();
    let mut open = with_connection(&relay, server);
    relay.reload(config(&web(&alice))).unwrap();
    assert_eq!(get(&mut open, server, "bob:secret"), 407);
}

#[test]
fn a_kept_origin_is_asked_about_again_by_the_new_routes_and_exit() {
    let (server, count) = origin();
    let text = web("");
    let refuse = format!("{text}[[route]]\nto = [\"{server}\"]\naction = \"refuse\"\n");
    let private = format!("{text}[exit]\nallow = [\"192.0.2.1\"]\n");
    for (then, status) in [(&refuse, 403), (&private, 403), (&text, 200)] {
        let mut relay = node(&text);
        let mut client = with_connection(&relay, server);
        let before = count.load(Ordering::Relaxed);
        assert_eq!(get(&mut client, server, "alice:secret"), 200);
        assert_eq!(count.load(Ordering::Relaxed), before, "the origin's connection was kept");
        relay.reload(config(then)).unwrap();
        assert_eq!(get(&mut client, server, "alice:secret"), status);
        assert_eq!(count.load(Ordering::Relaxed), before + usize::from(status == 200));
    }
}

#[test]
fn a_kept_origin_through_a_peer_that_was_removed_is_let_go() {
    let (server, _) = origin();
    for mode in [Mode::Plain, Mode::Tls] {
        let exit = leg_node(mode, "exit", None, "");
        let peer = |known: &str| {
            let address = exit.address("leg").unwrap();
            format!("[peer.exit]\naddress = \"{address}\"\n{known}[[route]]\nto = [\"*\"]\nvia = [\"exit\"]\n")
        };
        let text = |peer: &str| format!("{}{}{peer}", mode.node("key"), web(""));
        let mut relay = node(&text(&peer(&mode.peer("key"))));
        let mut client = with_connection(&relay, server);
        relay.reload(config(&text(&peer(&mode.peer("other-key"))))).unwrap();
        assert_eq!(get(&mut client, server, "alice:secret"), 502, "{mode:?}: the peer has another key now");
    }
}

#[test]
fn a_connection_to_a_listener_that_was_removed_ends_and_streams_go_on() {
    let (server, _) = origin();
    let mut relay = node(&web(""));
    let mut idle = with_connection(&relay, server);
    let mut tunnel = connect(relay.address("web").unwrap());
    let echo = echo();
    write!(tunnel, "CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n\r\n").unwrap();
    assert!(read_head(&mut tunnel).starts_with("HTTP/1.1 200 "));
    let mut fresh = connect(relay.address("web").unwrap());
    wait_until("all are accepted", || relay.connections() == 3);
    relay.reload(config("[listen.other]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n")).unwrap();
    assert!(ends_cleanly(&mut idle));
    assert_eq!(get(&mut fresh, server, "alice:secret"), 503);
    tunnel.write_all(b"goes on").unwrap();
    tunnel.read_exact(&mut [0; 7]).unwrap();
}

#[test]
fn a_socks_client_who_is_not_done_is_served_by_the_new_configuration() {
    let secret = hash_of_secret();
    let socks =
        |users: &str| format!("[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nusers = {{ {users} }}\n");
    for (users, method) in [(format!("alice = \"{secret}\""), 2), (String::new(), 0)] {
        let mut relay = node(&socks(&users));
        let mut client = connect(relay.address("socks").unwrap());
        client.write_all(&[5, 1, method]).unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
        if method == 2 {
            client.write_all(b"\x01\x05alice\x06secret").unwrap();
            let mut answer = [0; 2];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [1, 0]);
        }
        relay.reload(config(&socks(&format!("bob = \"{secret}\"")))).unwrap();
        let mut request = b"\x05\x01\x00\x01\x7f\x00\x00\x01".to_vec();
        request.extend(echo().port().to_be_bytes());
        client.write_all(&request).unwrap();
        let error = client.read_exact(&mut [0; 4]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{error}");
    }
}

#[test]
fn a_user_who_is_removed_while_the_login_waits_is_asked_again() {
    let secret = hash_of_secret();
    let (server, _) = origin();
    let before = web(&format!("alice = \"{secret}\", bob = \"{secret}\""));
    for attempt in 1.. {
        let mut relay = node(&before);
        let web_address = relay.address("web").unwrap();
        let ask = |from: [u8; 4], login: &str| {
            let mut stream = connect_from(from, web_address);
            let credentials = base64::engine::general_purpose::STANDARD.encode(login);
            let head = format!("GET http://{server}/ HTTP/1.1\r\nHost: {server}\r\n");
            write!(stream, "{head}Proxy-Authorization: Basic {credentials}\r\n\r\n").unwrap();
            stream
        };
        // Addresses take turns, and each of these has one guess before hers.
        let guesses: Vec<TcpStream> = (1..30).map(|i| ask([127, 0, 9, i], "bob:wrong")).collect();
        let mut alice = ask([127, 0, 9, 99], "alice:secret");
        wait_until("all are accepted", || relay.connections() == 30);
        relay.reload(config(&web(&format!("bob = \"{secret}\"")))).unwrap();
        alice.set_nonblocking(true).unwrap();
        let had_waited = alice.peek(&mut [0]).is_err();
        alice.set_nonblocking(false).unwrap();
        let status = read_head(&mut alice)[9..12].to_owned();
        drop(guesses);
        if had_waited {
            assert_eq!(status, "407");
            break;
        }
        assert!(attempt < 5, "her login never waits");
    }
}

#[test]
fn a_node_whose_key_was_taken_away_is_let_go_of_at_once() {
    let listen =
        |key: &str| format!("[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\nplain_key_file = \"{key}\"\n");
    let mut relay = node(&listen("key"));
    let mut dialler = peer::open_at(relay.address("leg").unwrap(), echo());
    // Its stream goes on; the connection between two streams does not.
    peer::say(&dialler, FrameKind::End);
    while !matches!(peer::frame(&mut dialler).0, FrameKind::Delivered) {}
    relay.reload(config(&listen("other-key"))).unwrap();
    let ended = dialler
        .read(&mut [0])
        .or_else(|error| if error.kind() == ErrorKind::ConnectionReset { Ok(0) } else { Err(error) });
    assert_eq!(ended.unwrap(), 0);
}
