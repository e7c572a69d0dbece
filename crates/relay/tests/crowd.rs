//! What a crowd leaves behind when it has gone.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use crate::common::process::Process;
use crate::common::tls::*;
use crate::common::*;

/// Memory of its own that a process has, in kilobytes.
fn resident(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn memory_goes_back_to_the_kernel_when_a_crowd_has_gone() {
    let process = Process::start("crowd", "threads = 2\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n");
    let before = resident(&process);
    let mut open: Vec<TcpStream> = (0..700).map(|_| connect(process.addresses[0])).collect();
    // A head that never ends, in small pieces, all of them at the same time.
    for stream in &mut open {
        stream.write_all(b"GET http://192.0.2.1/ HTTP/1.1\r\nX: ").unwrap();
    }
    for _ in 0..60 {
        open.iter_mut().for_each(|stream| stream.write_all(&[b'x'; 1000]).unwrap());
    }
    wait_until("they take memory", || resident(&process) > before + 30_000);
    let most = resident(&process);
    drop(open);
    wait_until("it is given back", || resident(&process) < before + (most - before) / 4);
}

#[test]
fn hellos_that_do_not_end_hold_little() {
    const COUNT: u64 = 400;
    let text = format!(
        "key_file = \"key.pem\"\nthreads = 2\n[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{}\n\
         [limits]\nclient_connections = 1000\n",
        Mode::Tls.listener("key")
    );
    let process = Process::start("hellos", &text);
    let before = resident(&process);
    // A ClientHello of 16,000 bytes in records of one byte, as far as the node takes it.
    let hello: Vec<u8> = [1, 0, 0x3e, 0x80].into_iter().chain([0; 16_000]).collect();
    let records: Vec<u8> = hello.iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    let open: Vec<TcpStream> = (0..COUNT)
        .map(|_| {
            let mut stream = connect(process.addresses[0]);
            // One record less than would be refused.
            stream.write_all(&records[..4090]).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let each = (resident(&process) - before) as f64 / COUNT as f64;
    assert!(each < 16.0, "{each} KiB each");
    for mut stream in open {
        // It is refused before it has said all, and is told so or reset.
        let _ = stream.write_all(&records[4090..]);
        ends_cleanly(&mut stream);
    }
}

/// A client of the HTTP listener at this address gets through.
fn ensure_served(proxy: std::net::SocketAddr) {
    let (target, mut stream) = (late_echo(), connect(proxy));
    write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
    let answer = read_head(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(exchange(stream, b"served"), b"served");
}

/// Nothing has come to a client, nor an end.
fn is_silent(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let is_silent = stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    is_silent
}

#[test]
fn heads_that_do_not_end_leave_memory_to_others() {
    // Room for four long heads. What does not end is waited for as long as the test takes.
    let text = "threads = 2\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
        [limits]\nmemory = \"1MiB\"\nhandshake = \"100s\"\n";
    let process = Process::start("heads", text);
    let mut open: Vec<TcpStream> = (0..60).map(|_| connect(process.addresses[0])).collect();
    for stream in &mut open {
        // One that is refused meanwhile takes no more.
        let _ = write!(stream, "GET http://192.0.2.1/ HTTP/1.1\r\nX: {}", "x".repeat(40_000));
    }
    wait_until("all but four are refused", || open.iter().filter(|stream| !is_silent(stream)).count() == 56);
    // They need not close first.
    ensure_served(process.addresses[0]);
    let mut refused = open.into_iter().find(|stream| !is_silent(stream)).unwrap();
    assert!(read_head(&mut refused).starts_with("HTTP/1.1 503 "));
}

#[test]
fn beginnings_of_heads_leave_memory_to_others() {
    // Where each held what is read at once, 64 would fill it.
    let text = "threads = 2\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
        [limits]\nmemory = \"1MiB\"\nhandshake = \"100s\"\n";
    let process = Process::start("beginnings", text);
    let mut open: Vec<TcpStream> = (0..300).map(|_| connect(process.addresses[0])).collect();
    open.iter_mut().for_each(|stream| stream.write_all(b"G").unwrap());
    ensure_served(process.addresses[0]);
    assert!(open.iter().all(is_silent), "none has given way");
}

/// Inside TLS, with a part of the next record behind it.
#[test]
fn beginnings_of_heads_inside_tls_leave_memory_to_others() {
    let text = format!(
        "key_file = \"key.pem\"\nthreads = 2\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\ntls = {{ {} }}\n\
         [limits]\nmemory = \"1MiB\"\nhandshake = \"100s\"\n",
        files().0
    );
    let process = Process::start("beginnings_tls", &text);
    let begin = |_| {
        let mut tls = Client::default().connect(process.addresses[0]);
        tls.write_all(b"G").unwrap();
        tls
    };
    let mut open: Vec<_> = (0..300).map(begin).collect();
    // Most have been read by then, each as far as it has come.
    open.iter_mut().for_each(|tls| tls.sock.write_all(&[23]).unwrap());
    let mut served = tunnel(Client::default().connect(process.addresses[0]), late_echo());
    served.write_all(b"served").unwrap();
    say_end(&mut served);
    assert_eq!(rest(&mut served), (b"served".to_vec(), true));
    assert!(open.iter().all(|tls| is_silent(&tls.sock)), "none has given way");
}
