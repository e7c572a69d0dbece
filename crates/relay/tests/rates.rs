//! How fast one client, and one user, may move bytes. Never more than the limit lets; how much less depends on the machine.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use base64::Engine;

/// 16 Mbit/s.
const BYTES_S: u64 = 2_000_000;
const LIMIT: &str = "[limits]\nclient_bit_rate = \"16Mbit/s\"\n";

/// What is moved in a test, in all.
const ALL: usize = 2_000_000;

/// The least time that so many bytes may take: at first a tenth of a second's may come at once.
fn least(bytes: usize) -> Duration {
    Duration::from_secs_f64(bytes as f64 / BYTES_S as f64) - Duration::from_millis(150)
}

/// Sends `bytes` to whoever connects, and its end, once it has read to the end.
fn source(bytes: Vec<u8>) -> SocketAddr {
    let bytes = Arc::new(bytes);
    server(move |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = stream.write_all(&bytes);
    })
}

fn socks_from(from: [u8; 4], proxy: SocketAddr, target: SocketAddr) -> TcpStream {
    let mut stream = connect_from(from, proxy);
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(socks_request(&mut stream, &target.ip().to_string(), target.port()), 0);
    stream
}

#[test]
fn a_client_moves_no_more_than_its_limit_in_either_direction() {
    for (mode, nodes) in CHAINS {
        let chain = Chain::of(mode, nodes, LIMIT, "");
        let data = noise(ALL, 1);
        let begun = Instant::now();
        let back = exchange(chain.socks(source(data.clone())), b"");
        assert!(back == data && begun.elapsed() >= least(ALL), "down: {:?}", begun.elapsed());

        let begun = Instant::now();
        let (listener, target) = listener();
        let mut up = chain.tunnel(target);
        let mut there = accept(&listener);
        let sender = std::thread::spawn(move || {
            up.write_all(&noise(ALL, 2)).unwrap();
            up.shutdown(Shutdown::Write).unwrap();
            up
        });
        let mut came = Vec::new();
        there.read_to_end(&mut came).unwrap();
        assert!(came == noise(ALL, 2) && begun.elapsed() >= least(ALL), "up: {:?}", begun.elapsed());
        drop(sender.join());
    }
}

#[test]
fn the_streams_of_a_client_share_its_limit_evenly() {
    let chain = Chain::with(0, LIMIT, "");
    let endless = server(|mut stream| while stream.write_all(&[7; 65_536]).is_ok() {});
    let counts: Vec<Arc<AtomicU64>> = (0..4).map(|_| Arc::default()).collect();
    let begun = Instant::now();
    for count in &counts {
        let (mut stream, count) = (socks_from([127, 0, 9, 1], chain.address("socks"), endless), count.clone());
        std::thread::spawn(move || {
            let mut piece = vec![0; 65_536];
            while let Ok(n @ 1..) = stream.read(&mut piece) {
                count.fetch_add(n as u64, Ordering::Relaxed);
            }
        });
    }
    let read = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<u64>>();
    wait_until("much has come", || read().iter().sum::<u64>() >= 2 * ALL as u64);
    let shares = read();
    assert!(begun.elapsed() >= least(2 * ALL), "{:?}", begun.elapsed());
    let (few, many) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(few * 3 >= many * 2, "{shares:?}");
}

#[test]
fn many_short_streams_have_no_more_than_a_long_one() {
    let chain = Chain::with(0, LIMIT, "");
    let part = ALL / 100;
    let target = source(noise(part, 3));
    let begun = Instant::now();
    for _ in 0..25 {
        let four: Vec<_> = (0..4).map(|_| chain.socks(target)).collect();
        let back: Vec<_> = four.into_iter().map(|stream| std::thread::spawn(|| exchange(stream, b"").len())).collect();
        assert!(back.into_iter().all(|back| back.join().unwrap() == part));
    }
    assert!(begun.elapsed() >= least(ALL), "{:?}", begun.elapsed());
}

/// A server of HTTP that takes what comes and answers each request with `bytes`.
fn origin(bytes: usize) -> SocketAddr {
    server(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|n| n == 1) {
            head.push(byte[0]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let said = String::from_utf8(std::mem::take(&mut head)).unwrap();
            let length =
                said.split("Content-Length: ").nth(1).map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
            body(&mut stream, length);
            let answer = [format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes(), noise(bytes, 4)];
            stream.write_all(&answer.concat()).unwrap();
        }
    })
}

fn asks(client: &mut TcpStream, server: SocketAddr, user: &str, sent: usize, back: usize) {
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:secret"));
    let head = format!(
        "POST http://{server}/ HTTP/1.1\r\nHost: {server}\r\nProxy-Authorization: Basic {login}\r\nContent-Length: {sent}\r\n\r\n"
    );
    client.write_all(&[head.into_bytes(), noise(sent, 5)].concat()).unwrap();
    assert!(read_head(client).starts_with("HTTP/1.1 200"));
    assert_eq!(body(client, back), noise(back, 4));
}

#[test]
fn requests_count_one_after_another_with_what_they_send_and_what_they_get() {
    for nodes in [0, 1] {
        let chain = Chain::with(nodes, LIMIT, "");
        for (sent, back) in [(ALL / 5, 10), (10, ALL / 5)] {
            let server = origin(back);
            let begun = Instant::now();
            let mut client = connect(chain.address("web"));
            (0..5).for_each(|_| asks(&mut client, server, "nobody", sent, back));
            assert!(begun.elapsed() >= least(ALL), "{sent} and {back}: {:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_user_has_one_limit_wherever_it_comes_from() {
    let chain = Chain::with(0, "[limits]\nuser_bit_rate = \"16Mbit/s\"\nhandshake = \"60s\"\n", "");
    let server = origin(ALL / 2);
    let begin = |from| {
        let mut client = connect_from(from, chain.address("weblocked"));
        std::thread::spawn(move || asks(&mut client, server, "alice", 10, ALL / 2))
    };
    let begun = Instant::now();
    [[127, 0, 9, 2], [127, 0, 9, 3]].map(begin).into_iter().for_each(|asking| asking.join().unwrap());
    assert!(begun.elapsed() >= least(ALL), "{:?}", begun.elapsed());
}

#[test]
fn what_a_client_said_before_it_broke_is_passed_on_at_its_pace() {
    let chain = Chain::with(0, "[limits]\nclient_bit_rate = \"256kbit/s\"\n", "");
    let (listener, target) = listener();
    let mut client = chain.socks(target);
    let mut there = accept(&listener);
    let begun = Instant::now();
    client.write_all(&noise(50_000, 6)).unwrap();
    reset(client);
    let mut came = Vec::new();
    assert!(there.read_to_end(&mut came).is_err(), "it has said no end");
    assert_eq!(came, noise(50_000, 6));
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    wait_until("it is over", || chain.entry.busy() == 0);
}

#[test]
#[ignore = "prints how exact the limits are"]
fn the_limits_are_exact() {
    for (limit, bytes_s) in [("1Mbit/s", 125e3), ("10Mbit/s", 1.25e6), ("100Mbit/s", 12.5e6), ("1Gbit/s", 125e6)] {
        for streams in [1, 4, 50] {
            let chain = Chain::with(0, &format!("[limits]\nclient_bit_rate = \"{limit}\"\n"), "");
            let endless = server(|mut stream| while stream.write_all(&[7; 65_536]).is_ok() {});
            let read = Arc::new(AtomicU64::new(0));
            for _ in 0..streams {
                let (mut stream, read) = (chain.socks(endless), read.clone());
                std::thread::spawn(move || {
                    let mut piece = vec![0; 65_536];
                    while let Ok(n @ 1..) = stream.read(&mut piece) {
                        read.fetch_add(n as u64, Ordering::Relaxed);
                    }
                });
            }
            let (begun, before) = (Instant::now(), read.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_secs(5));
            let rate = (read.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
            println!("{limit}, {streams} streams: {:+.1} %", (rate / bytes_s - 1.0) * 100.0);
        }
    }
}
