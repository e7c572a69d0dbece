//! Names whose addresses are alive, dead, silent or refused.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream as StdStream};
use std::path::Path;
use std::task::Poll;

use ekiden_net::socket::TcpOptions;
use ekiden_net::steer::ignore_new;
use socket2::{Domain, Socket, Type};

use super::*;
use crate::config::pattern::Pattern;
use crate::config::{Config, Tcp};
use crate::exit::names::Resolver;
use crate::exit::names::tests::{Says, Server};
use crate::exit::policy::{ChosenBy, OwnAddresses};
use crate::exit::spare::{Asker, Spare};

/// Only a hang exceeds this time.
const PATIENCE: Duration = Duration::from_secs(30);

const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A listener that accepts nothing and has a full queue, so that it answers no SYN.
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

/// A configuration whose routes refuse these addresses and names, and which may connect to all others.
fn refusing(refused: &[String]) -> Config {
    let routes = match refused {
        [] => String::new(),
        all => format!("[[route]]\nto = {all:?}\naction = \"refuse\"\n"),
    };
    let listener = "[listen.x]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";
    Config::parse(&format!("{listener}[exit]\nallow = [\"*\"]\n{routes}"), Path::new("node.toml")).unwrap()
}

/// Connects to `target`, under these rules.
fn try_name(
    target: &str,
    names: &Resolver,
    limit: Duration,
    config: &Config,
    spare: &Spare,
) -> Result<SocketAddr, Failure> {
    let target: Target = target.parse().unwrap();
    let own = OwnAddresses::default();
    let policy = Policy::new(config, &own, &target, ChosenBy::Client).unwrap();
    let tcp = Tcp { options: TcpOptions::default(), ..Tcp::default() };
    let dial = Dial { client: None, tcp: &tcp, names, asker: Asker::default(), spare, limit, policy: Some(&policy) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Ok(runtime.block_on(connect(&dial, &target))?.peer_addr().unwrap())
}

/// Connects to a name with these addresses.
fn try_all(ips: &[IpAddr], port: u16, limit: Duration, refused: &[IpAddr]) -> Result<SocketAddr, Failure> {
    let server = Server::new(&[("host.example", Says::Addresses(60, ips.to_vec()))]);
    let refused: Vec<String> = refused.iter().map(IpAddr::to_string).collect();
    let names = server.names(&[], "");
    try_name(&format!("host.example:{port}"), &names, limit, &refusing(&refused), &Spare::new(100))
}

#[test]
fn ipv6_is_tried_first() {
    // A port that nobody else has for IPv4.
    let (_six, _four, port) = loop {
        let (six, _) = beside(V6, &[]);
        let port = six.local_addr().unwrap().port();
        if let Ok(four) = TcpListener::bind((V4, port)) {
            break (six, four, port);
        }
    };
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

/// 127.0.2.1 and so on.
fn loopbacks(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|i| IpAddr::V4(Ipv4Addr::new(127, 0, 2, i))).collect()
}

/// A listener at `alive`, and at each of `silent`, on the same port, one that lets nobody in.
fn among(alive: IpAddr, silent: &[IpAddr]) -> (TcpListener, Vec<TcpListener>) {
    loop {
        let listener = TcpListener::bind((alive, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent: Result<Vec<_>, _> = silent.iter().map(|&ip| TcpListener::bind((ip, port))).collect();
        if let Ok(silent) = silent {
            silent.iter().for_each(|listener| ignore_new(listener).unwrap());
            return (listener, silent);
        }
    }
}

/// Sockets of this machine that try to connect to `port`. The kernel's table names some of them twice, where others come or
/// go while it is read: each pair of addresses counts once.
fn connecting(port: u16) -> usize {
    const SYN_SENT: &str = "02";
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let tries = rows.filter(|row| row[2].ends_with(&port) && row[3] == SYN_SENT);
    tries.map(|row| [row[1], row[2]].map(str::to_owned)).collect::<BTreeSet<_>>().len()
}

/// How many connections `clients` have begun after a while in which no address's share of the time ends: each asks for a name
/// with 16 dead addresses.
fn begun(clients: usize, spare: &Spare) -> usize {
    let (listener, _silent) = among(V4, &loopbacks(16));
    let port = listener.local_addr().unwrap().port();
    let server = Server::new(&[("host.example", Says::Addresses(60, loopbacks(16)))]);
    let names = server.names(&[], "");
    let (tcp, limit) = (Tcp::default(), Duration::from_secs(600));
    let dial = Dial { client: None, tcp: &tcp, names: &names, asker: Asker::default(), spare, limit, policy: None };
    let target: Target = format!("host.example:{port}").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut all: Vec<_> = (0..clients).map(|_| Box::pin(connect(&dial, &target))).collect();
        let together = poll_fn(|cx| {
            assert!(all.iter_mut().all(|one| one.as_mut().poll(cx).is_pending()));
            Poll::<()>::Pending
        });
        tokio::select! {
            () = together => 0,
            () = sleep(8 * HEAD_START) => connecting(port),
        }
    })
}

#[test]
fn a_name_with_many_dead_addresses_takes_few_descriptors_at_a_time() {
    assert_eq!(begun(1, &Spare::new(100)), AT_ONCE);
}

#[test]
fn descriptors_for_more_than_one_address_at_a_time_are_counted_over_all_requests() {
    assert_eq!(begun(8, &Spare::new(6)), 8 + 6);
}

#[test]
fn an_address_behind_dead_ones_gets_its_turn() {
    let alive = IpAddr::V4(Ipv4Addr::new(127, 0, 3, 1));
    let (listener, silent) = among(alive, &loopbacks(7));
    let address = listener.local_addr().unwrap();
    let ips = [loopbacks(silent.len() as u8), vec![alive]].concat();
    assert_eq!(try_all(&ips, address.port(), Duration::from_secs(8), &[]), Ok(address));
}

#[test]
fn what_the_search_list_makes_of_a_name_is_refused_as_if_it_had_been_asked_for() {
    let (listener, _) = beside(V4, &[]);
    let port = listener.local_addr().unwrap().port();
    let here = |name| (name, Says::Addresses(60, vec![V4]));
    let server = Server::new(&[here("www.corp.example"), here("www.b.example"), here("only.corp.example")]);
    let names = server.names(&["corp.example", "b.example"], "");
    let config = refusing(&[".corp.example".into()]);
    let spare = Spare::new(100);
    let connect = |name: &str| try_name(&format!("{name}:{port}"), &names, PATIENCE, &config, &spare);
    assert_eq!(connect("only").unwrap_err().code, FailureCode::Forbidden);
    assert!(server.asked().iter().all(|(name, _)| !name.ends_with("corp.example.")), "it was looked for");
    // The next name of the list may be connected to.
    assert_eq!(connect("www"), Ok(SocketAddr::new(V4, port)));
    assert_eq!(connect("nobody").unwrap_err().code, FailureCode::Forbidden);
}

#[test]
fn leave_for_either_name_is_leave_for_its_addresses() {
    let (listener, _) = beside(V4, &[]);
    let port = listener.local_addr().unwrap().port();
    let server = Server::new(&[("www.corp.example", Says::Addresses(60, vec![V4]))]);
    let names = server.names(&["corp.example"], "");
    for (allowed, code) in [("www", None), (".corp.example", None), (".b.example", Some(FailureCode::Forbidden))] {
        let mut config = refusing(&[]);
        config.exit.allow = [Pattern::parse(allowed).unwrap()].into();
        let reached = try_name(&format!("www:{port}"), &names, PATIENCE, &config, &Spare::new(100));
        assert_eq!(reached.err().map(|failure| failure.code), code, "{allowed}");
    }
}

/// Connects to the listener by `name` beside `clients` clients that ask for names about which the server says nothing, with
/// descriptors for two look-ups at a time.
fn beside_slow_names(name: &str, clients: usize) -> Duration {
    let (listener, _) = beside(V4, &[]);
    let port = listener.local_addr().unwrap().port();
    let slow: Vec<String> = (0..clients).map(|i| format!("n{i}.slow.example")).collect();
    let mut says: Vec<(&str, Says)> = slow.iter().map(|name| (name.as_str(), Says::Nothing)).collect();
    says.push(("host.example", Says::Addresses(60, vec![V4])));
    let server = Server::new(&says);
    let names = server.names_within(PATIENCE, &[], "127.0.0.1 known.example\n");
    let (tcp, spare, limit) = (Tcp::default(), Spare::new(4), PATIENCE);
    let dial =
        Dial { client: None, tcp: &tcp, names: &names, asker: Asker::default(), spare: &spare, limit, policy: None };
    let target = |name: &str| -> Target { format!("{name}:{port}").parse().unwrap() };
    let slow: Vec<Target> = slow.iter().map(|name| target(name)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut all: Vec<_> = slow.iter().map(|target| Some(Box::pin(connect(&dial, target)))).collect();
        let mut others = pin!(poll_fn(|cx| {
            for other in &mut all {
                other.take_if(|other| other.as_mut().poll(cx).is_ready());
            }
            Poll::<()>::Pending
        }));
        // All of them are there first.
        poll_fn(|cx| {
            assert!(others.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let start = Instant::now();
        let target = target(name);
        tokio::select! {
            () = others => unreachable!(),
            reached = connect(&dial, &target) => drop(reached.unwrap()),
        }
        start.elapsed()
    })
}

#[test]
fn names_that_nobody_answers_for_leave_others_their_turns() {
    let took = beside_slow_names("host.example", 8);
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[test]
fn a_name_that_only_waited_for_its_turn_is_not_laid_to_a_name_server() {
    let server = Server::new(&[("host.example", Says::Addresses(60, vec![V4]))]);
    let names = server.names(&[], "");
    // One look-up takes more.
    let (spare, limit) = (Spare::new(1), Duration::from_millis(300));
    let failure = try_name("host.example:80", &names, limit, &refusing(&[]), &spare).unwrap_err();
    assert_eq!(failure.code, FailureCode::Overloaded, "{failure}");
    assert!(failure.text.starts_with("the name host.example was not asked for in time: "), "{failure}");
    assert!(server.asked().is_empty());
}

#[test]
fn a_name_in_the_hosts_file_waits_for_no_turn() {
    let took = beside_slow_names("known.example", 100);
    assert!(took < PATIENCE / 10, "{took:?}");
}
