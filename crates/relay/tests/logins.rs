//! What wrong passwords, and many of them at a time, take from others.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::process::Process;
use crate::common::*;
use base64::Engine;

/// More than one address may have waiting is not what these tests are about.
const GUESSES: usize = 24;

fn request(password: Option<&str>) -> String {
    let credentials = password.map_or(String::new(), |password| {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("alice:{password}"));
        format!("Proxy-Authorization: Basic {pair}\r\n")
    });
    let nowhere = closed_port();
    format!("GET http://{nowhere}/ HTTP/1.1\r\nHost: {nowhere}\r\n{credentials}\r\n")
}

/// A request whose password has yet to be checked.
fn guess(from: [u8; 4], proxy: SocketAddr, password: &str) -> TcpStream {
    let mut stream = connect_from(from, proxy);
    stream.write_all(request(Some(password)).as_bytes()).unwrap();
    stream
}

/// Different ones: what was found right is remembered, what was found wrong is not, but let that be no matter.
fn guesses(from: [u8; 4], proxy: SocketAddr) -> Vec<TcpStream> {
    (0..GUESSES).map(|i| guess(from, proxy, &format!("guess {i}"))).collect()
}

fn status(stream: &mut TcpStream) -> u16 {
    read_head(stream)[9..12].parse().unwrap()
}

/// How many have been answered by now.
fn answered(streams: &[TcpStream]) -> usize {
    let is_answered = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        seen.is_ok()
    };
    streams.iter().filter(is_answered).count()
}

#[test]
fn a_request_without_credentials_is_answered_though_passwords_wait() {
    let chain = Chain::new(0);
    let proxy = chain.address("weblocked");
    let waiting = guesses([127, 0, 3, 1], proxy);
    let mut asks = connect_from([127, 0, 3, 1], proxy);
    asks.write_all(request(None).as_bytes()).unwrap();
    assert_eq!(status(&mut asks), 407);
    let answered = answered(&waiting);
    assert!(answered < GUESSES / 2, "{answered} of {GUESSES} guesses were checked before");
}

#[test]
fn guesses_from_one_address_do_not_delay_the_login_of_another() {
    let chain = Chain::new(0);
    let proxy = chain.address("weblocked");
    let waiting = guesses([127, 0, 4, 1], proxy);
    let mut login = guess([127, 0, 4, 2], proxy, "secret");
    assert_eq!(status(&mut login), 502);
    let answered = answered(&waiting);
    assert!(answered < GUESSES / 2, "{answered} of {GUESSES} guesses were checked before");
}

#[test]
fn guesses_of_clients_that_left_are_not_checked() {
    let chain = Chain::new(0);
    let proxy = chain.address("weblocked");
    let mut waiting = guesses([127, 0, 5, 1], proxy);
    let last = [waiting.pop().unwrap()];
    waiting.into_iter().for_each(reset);
    // Addresses take turns: the guesses of another one count those that are checked here.
    let mut checked = 0;
    while answered(&last) == 0 {
        assert_eq!(status(&mut guess([127, 0, 5, 2], proxy, "wrong")), 407);
        checked += 1;
    }
    assert!(checked < GUESSES / 2, "{checked} of {GUESSES} were checked");
}

#[test]
fn waiting_for_a_password_to_be_checked_ends_with_the_handshake_s_limit() {
    let chain = Chain::with(0, "[limits]\nhandshake = \"100ms\"\n", "");
    let mut waiting = guesses([127, 0, 6, 1], chain.address("weblocked"));
    let statuses: Vec<u16> = waiting.iter_mut().map(status).collect();
    assert!(statuses.iter().all(|status| [407, 503].contains(status)), "{statuses:?}");
    assert_eq!(statuses.last(), Some(&503), "{statuses:?}");
}

#[test]
fn one_address_has_only_so_many_guesses_waiting() {
    let chain = Chain::new(0);
    let proxy = chain.address("weblocked");
    let mut waiting: Vec<TcpStream> = (0..200).map(|i| guess([127, 0, 7, 1], proxy, &format!("guess {i}"))).collect();
    let refused = waiting.iter_mut().map(status).filter(|&status| status == 429).count();
    assert!((100..200).contains(&refused), "{refused} of 200 were refused");
}

#[test]
fn a_right_login_is_remembered_and_passes_by_those_that_wait() {
    let chain = Chain::new(0);
    let proxy = chain.address("weblocked");
    assert_eq!(status(&mut guess([127, 0, 8, 1], proxy, "secret")), 502);
    let waiting = guesses([127, 0, 8, 1], proxy);
    assert_eq!(status(&mut guess([127, 0, 8, 1], proxy, "secret")), 502);
    assert!(answered(&waiting) < GUESSES);
}

/// A value of a process's status, in kilobytes or as a count.
fn of_process(process: &Process, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn wrong_passwords_take_neither_threads_nor_memory() {
    let secret = hash_of_secret();
    let users = format!("users = {{ alice = \"{secret}\" }}\n");
    let listen =
        |name: &str, kind: &str| format!("[listen.{name}]\nkind = \"{kind}\"\naddress = \"127.0.0.1:0\"\n{users}");
    let text = format!("threads = 2\n[limits]\nhandshake = \"2s\"\n{}", listen("socks", "socks5"));
    let process = Process::start("guesses", &text);
    let (memory, threads) = (of_process(&process, "VmRSS"), of_process(&process, "Threads"));
    for round in 0..3 {
        let mut open: Vec<TcpStream> = (0..200u8)
            .map(|i| {
                // Each from an address of its own: the bound for one address is not what helps here.
                let mut stream = connect_from([127, 1, round, i + 1], process.addresses[0]);
                stream.write_all(b"\x05\x01\x02\x01\x05alice\x05wrong").unwrap();
                stream
            })
            .collect();
        for stream in &mut open {
            let mut answer = Vec::new();
            match stream.read_to_end(&mut answer) {
                Ok(_) => assert!(answer.starts_with(&[5, 2]), "{answer:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
    }
    assert!(of_process(&process, "Threads") <= threads + 1, "more than one thread checks passwords");
    let most = of_process(&process, "VmHWM");
    assert!(most < memory + 60_000, "{memory} kB before, {most} kB at most");
    // It goes on serving.
    let mut stream = connect_from([127, 2, 0, 1], process.addresses[0]);
    wait_until("a right login is taken", || {
        stream = connect_from([127, 2, 0, 1], process.addresses[0]);
        stream.write_all(b"\x05\x01\x02\x01\x05alice\x06secret").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).is_ok_and(|()| answer == [5, 2, 1, 0])
    });
}
