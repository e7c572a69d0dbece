//! Resolves names with a name server that is part of the test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc;

use hickory_resolver::config::NameServerConfig;
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::rdata::SOA;
use hickory_resolver::proto::rr::{RData, Record};

use super::*;

/// What the server says.
#[derive(Clone)]
pub enum Says {
    /// These addresses, with this TTL in seconds.
    Addresses(u32, Vec<IpAddr>),
    /// Nothing.
    Nothing,
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
                if let Some(answer) = answer(&request, names.get(&query.name().to_ascii())) {
                    socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
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
        let mut server = NameServerConfig::udp_and_tcp(self.address.ip());
        for connection in &mut server.connections {
            connection.port = self.address.port();
        }
        let search = search.iter().map(|name| Name::from_ascii(name).unwrap()).collect();
        let config = ResolverConfig::from_parts(None, search, vec![server]);
        let mut options = ResolverOpts::default();
        options.timeout = limit;
        options.attempts = 1;
        let mut known = Hosts::default();
        known.read_hosts_conf(hosts.as_bytes()).unwrap();
        let files = Files { resolv_conf: "/nowhere".into(), hosts: "/nowhere".into() };
        let servers = Some(Servers::new(config, options).unwrap());
        let loaded = Loaded { versions: files.versions(), hosts: known, servers };
        Resolver { files, loaded: Mutex::new(Some((Arc::new(loaded), Instant::now()))) }
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
        Some(Says::Addresses(ttl, ips)) => {
            let of_type = ips.iter().map(|&ip| RData::from(ip)).filter(|data| data.record_type() == query.query_type());
            for data in of_type {
                answer.add_answer(Record::from_rdata(name.clone(), *ttl, data));
            }
            if answer.answers.is_empty() {
                answer.add_authority(soa(*ttl));
            }
        }
        None => {
            answer.metadata.response_code = ResponseCode::NXDomain;
            answer.add_authority(soa(60));
        }
    }
    answer.add_query(query);
    Some(answer)
}

fn both(name: &str) -> Vec<(String, RecordType)> {
    vec![(format!("{name}."), RecordType::A), (format!("{name}."), RecordType::AAAA)]
}

/// The addresses, in order.
fn find(names: &Resolver, host: &str) -> Result<Vec<IpAddr>, Unknown> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = Mutex::new(Vec::new());
    runtime.block_on(names.find(host, &Spare::new(4), |_| true, |ip| found.lock().unwrap().push(ip)))?;
    let mut found = found.into_inner().unwrap();
    found.sort();
    Ok(found)
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));

#[test]
fn an_answer_counts_for_as_long_as_it_says() {
    let server = Server::new(&[
        ("long.example", Says::Addresses(600, vec![V4, V6])),
        ("short.example", Says::Addresses(1, vec![V4, V6])),
    ]);
    let names = server.names(&[], "");
    for name in ["long.example", "short.example"] {
        assert_eq!(find(&names, name), Ok(vec![V4, V6]));
        assert_eq!(server.asked(), both(name));
    }
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(find(&names, "long.example"), Ok(vec![V4, V6]));
    assert_eq!(server.asked(), []);
    assert_eq!(find(&names, "short.example"), Ok(vec![V4, V6]));
    assert_eq!(server.asked(), both("short.example"));
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
    let names = server.names(&[], "192.0.2.7 known.example alias\n");
    for name in ["known.example", "known.example.", "alias"] {
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
}

#[test]
fn name_servers_that_cannot_be_reached_are_said_to_be_the_reason() {
    let (_, asked) = mpsc::channel();
    // A socket without SO_BROADCAST cannot send there.
    let address = SocketAddr::from(([255, 255, 255, 255], 53));
    let names = Server { address, asked }.names(&[], "");
    assert_eq!(find(&names, "web"), Err(Unknown::Unreachable));
}

#[test]
fn changed_files_are_read_again_and_without_a_name_server_the_hosts_file_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let names = Resolver::of(Files { resolv_conf: file("resolv.conf"), hosts: file("hosts") });
    assert_eq!(find(&names, "web"), Err(Unknown::NoServer));
    fs::write(file("hosts"), "192.0.2.7 web\n").unwrap();
    names.forget();
    assert_eq!(find(&names, "web"), Ok(vec![V4]));
    fs::write(file("hosts"), "2001:db8::7 web\n192.0.2.7 web\n").unwrap();
    std::thread::sleep(CHECK_INTERVAL);
    while find(&names, "web") != Ok(vec![V4, V6]) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
