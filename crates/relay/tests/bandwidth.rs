//! Limits in bit/s: what a client's streams take of the line together, and what a user's do.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::process::Process;
use crate::common::*;
use base64::Engine;
use socket2::{Domain, Socket, Type};

/// A megabyte a second.
const LIMIT: &str = "[limits]\nclient_bandwidth = \"8Mbit/s\"\n";
const MB: usize = 1_000_000;
/// What may come before the pacing of a stream begins, and while shares change: ten segments of loopback for uploads.
const AT_ONCE: usize = 700_000;

/// A server that reads a number of eight digits, and sends so many bytes and the end.
fn sender() -> SocketAddr {
    server(|mut stream| {
        let mut wanted = [0; 8];
        while stream.read_exact(&mut wanted).is_ok() {
            let wanted: usize = std::str::from_utf8(&wanted).unwrap().parse().unwrap();
            if stream.write_all(&noise(wanted, 5)).is_err() {
                return;
            }
        }
    })
}

/// A server that reads all, and says with eight digits how much it was.
fn reader() -> SocketAddr {
    server(|mut stream| {
        let (mut all, mut piece) = (0, vec![0; 65_536]);
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            all += n;
        }
        let _ = stream.write_all(format!("{all:08}").as_bytes());
    })
}

/// A connection of the client at this address, with segments as Ethernet has them: the kernel paces whole ones.
fn client(from: [u8; 4], proxy: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_tcp_mss(1448).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&proxy.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A stream of the client at this address.
fn stream(from: [u8; 4], proxy: SocketAddr, to: SocketAddr) -> TcpStream {
    let mut stream = client(from, proxy);
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(socks_request(&mut stream, &to.ip().to_string(), to.port()), 0);
    stream
}

fn download(mut stream: &TcpStream, bytes: usize) {
    stream.write_all(format!("{bytes:08}").as_bytes()).unwrap();
    let mut got = vec![0; bytes];
    stream.read_exact(&mut got).unwrap();
    assert!(got == noise(bytes, 5));
}

fn upload(mut stream: TcpStream, bytes: usize) {
    stream.write_all(&noise(bytes, 6)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, format!("{bytes:08}"));
}

/// That so much at the limit takes as long as it must, and not many times as long.
fn takes(bytes: usize, work: impl FnOnce()) {
    let begun = Instant::now();
    work();
    let (took, least) = (begun.elapsed().as_secs_f64(), (bytes - AT_ONCE) as f64 / MB as f64);
    assert!(took >= 0.9 * least && took <= 4.0 * least + 4.0, "{bytes} bytes in {took} s");
}

#[test]
fn a_client_receives_and_sends_what_it_may_and_others_are_not_concerned() {
    let chain = Chain::with(0, LIMIT, "");
    let (proxy, sender, reader) = (chain.address("socks"), sender(), reader());
    std::thread::scope(|scope| {
        let limited = scope.spawn(|| {
            takes(2 * MB, || download(&stream([127, 0, 9, 1], proxy, sender), 2 * MB));
            takes(2 * MB, || upload(stream([127, 0, 9, 1], proxy, reader), 2 * MB));
        });
        // Ten times as much for two clients that are done first would take ten times as long.
        takes(2 * MB, || download(&stream([127, 0, 9, 2], proxy, sender), 2 * MB));
        limited.join().unwrap();
    });
}

#[test]
fn the_streams_of_a_client_share_what_it_may_have() {
    let chain = Chain::with(0, LIMIT, "");
    let (proxy, sender) = (chain.address("socks"), sender());
    let all = |count: usize, bytes: usize| {
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| download(&stream([127, 0, 9, 3], proxy, sender), bytes));
            }
        });
    };
    takes(3 * MB, || all(6, MB / 2));
    // A stream that wants nothing leaves its part to the others.
    let _idle: Vec<TcpStream> = (0..9).map(|_| stream([127, 0, 9, 3], proxy, sender)).collect();
    takes(2 * MB, || all(1, 2 * MB));
    // Streams that are over before they are looked at, and those that are over before they are paced.
    takes(2 * MB, || (0..20).for_each(|_| all(1, MB / 10)));
    takes(2 * MB, || (0..200).for_each(|_| all(1, MB / 100)));
}

#[test]
fn a_user_has_a_limit_wherever_it_connects_from_and_requests_of_http_have_one_too() {
    let users = format!("users = {{ alice = \"{0}\", bob = \"{0}\" }}", hash_of_secret());
    let limits = "[limits]\nuser_bandwidth = \"8Mbit/s\"\n";
    let node = node(&format!("[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n{users}\n{limits}"));
    let (proxy, origin) = (node.address("web").unwrap(), origin());
    let credentials = |user: &str| base64::prelude::BASE64_STANDARD.encode(format!("{user}:secret"));
    let fetch = |stream: &mut TcpStream, user: &str, bytes: usize| {
        let head = format!(
            "GET http://{origin}/{bytes} HTTP/1.1\r\nHost: {origin}\r\nProxy-Authorization: Basic {}\r\n\r\n",
            credentials(user)
        );
        stream.write_all(head.as_bytes()).unwrap();
        assert!(read_head(stream).starts_with("HTTP/1.1 200 "));
        assert!(body(stream, bytes) == noise(bytes, 5));
    };
    // Two connections from two addresses, ten requests on each.
    takes(2 * MB, || {
        std::thread::scope(|scope| {
            for address in [1, 2] {
                scope.spawn(move || {
                    let mut stream = client([127, 0, 8, address], proxy);
                    (0..10).for_each(|_| fetch(&mut stream, "alice", MB / 10));
                });
            }
        });
    });
}

/// An HTTP origin with a body of as many bytes as the path says.
fn origin() -> SocketAddr {
    server(|mut stream| {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if !stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    return;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let bytes: usize = head.split(' ').nth(1).unwrap().trim_start_matches('/').parse().unwrap();
            let said = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
            if stream.write_all(said.as_bytes()).and_then(|()| stream.write_all(&noise(bytes, 5))).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_leg_that_a_limited_stream_has_used_is_as_fast_as_before_for_others() {
    let chain = Chain::with(1, "[limits]\nuser_bandwidth = \"8Mbit/s\"\n", "");
    let reader = reader();
    let limited = {
        let mut stream = connect(chain.address("weblocked"));
        let login = base64::prelude::BASE64_STANDARD.encode("alice:secret");
        write!(stream, "CONNECT {reader} HTTP/1.1\r\nHost: {reader}\r\nProxy-Authorization: Basic {login}\r\n\r\n")
            .unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
        stream
    };
    takes(2 * MB, || upload(limited, 2 * MB));
    wait_until("the leg is kept", || chain.entry.idle("n1") == 1);
    let begun = Instant::now();
    upload(chain.socks(reader), 16 * MB);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_limit_that_is_changed_holds_for_streams_that_run() {
    let text = |limit: &str| {
        format!(
            "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n[limits]\nclient_bandwidth = \"{limit}\"\n"
        )
    };
    let mut node = node(&text("64kbit/s"));
    let (proxy, sender) = (node.address("socks").unwrap(), sender());
    let stream = stream([127, 0, 9, 6], proxy, sender);
    std::thread::scope(|scope| {
        // It would take over a minute.
        let begun = Instant::now();
        let running = scope.spawn(|| download(&stream, 3 * MB));
        std::thread::sleep(Duration::from_millis(500));
        node.reload(config(&text("80Mbit/s"))).unwrap();
        running.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}

#[test]
fn the_status_says_who_is_nearest_to_it() {
    let file = format!("[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n{LIMIT}");
    let process = Process::start("limited", &file);
    let limit = || {
        let status = ekiden_relay::status::ask(process.child.id()).unwrap();
        status.limits.into_iter().find(|limit| limit.limit == "limits.client_bandwidth").unwrap()
    };
    assert_eq!((limit().used, limit().most, limit().by), (0, 8_000_000, None));
    let (proxy, sender) = (process.addresses[0], sender());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| download(&stream([127, 0, 9, 7], proxy, sender), 4 * MB));
        wait_until("it is near", || limit().used >= 4_000_000);
        assert_eq!(limit().by.as_deref(), Some("127.0.9.7"));
        running.join().unwrap();
    });
    wait_until("it is idle", || limit().used == 0);
}
