//! Resolves names with a name server that is part of the test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc;

use ekiden_relay_proto::names::{Hosts, ResolvConf};
use hickory_resolver::config::NameServerConfig;
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::rdata::SOA;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

use super::server::Place;
use super::servers::Servers;
use super::*;
use crate::exit::spare::{Asker, Spare};

mod answers;
mod files;
mod flights;
mod turns;

/// What the server says.
#[derive(Clone)]
pub enum Says {
    /// These addresses, with this TTL in seconds.
    Addresses(u32, Vec<IpAddr>),
    /// Nothing.
    Nothing,
    /// These addresses, so late.
    Late(Duration, Vec<IpAddr>),
    /// These addresses once this can be locked. Until then it says nothing else either.
    Held(Arc<Mutex<()>>, Vec<IpAddr>),
    /// That there is no such name, with this TTL in seconds.
    NoSuch(u32),
    /// That it cannot say.
    Fails(ResponseCode),
}

/// A name server on loopback. It knows the names that it was given; others do not exist.
pub struct Server {
    pub address: SocketAddr,
    asked: mpsc::Receiver<(String, RecordType)>,
}

impl Server {
    pub fn new(names: &[(&str, Says)]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let names: HashMap<String, Says> =
            names.iter().map(|(name, says)| (format!("{name}."), says.clone())).collect();
        let (tell, asked) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let request = Message::from_vec(&buffer[..n]).unwrap();
                let query = request.queries[0].clone();
                if tell.send((query.name().to_ascii(), query.query_type())).is_err() {
                    return;
                }
                let Some(answer) = answer(&request, names.get(&query.name().to_ascii())) else { continue };
                let (socket, answer) = (socket.try_clone().unwrap(), answer.to_vec().unwrap());
                match names.get(&query.name().to_ascii()) {
                    Some(Says::Late(by, _)) => {
                        let by = *by;
                        std::thread::spawn(move || {
                            std::thread::sleep(by);
                            socket.send_to(&answer, from).unwrap();
                        });
                    }
                    _ => drop(socket.send_to(&answer, from).unwrap()),
                }
            }
        });
        Self { address, asked }
    }

    /// A resolver that asks this server and has this hosts file.
    pub fn names(&self, search: &[&str], hosts: &str) -> Resolver {
        self.names_within(Duration::from_millis(500), search, hosts)
    }

    /// The same, with this time limit for the server's answers.
    pub fn names_within(&self, limit: Duration, search: &[&str], hosts: &str) -> Resolver {
        // A name with many addresses has a long answer.
        self.names_of(limit, &format!("options edns0\nsearch {}", search.join(" ")), hosts)
    }

    /// The same, with this resolv.conf.
    fn names_of(&self, limit: Duration, resolv_conf: &str, hosts: &str) -> Resolver {
        Self::names_of_all(&[self], limit, resolv_conf, hosts)
    }

    /// A resolver that asks these servers.
    fn names_of_all(all: &[&Self], limit: Duration, resolv_conf: &str, hosts: &str) -> Resolver {
        let place = |server: &&Self| {
            let config = NameServerConfig::udp(server.address.ip());
            Place { address: server.address, config }
        };
        let (conf, _) = ResolvConf::parse(resolv_conf.as_bytes());
        let mut options = servers::options(&conf);
        options.timeout = limit;
        let (known, _) = Hosts::parse(hosts.as_bytes());
        let servers = Servers::with(&conf, all.iter().map(place).collect(), &options, "").unwrap();
        let names = Resolver::of(Files { resolv_conf: "/nowhere".into(), hosts: "/nowhere".into() });
        names.0.loaded.send_replace(Some(Arc::new(Loaded::of(known, servers))));
        names
    }

    /// What was asked since the last call. A question that was repeated counts once.
    pub fn asked(&self) -> Vec<(String, RecordType)> {
        let mut asked: Vec<_> = self.asked.try_iter().collect();
        asked.sort();
        asked.dedup();
        asked
    }
}

fn answer(request: &Message, says: Option<&Says>) -> Option<Message> {
    let query = request.queries[0].clone();
    let mut answer = Message::response(request.metadata.id, request.metadata.op_code);
    answer.metadata.recursion_desired = true;
    answer.metadata.recursion_available = true;
    let name = query.name().clone();
    let soa = |ttl| {
        let soa = SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, ttl);
        Record::from_rdata(Name::root(), ttl, RData::SOA(soa))
    };
    match says {
        Some(Says::Nothing) => return None,
        Some(Says::Late(_, ips)) => return self::answer(request, Some(&Says::Addresses(600, ips.clone()))),
        Some(Says::Held(gate, ips)) => {
            drop(gate.lock().unwrap_or_else(PoisonError::into_inner));
            return self::answer(request, Some(&Says::Addresses(600, ips.clone())));
        }
        Some(Says::Fails(code)) => answer.metadata.response_code = *code,
        Some(Says::Addresses(ttl, ips)) => {
            let of_type = ips.iter().map(|&ip| RData::from(ip)).filter(|data| data.record_type() == query.query_type());
            for data in of_type {
                answer.add_answer(Record::from_rdata(name.clone(), *ttl, data));
            }
            if answer.answers.is_empty() {
                answer.add_authority(soa(*ttl));
            }
        }
        Some(Says::NoSuch(ttl)) => {
            answer.metadata.response_code = ResponseCode::NXDomain;
            answer.add_authority(soa(*ttl));
        }
        None => return self::answer(request, Some(&Says::NoSuch(60))),
    }
    answer.add_query(query);
    Some(answer)
}

fn both(name: &str) -> Vec<(String, RecordType)> {
    vec![(format!("{name}."), RecordType::A), (format!("{name}."), RecordType::AAAA)]
}

/// Until no socket is connected to these ports: a look-up that is over closes its own a moment later.
fn await_closed(ports: &[u16]) {
    let begun = Instant::now();
    while sockets_to(ports) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "sockets stay open");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many sockets of this process are connected to these ports. Those of others may be connected to the same numbers.
fn sockets_to(ports: &[u16]) -> usize {
    let of_descriptor = |entry: io::Result<std::fs::DirEntry>| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    let own: Vec<String> = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(of_descriptor).collect();
    let is_one = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let peer = fields.get(2).and_then(|peer| peer.rsplit_once(':'));
        let is_to = peer.is_some_and(|(_, port)| u16::from_str_radix(port, 16).is_ok_and(|port| ports.contains(&port)));
        is_to && fields.get(9).is_some_and(|inode| own.iter().any(|own| own == inode))
    };
    let files = ["/proc/self/net/udp", "/proc/self/net/tcp"].map(|file| std::fs::read_to_string(file).unwrap());
    files.iter().flat_map(|file| file.lines()).filter(|line| is_one(line)).count()
}

/// The addresses, in order.
fn find(names: &Resolver, host: &str) -> Result<Vec<IpAddr>, Unknown> {
    // Enough for three servers.
    find_with(&Spare::new(6), names, host)
}

fn find_with(spare: &Spare, names: &Resolver, host: &str) -> Result<Vec<IpAddr>, Unknown> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = Mutex::new(Vec::new());
    runtime.block_on(names.find(
        host,
        &spare.look_up(Asker::default()),
        |_| true,
        |ip| found.lock().unwrap().push(ip),
    ))?;
    let mut found = found.into_inner().unwrap();
    found.sort();
    Ok(found)
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));

#[test]
fn an_answer_counts_for_as_long_as_it_says() {
    let addresses = |ttl| Says::Addresses(ttl, vec![V4, V6]);
    let none = |ttl| Says::Addresses(ttl, vec![]);
    let server = Server::new(&[
        ("long.example", addresses(600)),
        ("short.example", addresses(1)),
        ("long-bare.example", none(600)),
        ("short-bare.example", none(1)),
        ("long-nobody.example", Says::NoSuch(600)),
        ("short-nobody.example", Says::NoSuch(1)),
    ]);
    let names = server.names(&[], "");
    let all = [("", Ok(vec![V4, V6])), ("-bare", Err(Unknown::NoAddress)), ("-nobody", Err(Unknown::NoSuchName))];
    let both_of = |time: &str, what: &str| {
        let name = format!("{time}{what}.example");
        let found = find(&names, &name);
        (found, server.asked() == both(&name), name)
    };
    for (what, end) in &all {
        for time in ["long", "short"] {
            let (found, is_asked, name) = both_of(time, what);
            assert_eq!((&found, is_asked), (end, true), "{name}");
        }
    }
    std::thread::sleep(Duration::from_millis(2100));
    for (what, end) in &all {
        for (time, is_short) in [("long", false), ("short", true)] {
            let (found, is_asked, name) = both_of(time, what);
            assert_eq!((&found, is_asked), (end, is_short), "{name}");
        }
    }
}

/// RFC 2181 §8.
#[test]
fn a_time_to_live_of_more_than_31_bits_is_none() {
    let says = |ttl| Says::Addresses(ttl, vec![V4, V6]);
    let server = Server::new(&[("most.example", says(u32::MAX >> 1)), ("more.example", says(1 << 31))]);
    let names = server.names(&[], "");
    for (name, is_asked_again) in [("most.example", false), ("more.example", true)] {
        assert_eq!(find(&names, name), Ok(vec![V4, V6]));
        server.asked();
        assert_eq!(find(&names, name), Ok(vec![V4, V6]));
        assert_eq!(!server.asked().is_empty(), is_asked_again, "{name}");
    }
}

/// RFC 9520 §3.2.
#[test]
fn a_failure_counts_for_a_second() {
    let server = Server::new(&[
        ("fails.example", Says::Fails(ResponseCode::ServFail)),
        ("refused.example", Says::Fails(ResponseCode::Refused)),
        ("silent.example", Says::Nothing),
    ]);
    let names = server.names(&[], "");
    for name in ["fails.example", "refused.example", "silent.example"] {
        // The kernel may have let more than a second pass between the look-ups.
        while {
            let end = find(&names, name).unwrap_err();
            let since = Instant::now();
            server.asked();
            assert_eq!(find(&names, name), Err(end));
            let is_asked = !server.asked().is_empty();
            assert!(!is_asked || since.elapsed() > Duration::from_millis(900), "{name}");
            is_asked
        } {}
        std::thread::sleep(Duration::from_millis(1100));
        assert!(find(&names, name).is_err());
        assert_eq!(server.asked(), both(name));
    }
}

/// RFC 6761, RFC 7686 §2.
#[test]
fn reserved_names_are_asked_for_nowhere_not_even_in_the_search_list() {
    let server = Server::new(&[]);
    let names = server.names_of(Duration::from_millis(500), "options ndots:5\nsearch a.example", "");
    for name in ["x.onion", "a.x.ONION", "onion", "x.invalid", "x.onion."] {
        assert!(matches!(find(&names, name), Err(Unknown::NoSuchName | Unknown::NoAddress)), "{name}");
    }
    for name in ["localhost", "a.localhost"] {
        assert_eq!(find(&names, name).map(|found| found.len()), Ok(2), "{name}");
    }
    assert_eq!(server.asked(), []);
    assert_eq!(find(&names, "onion.x"), Err(Unknown::NoSuchName));
    assert_eq!(server.asked(), [both("onion.x"), both("onion.x.a.example")].concat());
}

#[test]
fn that_there_is_no_such_name_and_no_address_is_remembered_too() {
    let server = Server::new(&[("bare.example", Says::Addresses(600, vec![]))]);
    let names = server.names(&[], "");
    for (name, why) in [("nobody.example", Unknown::NoSuchName), ("bare.example", Unknown::NoAddress)] {
        assert_eq!(find(&names, name), Err(why.clone()));
        assert!(!server.asked().is_empty());
        assert_eq!(find(&names, name), Err(why.clone()));
        assert_eq!(server.asked(), []);
        assert_eq!(why.code(), FailureCode::NameNotFound);
    }
}

#[test]
fn what_is_known_waits_for_no_turn() {
    let server = Server::new(&[("web.b.example", Says::Addresses(600, vec![V4]))]);
    let names = server.names(&["a.example", "b.example"], "");
    for spare in [Spare::new(6), Spare::new(0)] {
        assert_eq!(find_with(&spare, &names, "web"), Ok(vec![V4]));
        assert_eq!(find_with(&spare, &names, "web.a.example."), Err(Unknown::NoSuchName));
    }
}

#[test]
fn one_family_is_enough_and_a_silent_server_is_no_answer() {
    let server = Server::new(&[
        ("four.example", Says::Addresses(600, vec![V4])),
        ("six.example", Says::Addresses(600, vec![V6])),
        ("silent.example", Says::Nothing),
    ]);
    let names = server.names(&[], "");
    assert_eq!(find(&names, "four.example"), Ok(vec![V4]));
    assert_eq!(find(&names, "six.example"), Ok(vec![V6]));
    assert_eq!(find(&names, "silent.example"), Err(Unknown::Timeout));
}

#[test]
fn a_name_in_the_hosts_file_is_asked_nowhere_else() {
    let server = Server::new(&[("known.example", Says::Addresses(600, vec![V6]))]);
    let names = server.names(&[], "192.0.2.7 known.example alias a.localhost x.invalid\n");
    for name in ["known.example", "known.example.", "alias", "a.localhost", "x.invalid"] {
        assert_eq!(find(&names, name), Ok(vec![V4]));
    }
    assert_eq!(find(&names, "localhost").map(|found| found.len()), Ok(2));
    assert_eq!(server.asked(), []);
}

#[test]
fn short_names_are_looked_for_in_the_search_list_first() {
    let server =
        Server::new(&[("web.b.example", Says::Addresses(600, vec![V4])), ("a.web", Says::Addresses(600, vec![V6]))]);
    let names = server.names(&["a.example", "b.example"], "");
    assert_eq!(find(&names, "web"), Ok(vec![V4]));
    assert_eq!(server.asked(), [both("web.a.example"), both("web.b.example")].concat());
    assert_eq!(find(&names, "a.web"), Ok(vec![V6]));
    assert_eq!(server.asked(), both("a.web"));
    assert_eq!(find(&names, "web."), Err(Unknown::NoSuchName));
    server.asked();
    for (search, asked) in [("search a.example\n", "short.a.example"), ("", "short")] {
        let names = server.names_of(Duration::from_secs(5), &format!("{search}options no-tld-query"), "");
        assert_eq!(find(&names, "short"), Err(Unknown::NoSuchName));
        assert_eq!(server.asked(), both(asked));
    }
}

#[test]
fn name_servers_that_cannot_be_reached_are_said_to_be_the_reason() {
    let (_, asked) = mpsc::channel();
    // A socket without SO_BROADCAST cannot send there.
    let address = SocketAddr::from(([255, 255, 255, 255], 53));
    let names = Server { address, asked }.names(&[], "");
    assert_eq!(find(&names, "web"), Err(Unknown::Unreachable));
}

/// As in res_search of glibc: after SERVFAIL the next domain is asked for, after REFUSED or silence the name as it is.
#[test]
fn a_server_that_fails_in_the_search_list_does_not_end_the_search() {
    let found = || Says::Addresses(600, vec![V4]);
    let fails = || Says::Fails(ResponseCode::ServFail);
    let server = Server::new(&[
        ("x.fails.a.example", fails()),
        ("x.fails.b.example", found()),
        ("x.refused.a.example", Says::Fails(ResponseCode::Refused)),
        ("x.refused", found()),
        ("x.silent.a.example", Says::Nothing),
        ("x.silent", found()),
        ("x.unsaid.a.example", fails()),
        ("x.bare.a.example", Says::Addresses(600, vec![])),
        ("x.bare.b.example", fails()),
    ]);
    let limit = Duration::from_millis(300);
    let names = server.names_of(limit, "options ndots:5\nsearch a.example b.example", "");
    let in_domains = ["a.example", "b.example", ""];
    for (name, asked, end) in [
        ("x.fails", &in_domains[..2], Ok(vec![V4])),
        ("x.refused", &["a.example", ""], Ok(vec![V4])),
        ("x.silent", &["a.example", ""], Ok(vec![V4])),
        ("x.unsaid", &in_domains, Err(Unknown::ServerFailed)),
        ("x.bare", &in_domains, Err(Unknown::NoAddress)),
        ("x.none", &in_domains, Err(Unknown::NoSuchName)),
    ] {
        assert_eq!(find(&names, name), end, "{name}");
        let full = asked.iter().map(|domain| format!("{name}.{domain}"));
        let mut expected: Vec<_> = full.flat_map(|full| both(full.trim_end_matches('.'))).collect();
        expected.sort();
        assert_eq!(server.asked(), expected, "{name}");
    }
}

#[test]
fn what_a_server_says_of_a_name_with_many_dots_does_not_end_the_search_either() {
    let server = Server::new(&[
        ("x.silent", Says::Nothing),
        ("x.silent.b.example", Says::Addresses(600, vec![V4])),
        ("x.fails", Says::Fails(ResponseCode::ServFail)),
    ]);
    let names = server.names_of(Duration::from_millis(300), "search a.example . b.example", "");
    assert_eq!(find(&names, "x.silent"), Ok(vec![V4]));
    let asked = ["x.silent", "x.silent.a.example", "x.silent.b.example"].map(both);
    assert_eq!(server.asked(), asked.concat());
    assert_eq!(find(&names, "x.fails"), Err(Unknown::ServerFailed));
}

#[test]
fn a_server_that_is_not_there_costs_no_time_and_no_aaaa_asks_for_one_family() {
    let both = Says::Addresses(600, vec![V4]);
    let (server, (_, asked)) = (Server::new(&[("web.example", both)]), mpsc::channel());
    // Nothing listens there: the port was free a moment ago.
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let limit = Duration::from_secs(60);
    let closed = Server { address: closed, asked };
    let names = Server::names_of_all(&[&closed, &server], limit, "options no-aaaa", "");
    let begun = Instant::now();
    assert_eq!(find(&names, "web.example"), Ok(vec![V4]));
    assert!(begun.elapsed() < limit / 2, "{:?}", begun.elapsed());
    assert_eq!(server.asked(), [("web.example.".into(), RecordType::A)]);
}

#[test]
fn a_server_has_the_time_that_resolv_conf_says() {
    for (text, seconds) in [("", 5), ("options timeout:0", 1), ("options timeout:7", 7)] {
        let options = servers::options(&ResolvConf::parse(text.as_bytes()).0);
        assert_eq!((options.timeout.as_secs(), options.attempts), (seconds, 0), "{text}");
    }
}

#[test]
fn a_name_server_is_asked_on_its_interface() {
    let text = b"nameserver fe80::1%a\nnameserver fe80::1%b\nnameserver 192.0.2.1";
    let servers = Servers::new(&ResolvConf::parse(text).0, &[7, 8, 0], "").unwrap();
    assert_eq!(servers.addresses(), ["[fe80::1%7]:53", "[fe80::1%8]:53", "192.0.2.1:53"]);
}
