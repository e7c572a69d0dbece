//! A listener on `[::]` takes both families, and knows an IPv4 client by its IPv4 address.

use crate::common::*;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

fn any(port: u16) -> String {
    format!("address = \"[::]:{port}\"\nopen = true\n")
}

fn at(address: SocketAddr, v4: bool) -> SocketAddr {
    let port = address.port();
    if v4 { (Ipv4Addr::LOCALHOST, port).into() } else { (Ipv6Addr::LOCALHOST, port).into() }
}

#[test]
fn both_families_are_taken_and_limits_count_ipv4_by_its_address() {
    let text = format!("[limits]\nclient_connections = 2\n[listen.socks]\nkind = \"socks5\"\n{}", any(0));
    let relay = node(&text);
    let address = relay.address("socks").unwrap();
    let server = echo();
    let v4: Vec<_> = (0..2).map(|_| socks(at(address, true), "127.0.0.1", server.port())).collect();
    assert!(v4.iter().all(|(code, _)| *code == 0));
    // Another address of the same kind has places of its own, which one network of IPv6 would not have.
    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    other.connect(&at(address, true).into()).unwrap();
    let mut other = std::net::TcpStream::from(other);
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    other.write_all(&[5, 1, 0]).unwrap();
    other.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(socks(at(address, false), "127.0.0.1", server.port()).0, 0);
    let mut third = connect(at(address, true));
    assert!(!ends_cleanly(&mut third));
}

#[test]
fn a_destination_is_told_ipv4_addresses() {
    let (host, to) = listener();
    let text = format!("[listen.fixed]\nkind = \"forward\"\nto = \"{to}\"\nproxy_protocol = \"v1\"\n{}", any(0));
    let relay = node(&text);
    let address = at(relay.address("fixed").unwrap(), true);
    let client = connect(address);
    let mut header = vec![0; 64];
    let n = accept(&host).read(&mut header).unwrap();
    let expected =
        format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", client.local_addr().unwrap().port(), address.port());
    assert_eq!(String::from_utf8_lossy(&header[..n]), expected);
}

#[test]
fn headers_are_taken_from_an_ipv4_balancer() {
    let (host, to) = listener();
    let text = format!(
        "[listen.fixed]\nkind = \"forward\"\nto = \"{to}\"\nproxy_protocol = \"v1\"\n\
         proxy_protocol_from = [\"127.0.0.1\"]\n{}",
        any(0)
    );
    let relay = node(&text);
    let mut client = connect(at(relay.address("fixed").unwrap(), true));
    client.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n").unwrap();
    let mut header = vec![0; 64];
    let n = accept(&host).read(&mut header).unwrap();
    assert_eq!(String::from_utf8_lossy(&header[..n]), "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
}

#[test]
fn the_log_has_ipv4_addresses() {
    log::keep();
    let text = "[listen.leg]\nkind = \"leg\"\nplain_key_file = \"key\"\naddress = \"[::]:0\"\n";
    let relay = node(text);
    let mut client = connect(at(relay.address("leg").unwrap(), true));
    client.write_all(b"nothing that a node says").unwrap();
    wait_until("it is refused", || log::is_logged("a connection from 127.0.0.1:"));
    assert!(!log::is_logged("::ffff:"), "{:?}", log::logged("::ffff:"));
}

#[test]
fn ipv4_is_left_to_a_listener_that_has_it() {
    let port = spare_port().port();
    let server = echo();
    let both = |kind: &str| {
        format!(
            "[listen.six]\nkind = \"socks5\"\n{}[listen.four]\nkind = \"{kind}\"\naddress = \"0.0.0.0:{port}\"\nopen = true\n",
            any(port)
        )
    };
    let mut relay = node(&both("http"));
    let is_socks = |v4: bool| {
        let mut client = connect(at((Ipv4Addr::LOCALHOST, port).into(), v4));
        client.write_all(&[5, 1, 0]).unwrap();
        let mut answer = [0; 2];
        client.read_exact(&mut answer).is_ok() && answer == [5, 0]
    };
    assert!(is_socks(false));
    let mut http = connect((Ipv4Addr::LOCALHOST, port).into());
    write!(http, "GET http://127.0.0.1:{}/ HTTP/1.0\r\n\r\n", server.port()).unwrap();
    // When it goes, the other takes its family too.
    relay.reload(config(&format!("[listen.six]\nkind = \"socks5\"\n{}", any(port)))).unwrap();
    wait_until("IPv4 is SOCKS", || is_socks(true));
    assert!(is_socks(false));
}
