//! Names whose addresses are alive, dead, silent or refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream as StdStream};

use ekiden_net::socket::TcpOptions;
use socket2::{Domain, Socket, Type};

use super::*;
use crate::names::tests::{Says, Server};

/// Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Accepts nothing, and answers no SYN any more.
struct Silent {
    _listener: Socket,
    _queued: Vec<StdStream>,
}

impl Silent {
    fn at(address: SocketAddr) -> Option<Self> {
        let listener = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        listener.bind(&address.into()).ok()?;
        listener.listen(0).unwrap();
        let mut queued = Vec::new();
        // The first one or two fill the queue.
        while let Ok(stream) = StdStream::connect_timeout(&address, Duration::from_millis(300)) {
            queued.push(stream);
        }
        Some(Self { _listener: listener, _queued: queued })
    }
}

/// A listener at `ip` and silence at each of `silent`, on one port.
fn beside(ip: IpAddr, silent: &[IpAddr]) -> (TcpListener, Vec<Silent>) {
    loop {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent: Option<Vec<Silent>> = silent.iter().map(|&ip| Silent::at(SocketAddr::new(ip, port))).collect();
        if let Some(silent) = silent {
            return (listener, silent);
        }
    }
}

/// Connects to a name with these addresses; also tells the order in which they were considered.
fn try_all(ips: &[IpAddr], port: u16, limit: Duration, refused: &[IpAddr]) -> Result<SocketAddr, Failure> {
    let server = Server::new(&[("host.example", Says::Addresses(60, ips.to_vec()))]);
    let names = server.names(&[], "");
    let target: Target = format!("host.example:{port}").parse().unwrap();
    let tcp = Tcp { options: TcpOptions::default(), ..Tcp::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refusal = |address: SocketAddr| refused.contains(&address.ip()).then_some(Refusal::Route);
    let stream = runtime.block_on(connect(&target, None, &tcp, &names, limit, refusal))?;
    Ok(stream.peer_addr().unwrap())
}

#[test]
fn ipv6_is_tried_first() {
    let (listener, _) = beside(V6, &[]);
    let port = listener.local_addr().unwrap().port();
    let _four = TcpListener::bind((V4, port)).unwrap();
    for ips in [[V4, V6], [V6, V4]] {
        assert_eq!(try_all(&ips, port, PATIENCE, &[]), Ok(SocketAddr::new(V6, port)));
    }
}

#[test]
fn a_silent_address_costs_a_moment_and_not_the_limit() {
    for (alive, silent) in [(V4, vec![V6]), (V6, vec![V4]), (OTHER, vec![V6, V4])] {
        let (listener, _silent) = beside(alive, &silent);
        let ips = [silent, vec![alive]].concat();
        let start = Instant::now();
        let address = listener.local_addr().unwrap();
        assert_eq!(try_all(&ips, address.port(), PATIENCE, &[]), Ok(address));
        assert!(start.elapsed() < PATIENCE / 3, "{:?}", start.elapsed());
    }
}

#[test]
fn an_address_that_refuses_gives_way_at_once() {
    let listener = TcpListener::bind((OTHER, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    assert_eq!(try_all(&[V6, V4, OTHER], address.port(), PATIENCE, &[]), Ok(address));
}

#[test]
fn the_failure_that_says_most_is_told() {
    let (listener, silent) = beside(V4, &[V6]);
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let limit = Duration::from_millis(600);
    let code = |ips: &[IpAddr], refused: &[IpAddr]| try_all(ips, port, limit, refused).unwrap_err().code;
    assert_eq!(code(&[V6, V4], &[]), FailureCode::Refused);
    assert_eq!(code(&[V6], &[]), FailureCode::TimedOut);
    // 240.0.0.0/4 has no route anywhere.
    let nowhere = IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1));
    assert_eq!(code(&[nowhere, V4], &[]), FailureCode::Refused);
    assert_eq!(code(&[V6, V4], &[V6, V4]), FailureCode::Forbidden);
    assert_eq!(code(&[V6, V4], &[V6]), FailureCode::Refused);
    assert_eq!(code(&[], &[]), FailureCode::NameNotFound);
    drop(silent);
}

#[test]
fn addresses_that_are_refused_are_not_tried() {
    let (listener, _) = beside(V6, &[]);
    let port = listener.local_addr().unwrap().port();
    let four = TcpListener::bind((V4, port)).unwrap();
    assert_eq!(try_all(&[V6, V4], port, PATIENCE, &[V6]), Ok(SocketAddr::new(V4, port)));
    drop(four);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it was connected to");
}

#[test]
fn a_name_makes_this_node_try_no_more_than_a_few_addresses() {
    let listener = TcpListener::bind(("127.0.1.40", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let many: Vec<IpAddr> = (1..=40).map(|i| IpAddr::V4(Ipv4Addr::new(127, 0, 1, i))).collect();
    assert_eq!(try_all(&many, port, PATIENCE, &[]).unwrap_err().code, FailureCode::Refused);
    assert!(try_all(&many[25..], port, PATIENCE, &[]).is_ok());
}
