//! Servers that lie or break off.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use ekiden_diagnosis::measured::Measured;
use ekiden_measure::Error;
use ekiden_measure::client::{self, Server, measure, measure_within};
use ekiden_measure::server;
use ekiden_measure_proto::message::{Preamble, Reply, Request, StreamEnd, TAKEN, Trace, VERSION, token_text};
use ekiden_measure_proto::row::Row;
use ekiden_measure_proto::settings::Asked;
use ekiden_record::{EndSettings, LoadSettings, Way};

const TOKEN: [u8; 16] = [7; 16];
fn ready() -> Reply {
    let evil = || "6.1\x1b[2J\r\n".to_owned();
    let end = EndSettings { version: evil(), kernel: evil(), congestion: evil(), tcp_rmem: evil(), tcp_wmem: evil() };
    Reply::Ready { version: VERSION, token: token_text(&TOKEN), end, bytes_most: None, duration_most_us: 3_600_000_000 }
}

/// A server for one stream forth, which takes all data; `tell` says what it says from the load's begin on.
fn server(tell: impl FnOnce(&TcpStream) + Send + 'static) -> Server {
    linked(take_all, tell)
}

/// The same, where `serve` has the connections of the load, with what they begin with.
fn linked(serve: fn(TcpStream, &[u8]), tell: impl FnOnce(&TcpStream) + Send + 'static) -> Server {
    saying(ready(), serve, tell)
}

fn saying(ready: Reply, serve: fn(TcpStream, &[u8]), tell: impl FnOnce(&TcpStream) + Send + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (control, _) = listener.accept().unwrap();
        (&control).read_exact(&mut [0; 4]).unwrap();
        hear::<Request>(&control).unwrap();
        say(&control, &ready);
        for _ in 0..2 {
            let (mut link, _) = listener.accept().unwrap();
            let mut preamble = [0; Preamble::BYTES];
            link.read_exact(&mut preamble).unwrap();
            link.write_all(&[TAKEN]).unwrap();
            thread::spawn(move || serve(link, &preamble));
        }
        tell(&control);
    });
    Server { name, security: None, via: None }
}

/// The same, which says `replies` when the client is done.
fn telling(replies: Vec<Reply>) -> Server {
    linked_telling(take_all, replies)
}

fn linked_telling(serve: fn(TcpStream, &[u8]), replies: Vec<Reply>) -> Server {
    linked(serve, move |control| {
        while hear::<Request>(control).is_some_and(|request| request != Request::Stop) {}
        replies.iter().all(|reply| say(control, reply));
        // Until the client has left.
        let _ = hear::<Request>(control);
    })
}

fn run(server: &Server) -> Result<Measured, Error> {
    measure(server, &asked(), Trace::No, &mut |_| {})
}

fn stream(end: StreamEnd) -> Vec<Reply> {
    vec![Reply::Started, Reply::Stream { way: Way::Forth, stream: 0, end }, Reply::Done]
}

fn honest() -> StreamEnd {
    StreamEnd { bytes: BYTES, duration_us: 1_000, mss_bytes: 1448, path_mtu_bytes: 1500, ..StreamEnd::default() }
}

#[test]
fn texts_of_a_server_come_without_control_characters() {
    let far = run(&telling(stream(honest()))).unwrap().far;
    for text in [far.version, far.kernel, far.congestion, far.tcp_rmem, far.tcp_wmem] {
        assert_eq!(text, "6.1 [2J  ");
    }
}

#[test]
fn figures_that_cannot_be_are_refused() {
    for (end, what) in [
        (StreamEnd { bytes: BYTES + 1, ..honest() }, "bytes received"),
        (StreamEnd { duration_us: 3_600_000_000, ..honest() }, "duration"),
        (StreamEnd { mss_bytes: 70_000, ..honest() }, "largest segment"),
    ] {
        let error = run(&telling(stream(end))).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, Error::Impossible { .. }), "{said}");
        assert!(said.contains("the server's figures cannot be: stream 0 forth: ") && said.contains(what), "{said}");
    }
}

#[test]
fn answers_to_probes_count_once_whatever_times_they_tell() {
    fn serve(mut link: TcpStream, preamble: &[u8]) {
        if preamble[20] != 0 {
            return take_all(link, preamble);
        }
        let start = Instant::now();
        let mut question = [0; 16];
        while link.read_exact(&mut question).is_ok() {
            // Another time of the question, and each answer a hundred times.
            question[8..].fill(0);
            let there = u64::try_from(start.elapsed().as_nanos()).unwrap().to_be_bytes();
            let answer = [&question[..], &there].concat().repeat(100);
            if link.write_all(&answer).is_err() {
                return;
            }
        }
    }
    let start = Instant::now();
    let measured = run(&linked_telling(serve, stream(honest()))).unwrap();
    let most = start.elapsed().as_millis() / 20 + 2;
    assert!((1..=most).contains(&(measured.answers.len() as u128)), "{} answers", measured.answers.len());
    assert!(measured.answers.iter().all(|answer| answer.rtt_us() < 3e6));
}

#[test]
fn a_clock_of_a_server_that_stands_still_is_refused() {
    fn serve(mut link: TcpStream, preamble: &[u8]) {
        if preamble[20] != 0 {
            return take_all(link, preamble);
        }
        let mut question = [0; 16];
        while link.read_exact(&mut question).is_ok() {
            let answer = [&question[..], &5_u64.to_be_bytes()].concat();
            if link.write_all(&answer).is_err() {
                return;
            }
        }
    }
    let said = run(&linked_telling(serve, stream(honest()))).unwrap_err().to_string();
    assert!(said.contains("its clock does not go"), "{said}");
}

#[test]
fn a_load_by_bytes_that_drips_does_not_hold_a_client() {
    fn serve(mut link: TcpStream, preamble: &[u8]) {
        if preamble[20] == 0 {
            return take_all(link, preamble);
        }
        while link.write_all(&[0]).is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    }
    let settings = LoadSettings { ways: vec![Way::Back], ..asked().get().clone() };
    let ready = Reply::Ready {
        version: VERSION,
        token: token_text(&TOKEN),
        end: server::end_settings(),
        bytes_most: None,
        duration_most_us: 1_000_000,
    };
    let server = saying(ready, serve, |control| while hear::<Request>(control).is_some() {});
    let patience = client::Patience { margin: Duration::from_millis(500), ..client::Patience::default() };
    let start = Instant::now();
    let measured = measure_within(&server, &Asked::new(settings).unwrap(), Trace::No, &patience, &mut |_| {});
    let said = measured.unwrap_err().to_string();
    assert!(said.contains("the load does not end within 1.5 s") && start.elapsed() < Duration::from_secs(20), "{said}");
}

#[test]
fn connections_of_a_load_that_are_taken_late_do_not_hold_a_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (control, _) = listener.accept().unwrap();
        (&control).read_exact(&mut [0; 4]).unwrap();
        hear::<Request>(&control).unwrap();
        say(&control, &ready());
        // Nobody takes the others; the kernel does.
        let _ = hear::<Request>(&control);
    });
    let server = Server { name, security: None, via: None };
    let patience = client::Patience { links: Duration::ZERO, ..client::Patience::default() };
    let start = Instant::now();
    let said = measure_within(&server, &asked(), Trace::No, &patience, &mut |_| {}).unwrap_err().to_string();
    assert!(
        said.contains("a connection of the load timed out after 2.0 s") && start.elapsed() < Duration::from_secs(8),
        "{said}"
    );
}

#[test]
fn a_server_that_closes_at_once_may_be_full() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().for_each(drop));
    let said = run(&Server { name, security: None, via: None }).unwrap_err().to_string();
    assert!(said.contains("closes the connection at once: it is no measuring server"), "{said}");
}

#[test]
fn a_server_that_closes_a_connection_of_a_load_may_be_full() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (control, _) = listener.accept().unwrap();
        (&control).read_exact(&mut [0; 4]).unwrap();
        hear::<Request>(&control).unwrap();
        say(&control, &ready());
        drop(listener.accept());
        let _ = hear::<Request>(&control);
    });
    let said = run(&Server { name, security: None, via: None }).unwrap_err().to_string();
    assert!(said.contains("the server closed a connection of the load at once: it may have too many"), "{said}");
}

#[test]
fn a_server_cannot_hold_a_client_with_messages_that_say_nothing() {
    let rows = |rows| Reply::Rows { way: Way::Forth, stream: 0, rows };
    for (first, endless, why) in [
        (Reply::Started, Reply::Started, "says twice that it has started"),
        (rows(vec![Row::default()]), rows(vec![]), "a message without samples"),
    ] {
        let server = server(move |control| {
            say(control, &first);
            while say(control, &endless) {}
        });
        let start = Instant::now();
        let said = run(&server).unwrap_err().to_string();
        assert!(said.contains(why) && start.elapsed() < Duration::from_secs(20), "{said}");
    }
}

#[test]
fn a_server_that_gives_up_early_says_why() {
    let why = "the disk \x07is full";
    let server = server(move |control| {
        say(control, &Reply::Failed { why: why.into() });
    });
    let said = run(&server).unwrap_err().to_string();
    assert!(said.ends_with("broke off: the disk  is full"), "{said}");
}

#[test]
fn a_congestion_control_that_this_end_lacks_is_told_before_anything_is_sent() {
    let settings = LoadSettings { congestion: Some("nosuch".into()), ..asked().get().clone() };
    // Nobody listens there.
    let server = Server { name: "127.0.0.1:1".into(), security: None, via: None };
    let error = measure(&server, &Asked::new(settings).unwrap(), Trace::No, &mut |_| {}).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, Error::Here(_)) && said.contains("modprobe tcp_nosuch"), "{said}");
}

#[test]
fn an_iperf3_server_is_told_from_one_of_ours() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut cookie = [0; 37];
            let _ = client.read_exact(&mut cookie).and_then(|()| client.write_all(&[9]));
        }
    });
    let said = run(&Server { name, security: None, via: None }).unwrap_err().to_string();
    assert!(said.ends_with("it is an iperf3 server: measure with --iperf3"), "{said}");
}

#[test]
fn the_packets_of_loopback_are_no_lie() {
    let server = Server { name: open_server_at("[::1]:0"), security: None, via: None };
    let settings = LoadSettings { ways: vec![Way::Forth, Way::Back], ..asked().get().clone() };
    let measured = measure(&server, &Asked::new(settings).unwrap(), Trace::No, &mut |_| {}).unwrap();
    assert_eq!(measured.far_seen.len(), 2);
}

#[test]
fn an_ekiden_server_is_told_from_one_of_iperf3() {
    let error = ekiden_iperf3::run(&ekiden_iperf3::Settings::new(&open_server()), &mut |_| {});
    let said = error.unwrap_err().to_string();
    assert!(said.contains("it is a measuring server of ekiden: measure without --iperf3"), "{said}");
}

#[test]
fn a_congestion_control_that_the_server_lacks_is_told_with_the_end() {
    let settings = LoadSettings { ways: vec![Way::Back], congestion: Some("nosuch".into()), ..asked().get().clone() };
    let server = Server { name: open_server(), security: None, via: None };
    let error = measure(&server, &Asked::new(settings).unwrap(), Trace::No, &mut |_| {}).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("refuses: at the server's end, congestion control 'nosuch' is not in this kernel"), "{said}");
}
