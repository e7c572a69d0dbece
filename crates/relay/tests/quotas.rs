//! How many connections one client, and one user, may have.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::*;
use base64::Engine;

/// How many lines of the log have this part.
fn logged(part: &str) -> usize {
    log::logged(part).len()
}

/// Whether it is served: the method's answer, or a reset before any byte.
fn is_served(mut stream: &TcpStream) -> bool {
    // A reset that came before is told here, and only once.
    match stream.write_all(&[5, 1, 0]).and_then(|()| stream.read_exact(&mut [0; 2])) {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
            false
        }
    }
}

#[test]
fn a_client_has_as_many_connections_as_it_is_allowed() {
    log::keep();
    let chain = Chain::with(0, "[limits]\nclient_connections = 3\n", "");
    let address = chain.address("socks");
    let mut open: Vec<TcpStream> = (0..3).map(|_| connect_from([127, 0, 1, 1], address)).collect();
    assert!(open.iter().all(is_served));
    // Whatever the listener, it is the same client.
    for address in [address, chain.address("web"), address, address] {
        assert!(!is_served(&connect_from([127, 0, 1, 1], address)));
    }
    assert_eq!(logged("client 127.0.1.1: 3 connections are open (limits.client_connections); others are reset"), 1);
    assert!(is_served(&connect_from([127, 0, 1, 2], address)), "another client is not concerned");
    drop(open.pop());
    wait_until("there is room again", || is_served(&connect_from([127, 0, 1, 1], address)));
    drop(open);
    wait_until("all are gone", || chain.entry.connections() == 0);
}

#[test]
fn a_client_connects_as_often_as_it_is_allowed() {
    log::keep();
    let chain = Chain::with(0, "[limits]\nclient_rate = 20\n", "");
    let (address, begun) = (chain.address("socks"), Instant::now());
    let served = (0..60).filter(|_| is_served(&connect_from([127, 0, 2, 1], address))).count();
    let most = 20 + (begun.elapsed().as_secs_f64() * 20.0).ceil() as usize;
    assert!((20..=most).contains(&served), "{served} of at most {most}");
    assert!(served == 60 || logged("client 127.0.2.1: more than 20 new connections per second") > 0);
    assert!(is_served(&connect_from([127, 0, 2, 2], address)));
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_served(&connect_from([127, 0, 2, 1], address)), "a twentieth of a second is enough for one more");
}

/// Whether the node has closed it.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn whoever_has_not_proven_a_key_leaves_room_on_a_leg_listener_for_others() {
    log::keep();
    for (limits, from) in [("connections = 40", 1), ("connections = 40\nclient_connections = 4", 2)] {
        let text = format!("[limits]\n{limits}\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n");
        let relay = leg_node(Mode::Plain, "n1", None, &text);
        let (leg, socks) = (relay.address("leg").unwrap(), relay.address("socks").unwrap());
        let open: Vec<TcpStream> = (0..100).map(|_| connect_from([127, 0, 4, from], leg)).collect();
        let are_there = |open: &[TcpStream]| open.iter().filter(|stream| !is_closed(stream)).count();
        wait_until("half of them may be there", || are_there(&open) == 20);
        let newest = connect_from([127, 0, 4, from], leg);
        wait_until("another one goes for the newest", || are_there(&open) == 19);
        assert!(!is_closed(&newest));
        assert!(is_served(&connect_from([127, 0, 4, 9], socks)));
        // A node comes in from the same address, and from another.
        let nodes = [from, 8].map(|from| {
            let mut node = peer::greet(connect_from([127, 0, 4, from], leg));
            peer::ask_for(&mut node, echo());
            node
        });
        let more: Vec<TcpStream> = (0..100).map(|_| connect_from([127, 0, 4, from], leg)).collect();
        wait_until("they have come", || are_there(&more) == 20);
        for node in &nodes {
            assert!(!is_closed(node));
        }
        drop((nodes, open, more, newest));
        wait_until("all are gone", || relay.connections() == 0);
    }
    assert!(logged("on [listen.leg] was closed for a newer one: too many have not proven a key yet") >= 1);
}

#[test]
fn an_address_has_only_so_many_connections_without_a_key() {
    let relay = leg_node(Mode::Plain, "n1", None, "[limits]\nclient_connections = 4\n");
    let leg = relay.address("leg").unwrap();
    let other = connect_from([127, 0, 5, 2], leg);
    let open: Vec<TcpStream> = (0..300).map(|_| connect_from([127, 0, 5, 1], leg)).collect();
    wait_until("the others are there", || relay.connections() == 257);
    wait_until("the oldest are closed", || open.iter().filter(|stream| is_closed(stream)).count() == 44);
    assert!(!is_closed(&other), "another address is not concerned");
}

#[test]
fn clients_on_this_machine_come_as_often_as_they_like() {
    let served = |limits: &str, from: u8| {
        let address = Chain::with(0, limits, "");
        let address = (address.address("socks"), address);
        (0..1500).filter(|_| is_served(&connect_from([127, 0, 6, from], address.0))).count()
    };
    assert_eq!(served("", 1), 1500);
    assert_eq!(served("[limits]\nclient_rate = 5\nloopback_rate = 1000000\n", 2), 1500);
    assert!(served("[limits]\nloopback_rate = 5\n", 3) < 1500);
}

#[test]
fn other_nodes_are_no_clients() {
    let limits = "[limits]\nclient_connections = 1\nclient_rate = 1\n";
    let chain = Chain::with(2, "", limits);
    let server = late_echo();
    let streams: Vec<TcpStream> = (0..5).map(|_| chain.socks(server)).collect();
    for stream in streams {
        assert_eq!(exchange(stream, b"served"), b"served");
    }
}

fn login(proxy: SocketAddr, user: &str) -> TcpStream {
    let mut stream = connect(proxy);
    stream.write_all(&[5, 1, 2]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    let mut login = vec![1, user.len() as u8];
    login.extend(user.as_bytes());
    login.push(6);
    login.extend(b"secret");
    stream.write_all(&login).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1, 0]);
    stream
}

fn get(stream: &mut TcpStream, server: SocketAddr, user: &str) -> String {
    let credentials = base64::engine::general_purpose::STANDARD.encode(format!("{user}:secret"));
    let head = format!("GET http://{server}/ HTTP/1.1\r\nHost: {server}\r\nProxy-Authorization: Basic {credentials}");
    write!(stream, "{head}\r\n\r\n").unwrap();
    read_head(stream)
}

#[test]
fn a_user_has_as_many_connections_as_it_is_allowed() {
    log::keep();
    let secret = hash_of_secret();
    let relay = node(&format!(
        "[limits]\nuser_connections = 2\n\
         [listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nusers = {{ ann = \"{secret}\", bob = \"{secret}\" }}\n\
         [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\nusers = {{ ann = \"{secret}\", bob = \"{secret}\" }}\n"
    ));
    let (proxy, web) = (relay.address("socks").unwrap(), relay.address("web").unwrap());
    let echo = late_echo();
    let origin = server(|mut stream| {
        loop {
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let mut first = login(proxy, "ann");
    assert_eq!(socks_request(&mut first, "127.0.0.1", echo.port()), 0);
    let mut second = connect(web);
    for _ in 0..3 {
        assert!(get(&mut second, origin, "ann").starts_with("HTTP/1.1 200 "), "one connection, however many requests");
    }
    let mut third = login(proxy, "ann");
    assert_eq!(socks_request(&mut third, "127.0.0.1", echo.port()), 2);
    assert!(get(&mut connect(web), origin, "ann").starts_with("HTTP/1.1 429 Too Many Requests\r\n"));
    assert_eq!(logged("user \"ann\": 2 connections are open (limits.user_connections); others are refused"), 1);
    assert!(get(&mut connect(web), origin, "bob").starts_with("HTTP/1.1 200 "), "another user is not concerned");
    // A connection counts for whoever makes its requests.
    assert!(get(&mut second, origin, "bob").starts_with("HTTP/1.1 200 "));
    let mut fourth = login(proxy, "ann");
    assert_eq!(socks_request(&mut fourth, "127.0.0.1", echo.port()), 0);
    assert_eq!(exchange(first, b"unharmed"), b"unharmed");
    wait_until("there is room again", || socks_request(&mut login(proxy, "ann"), "127.0.0.1", echo.port()) == 0);
}

#[test]
fn a_user_connects_as_often_as_it_is_allowed() {
    let chain = Chain::with(0, "[limits]\nuser_rate = 5\n", "");
    let (proxy, closed, begun) = (chain.address("locked"), closed_port(), Instant::now());
    let replies: Vec<u8> =
        (0..15).map(|_| socks_request(&mut login(proxy, "alice"), "127.0.0.1", closed.port())).collect();
    let served = replies.iter().filter(|&&reply| reply == 5).count();
    let most = 5 + (begun.elapsed().as_secs_f64() * 5.0).ceil() as usize;
    assert!((5..=most).contains(&served) && replies.iter().all(|reply| [2, 5].contains(reply)), "{replies:?}");
}
