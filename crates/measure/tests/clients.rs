//! Clients of a server that stall, that cost it much, or that say nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use ekiden_keys::Identity;
use ekiden_measure::client::{Server, measure};
use ekiden_measure::server::Admits;
use ekiden_measure_proto::message::{Purpose, Reply, Request, Trace};
use ekiden_measure_proto::settings::Asked;
use ekiden_net::socket::raise_open_files;
use ekiden_record::{LoadSettings, Way};
use ekiden_transport::{Prepared, Security};
use socket2::{Domain, Socket, Type};

#[test]
fn connections_that_trickle_in_do_not_hold_a_server() {
    let address = open_server();
    let settings = LoadSettings { streams: 2, ..asked().get().clone() };
    let (control, token) = admitted(&address, &settings).expect("ready");
    let start = Instant::now();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in 0..2 {
            thread::sleep(Duration::from_secs(3));
            kept.push(link(&address, token, Purpose::Stream(Way::Forth, stream)));
        }
        thread::sleep(Duration::from_secs(60));
    });
    let Some(Reply::Failed { why }) = hear(&control) else { panic!("it goes on") };
    assert!(why.contains("1 of 3 connections came") && start.elapsed() < Duration::from_secs(20), "{why}");
}

#[test]
fn a_load_that_stands_still_does_not_hold_a_server() {
    let (control, _links) = asking(&open_server(), asked().get().clone());
    let start = Instant::now();
    say(&control, &Request::Start);
    assert_eq!(hear(&control), Some(Reply::Started));
    let Some(Reply::Failed { why }) = hear(&control) else { panic!("it goes on") };
    assert!(why == "nothing has moved for 4 s" && start.elapsed() < Duration::from_secs(60), "{why}");
}

#[test]
fn results_that_nobody_takes_do_not_hold_a_server() {
    let address = open_server();
    let settings = LoadSettings {
        ways: vec![Way::Back],
        streams: 64,
        duration_us: Some(3_000_000),
        pacing_bit_s: Some(1_000_000),
        sample_us: 1_000,
        ..Asked::default().get().clone()
    };
    let (control, links) = asking(&address, settings.clone());
    for mut link in links {
        thread::spawn(move || while link.read(&mut [0; 65_536]).is_ok_and(|taken| taken > 0) {});
    }
    say(&control, &Request::Start);
    thread::sleep(Duration::from_secs(4));
    say(&control, &Request::Stop);
    // Some of the results fit into the kernels' buffers. A client that takes a little now and then makes room for more.
    let start = Instant::now();
    let is_busy = || admitted(&address, &settings).is_none();
    thread::sleep(Duration::from_secs(2));
    assert!(is_busy(), "the results are not enough for this test");
    while is_busy() {
        let _ = (&control).read(&mut [0; 4096]);
        assert!(start.elapsed() < Duration::from_secs(60), "the server is still busy");
        thread::sleep(Duration::from_millis(500));
    }
    assert!(start.elapsed() > Duration::from_secs(4));
}

#[test]
fn strangers_that_say_nothing_do_not_keep_a_known_node_out() {
    raise_open_files().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| Identity::generate(&folder.path().join(name)).unwrap());
    let key = there.fingerprint();
    let known = [("here".to_owned(), here.fingerprint())].into_iter().collect();
    let admits = Admits::Nodes(Arc::new(Security::Tls { identity: there, known, prepared: Prepared::default() }));
    let address = server_at("127.0.0.1:0", admits);
    let silent: Vec<TcpStream> = (0..640)
        .map(|number| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 3, (number % 10) as u8 + 1], 0)).into()).unwrap();
            socket.connect(&address.parse::<SocketAddr>().unwrap().into()).unwrap();
            socket.into()
        })
        .collect();
    let server = Server {
        name: address,
        security: Some(Security::Tls { identity: here, known: Some(key), prepared: Prepared::default() }),
        via: None,
    };
    let short = LoadSettings { bytes: Some(10_000), ..asked().get().clone() };
    for _ in 0..3 {
        measure(&server, &Asked::new(short.clone()).unwrap(), Trace::No, &mut |_| {}).unwrap();
    }
    drop(silent);
}

#[test]
fn a_client_that_is_done_and_keeps_its_connections_does_not_hold_a_server() {
    let address = open_server();
    let settings = LoadSettings { duration_us: Some(10_000_000), bytes: None, ..asked().get().clone() };
    let (control, mut links) = asking(&address, settings.clone());
    say(&control, &Request::Start);
    assert_eq!(hear(&control), Some(Reply::Started));
    links[0].write_all(b"something").unwrap();
    say(&control, &Request::Stop);
    let start = Instant::now();
    let Some(Reply::Failed { why }) = hear(&control) else { panic!("it goes on") };
    assert!(
        why.starts_with("nothing has moved for ") && why.ends_with(" s since the client said that it is done"),
        "{why}"
    );
    assert!(start.elapsed() < Duration::from_secs(4), "as if it were under way: {:?}", start.elapsed());
    assert!(admitted(&address, &settings).is_some());
}

#[test]
fn small_pieces_of_a_stranger_cost_little() {
    let settings = LoadSettings {
        streams: 16,
        duration_us: Some(2_000_000),
        bytes: None,
        data_bytes: Some(1),
        ways: vec![Way::Forth, Way::Back],
        ..asked().get().clone()
    };
    let (control, links) = asking(&open_server(), settings);
    say(&control, &Request::Start);
    assert_eq!(hear(&control), Some(Reply::Started));
    let begun = Instant::now();
    let links = links.into_iter().enumerate().map(|(number, mut link)| {
        link.set_nodelay(true).unwrap();
        thread::spawn(move || {
            if number >= 16 {
                return take_all(link, &[]);
            }
            while begun.elapsed() < Duration::from_secs(2) && link.write_all(b"1").is_ok() {}
            let _ = link.shutdown(Shutdown::Write);
            // Until the server has left.
            take_all(link, &[]);
        })
    });
    let links: Vec<_> = links.collect();
    thread::sleep(Duration::from_secs(2));
    say(&control, &Request::Stop);
    let (mut cpu_us, mut sent) = (0, 0);
    while let Some(reply) = hear::<Reply>(&control) {
        match reply {
            Reply::Stream { way, end, .. } => {
                cpu_us += end.cpu_us;
                sent += if way == Way::Back { end.bytes } else { 0 };
            }
            Reply::Done => break,
            Reply::Rows { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    drop(links);
    // 25,000 calls a second, each of a byte: of both directions together, and for half of a second more.
    assert!((1..=62_500).contains(&sent), "{sent}");
    assert!(cpu_us < 1_000_000, "{cpu_us} us of the processor in 2 s");
}
