//! Odd answers, byte by byte, from a server that is asked by UDP and TCP.

use std::io::{Read, Write};
use std::net::TcpListener;

use proptest::prelude::*;

use super::*;

const A: u16 = 1;
const CNAME: u16 = 5;
const OPT: u16 = 41;
/// The name that was asked for.
const ASKED: &[u8] = b"\xc0\x0c";
/// A response, with recursion.
const ANSWER: u16 = 0x8180;
const NXDOMAIN: u16 = ANSWER | 3;

/// A message without its number and its question.
#[derive(Clone)]
struct Raw {
    flags: u16,
    answers: Vec<Vec<u8>>,
    additionals: Vec<Vec<u8>>,
}

impl Raw {
    fn new(answers: Vec<Vec<u8>>, additionals: Vec<Vec<u8>>) -> Self {
        Self { flags: ANSWER, answers, additionals }
    }

    fn bytes(&self, query: &[u8]) -> Vec<u8> {
        let counts = [self.flags, 1, self.answers.len() as u16, 0, self.additionals.len() as u16];
        let records = [self.answers.concat(), self.additionals.concat()].concat();
        [&query[..2], &counts.map(u16::to_be_bytes).concat(), &query[12..], &records].concat()
    }
}

fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [name, &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 60], &length, data].concat()
}

fn address(last: u8) -> Vec<u8> {
    record(ASKED, A, &[192, 0, 2, last])
}

/// A server with these answers by UDP, and by TCP if there are such.
fn server(by_udp: Raw, by_tcp: Option<Raw>) -> Server {
    let (udp, tcp) = loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((n, from)) = udp.recv_from(&mut query) {
            udp.send_to(&by_udp.bytes(&query[..n]), from).unwrap();
        }
    });
    if let Some(raw) = by_tcp {
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut query = vec![0; u16::from_be_bytes(length).into()];
                stream.read_exact(&mut query).unwrap();
                let answer = raw.bytes(&query);
                stream.write_all(&[&(answer.len() as u16).to_be_bytes(), &answer[..]].concat()).unwrap();
            }
        });
    }
    Server { address, asked: mpsc::channel().1 }
}

/// How many addresses are found.
fn found(servers: &[&Server]) -> Result<usize, Unknown> {
    let names = Server::names_of_all(servers, LIMIT, "options no-aaaa attempts:1\nsearch .", "");
    find(&names, "web.example").map(|ips| ips.len())
}

const LIMIT: Duration = Duration::from_secs(3);

/// What the resolver ignores puts off nothing.
#[test]
fn a_query_is_sent_again_whatever_else_comes() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        let (n, from) = socket.recv_from(&mut query).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let answer = Raw::new(vec![address(7)], vec![]).bytes(&query[..n]);
        let mut wrong = answer.clone();
        wrong[0] ^= 1;
        // The first one is lost.
        while socket.recv_from(&mut query).is_err() {
            socket.send_to(&wrong, from).unwrap();
        }
        socket.send_to(&answer, from).unwrap();
    });
    assert_eq!(found(&[&Server { address: at, asked: mpsc::channel().1 }]), Ok(1));
}

/// All of them are answers to glibc.
#[test]
fn an_answer_that_is_long_or_in_part_malformed_counts() {
    let malformed = |name: &[u8]| record(name, A, &[1, 2, 3]);
    let opt = || [b"\0".as_slice(), &OPT.to_be_bytes(), &[4, 208, 0, 0, 0, 0, 0, 0]].concat();
    let right = || Raw::new(vec![address(7)], vec![]);
    let many = || Raw::new((1..50).map(address).collect(), vec![]);
    let name = |of: usize| format!("\x0cname-in-{of:04}\x07example\0").into_bytes();
    let alias = |of: usize| record(&if of == 0 { ASKED.to_vec() } else { name(of) }, CNAME, &name(of + 1));
    let chain = || {
        let end = record(&name(20), A, &[192, 0, 2, 7]);
        Raw::new((0..20).map(alias).chain([end]).collect(), vec![])
    };
    let cut = Raw::new(vec![b"\xc0".to_vec()], vec![]);
    let no_such = Raw { flags: NXDOMAIN, ..right() };
    for (what, by_udp, by_tcp, end) in [
        ("more than 512 bytes", many(), Some(many()), Ok(MOST_ADDRESSES)),
        ("a chain of aliases", chain(), Some(chain()), Ok(1)),
        ("addresses of others", Raw::new(vec![address(7)], (0..40).map(|_| malformed(ASKED)).collect()), None, Ok(1)),
        ("two OPT", Raw::new(vec![address(7)], vec![opt(), opt()]), None, Ok(1)),
        ("a malformed one first", Raw::new(vec![malformed(ASKED), address(7)], vec![]), None, Ok(1)),
        ("malformed by UDP", cut.clone(), Some(right()), Ok(1)),
        ("malformed alone by UDP", Raw::new(vec![malformed(ASKED)], vec![]), Some(right()), Ok(1)),
        ("none, but malformed", Raw::new(vec![], vec![malformed(b"\xc0")]), None, Err(Unknown::NoAddress)),
        ("no such name, but an address", no_such.clone(), Some(no_such), Err(Unknown::NoSuchName)),
    ] {
        assert_eq!(found(&[&server(by_udp, by_tcp)]), end, "{what}");
    }
    // Nothing is left of it, so the next server is asked.
    let (first, second) = (server(cut.clone(), Some(cut)), server(right(), None));
    assert_eq!(found(&[&first, &second]), Ok(1), "malformed by UDP and TCP");
}

/// The largest message that TCP carries has 4,094 addresses.
#[test]
fn of_a_name_with_thousands_of_addresses_no_more_are_read_and_kept_than_are_tried() {
    let truncated = Raw { flags: ANSWER | 0x0200, answers: vec![], additionals: vec![] };
    let server = server(truncated, Some(Raw::new((0..4000).map(|i| address(i as u8)).collect(), vec![])));
    assert_eq!(found(&[&server]), Ok(MOST_ADDRESSES));
    // The next name is asked for by UDP again.
    await_closed(&[server.address.port()]);
    let query = b"\x01\x02\x01\0\0\x01\0\0\0\0\0\0\x03web\x07example\0\0\x01\0\x01";
    for record in [address(7), record(ASKED, CNAME, b"\x01a\xc0\x0c"), record(ASKED, OPT, b"x")] {
        let answer = Raw::new(vec![record; 3000], vec![]).bytes(query);
        let read = lenient::readable(&answer, lenient::BY_TCP);
        assert!(answer.len() > 30_000 && read.len() < 2000, "{}", read.len());
    }
}

/// As in res_send of glibc.
#[test]
fn a_server_that_neither_knows_nor_looks_further_cannot_say() {
    const AUTHORITATIVE: u16 = 0x0400;
    const NO_RECURSION: u16 = 0x8100;
    for (flags, end) in [
        (NO_RECURSION, Ok(1)),
        (ANSWER, Err(Unknown::NoAddress)),
        (NO_RECURSION | AUTHORITATIVE, Err(Unknown::NoAddress)),
    ] {
        let first = server(Raw { flags, answers: vec![], additionals: vec![] }, None);
        let second = server(Raw::new(vec![address(7)], vec![]), None);
        assert_eq!(found(&[&first, &second]), end, "{flags:x}");
        assert!(found(&[&first]).is_err(), "{flags:x}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_read_within_the_room(
        counts in proptest::array::uniform8(0u8..3),
        names in proptest::collection::vec(any::<bool>(), 0..150),
        rest in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let question = |long: &bool| if *long { &b"\x02ab\0\0\x01\0\x01"[..] } else { b"\0\0\x01\0\x01" };
        let header = [&[1, 2, 0x81, 0x80, 0, names.len() as u8], &counts[2..]].concat();
        let bytes: Vec<u8> = header.into_iter().chain(names.iter().flat_map(question).copied()).chain(rest).collect();
        let room = lenient::Room { whole: 512, rebuilt: 512 };
        prop_assert!(lenient::readable(&bytes, room).len() <= 512);
    }
}
