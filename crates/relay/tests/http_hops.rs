//! What the HTTP proxy answers itself, what it keeps open, and what it says when it cannot go on.

use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::*;

#[test]
fn a_request_that_may_go_no_further_is_answered_here() {
    // Nobody listens there: what is answered was not forwarded.
    let closed = closed_port();
    let chain = Chain::new(1);
    let mut client = connect(chain.address("web"));
    for _ in 0..2 {
        write!(client, "OPTIONS http://{closed}/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("\r\nAllow: "), "{head}");
        assert!(head.contains("\r\nContent-Length: 0\r\n"), "{head}");
        let secrets = "Cookie: c\r\nAuthorization: a\r\nProxy-Authorization: Basic eDp5";
        write!(
            client,
            "TRACE http://{closed}/p HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n{secrets}\r\nX-Kept: 1\r\n\r\n"
        )
        .unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Type: message/http\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        client.read_exact(&mut body).unwrap();
        let expected = format!("TRACE http://{closed}/p HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\nX-Kept: 1\r\n\r\n");
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }
    for wrong in ["-1", "x", "", "1, 2", "1\r\nMax-Forwards: 2"] {
        let mut client = connect(chain.address("web"));
        write!(client, "TRACE http://{closed}/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: {wrong}\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 400 "), "{wrong:?}: {head}");
    }
    // With a body, which is not read: the connection ends.
    let mut client = connect(chain.address("web"));
    write!(client, "OPTIONS http://{closed}/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\nContent-Length: 5\r\n\r\nhello")
        .unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 ") && all.contains("Connection: close\r\n"), "{all}");
}

#[test]
fn max_forwards_counts_down_for_the_two_methods_that_have_it() {
    let (sender, heads) = channel();
    let origin = server(move |mut stream| {
        for _ in 0..4 {
            sender.send(read_head(&mut stream)).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let chain = Chain::new(0);
    let mut client = connect(chain.address("web"));
    // What cannot be counted becomes as much as can be.
    let most = (u64::MAX - 1).to_string();
    let huge = "9".repeat(40);
    for (method, told, passed) in
        [("TRACE", "7", "6"), ("OPTIONS", "1", "0"), ("GET", "0", "0"), ("OPTIONS", huge.as_str(), most.as_str())]
    {
        write!(client, "{method} http://{origin}/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: {told}\r\n\r\n").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        let head = heads.recv().unwrap();
        assert_eq!(head.matches("Max-Forwards").count(), 1, "{head}");
        assert!(head.contains(&format!("\r\nMax-Forwards: {passed}\r\n")), "{head}");
    }
}

#[test]
fn an_old_client_that_asks_for_it_keeps_its_connection() {
    let origin = server(|mut stream| {
        loop {
            let head = read_head(&mut stream);
            let answer: &[u8] = match head.split(' ').nth(1) {
                Some("/length") => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                Some("/chunks") => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
                _ => return drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok")),
            };
            stream.write_all(answer).unwrap();
        }
    });
    let chain = Chain::new(1);
    for option in ["Connection: keep-alive", "Connection: Keep-Alive", "Proxy-Connection: Keep-Alive"] {
        let mut client = connect(chain.address("web"));
        for _ in 0..3 {
            write!(client, "GET http://{origin}/length HTTP/1.0\r\n{option}\r\n\r\n").unwrap();
            let head = read_head(&mut client);
            assert!(head.contains("\r\nConnection: keep-alive\r\n"), "{head}");
            client.read_exact(&mut [0; 2]).unwrap();
        }
        // Only where an old client can see the body's end.
        for path in ["chunks", "end"] {
            let mut client = connect(chain.address("web"));
            write!(client, "GET http://{origin}/{path} HTTP/1.0\r\n{option}\r\n\r\n").unwrap();
            let mut all = String::new();
            client.read_to_string(&mut all).unwrap();
            assert!(all.contains("\r\nConnection: close\r\n") && all.ends_with("\r\n\r\nok"), "{all}");
        }
    }
    for fields in ["", "Connection: close\r\n", "Connection: keep-alive, close\r\n"] {
        let mut client = connect(chain.address("web"));
        write!(client, "GET http://{origin}/length HTTP/1.0\r\n{fields}\r\n").unwrap();
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert!(all.contains("\r\nConnection: close\r\n"), "{all}");
    }
}

#[test]
fn an_old_origin_that_offers_it_keeps_its_connection() {
    let (sender, connections) = channel();
    let origin = server(move |mut stream| {
        sender.send(()).unwrap();
        for _ in 0..3 {
            read_head(&mut stream);
            let answer = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let chain = Chain::new(0);
    let mut client = connect(chain.address("web"));
    for _ in 0..3 {
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(!head.contains("keep-alive"), "{head}");
        client.read_exact(&mut [0; 2]).unwrap();
    }
    assert_eq!(connections.try_iter().count(), 1);
}

/// What the client is told when the origin says this and then waits for more.
fn told_of(chain: &Chain, says: &'static str) -> String {
    let origin = server(move |mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(says.as_bytes());
        let _ = stream.read(&mut [0]);
    });
    let mut client = connect(chain.address("web"));
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 502 "), "{all}");
    all
}

#[test]
fn only_an_origin_that_does_not_speak_http_1_is_said_not_to() {
    for count in [0, 1] {
        let chain = Chain::new(count);
        let start = Instant::now();
        for other in ["SSH-2.0-OpenSSH\r\n", "220 mail ESMTP\r\n", "HTTP/2 200\r\n\r\n", "\x15\x03\x01\0\x02\x02\n"] {
            let told = told_of(&chain, other);
            assert!(told.contains("does not speak HTTP/1"), "{other:?}: {told}");
        }
        // They say no more: what they have said decides.
        assert!(start.elapsed() < Duration::from_secs(10));
        for (wrong, why) in [
            ("HTTP/1.1 200 OK\r\nno field\r\n\r\n", "field"),
            ("HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n", "field"),
            ("HTTP/1.1 2000 OK\r\n\r\n", "status"),
            ("HTTP/1.1 200 OK\nX: y\n\n", "without CR"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "Content-Length"),
        ] {
            let told = told_of(&chain, wrong);
            assert!(!told.contains("does not speak") && told.contains(why), "{wrong:?}: {told}");
        }
    }
}

#[test]
fn what_meets_a_limit_is_told_which() {
    let limits = "[limits]\nhttp_head_size = \"1KiB\"\nhttp_fields = 8\nresponse = \"300ms\"\nhandshake = \"300ms\"\n";
    let chain = Chain::with(0, limits, "");
    let long: &str = Box::leak(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(2000)).into_boxed_str());
    let many: &str = Box::leak(format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(9)).into_boxed_str());
    assert!(told_of(&chain, long).contains("limits.http_head_size"));
    assert!(told_of(&chain, many).contains("limits.http_fields"));
    let (_silent, silent) = listener();
    for (request, status, limit) in [
        (format!("GET http://{silent}/ HTTP/1.1\r\nHost: x\r\n\r\n"), 504, "limits.response"),
        (format!("GET http://{silent}/ HTTP/1.1\r\nHost: x\r\n"), 408, "limits.handshake"),
        (format!("GET http://{silent}/{} HTTP/1.1\r\n", "y".repeat(1100)), 431, "limits.http_head_size"),
        (
            format!("GET http://{silent}/ HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(8)),
            431,
            "limits.http_fields",
        ),
    ] {
        let mut client = connect(chain.address("web"));
        client.write_all(request.as_bytes()).unwrap();
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert!(all.starts_with(&format!("HTTP/1.1 {status} ")) && all.contains(limit), "{request:?}: {all}");
    }
}

/// Reads a chunked body as it came.
fn read_chunks(stream: &mut impl Read) -> String {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn a_trailers_fields_for_one_hop_go_no_further() {
    const BODY: &str = "3;x=y\r\nabc\r\n0\r\nX-Hop: 1\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n";
    const ANEW: &str = "3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n";
    let fields = "Connection: X-Hop\r\nTransfer-Encoding: chunked";
    let (sender, bodies) = channel();
    let origin = server(move |mut stream| {
        read_head(&mut stream);
        sender.send(read_chunks(&mut stream)).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{BODY}").unwrap();
    });
    for count in [0, 1] {
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{BODY}").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        assert_eq!(bodies.recv().unwrap(), ANEW);
        assert_eq!(read_chunks(&mut client), ANEW);
    }
}
