//! What of a message's framing reaches the other side of the HTTP proxy, byte by byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use crate::common::*;

/// Everything up to an empty line.
fn until_empty_line(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        text.push(byte[0]);
    }
    String::from_utf8(text).ok()
}

/// An origin that tells each request's head, and behind it a chunked body as it came, and answers by `answer`.
fn origin(answer: &'static str) -> (SocketAddr, Receiver<String>) {
    let (sender, heard) = channel();
    let address = server(move |mut stream| {
        while let Some(mut message) = until_empty_line(&mut stream) {
            if message.contains("Transfer-Encoding") {
                let Some(body) = until_empty_line(&mut stream) else { return };
                message += &body;
            }
            sender.send(message).unwrap();
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, heard)
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn chunks_are_written_anew_for_the_origin() {
    let (origin, heard) = origin(EMPTY);
    for count in [0, 1] {
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        for (body, expected) in [
            ("5;a=\"b\"\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
            ("3 \r\nabc\r\n00\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"),
            ("00B \t;x\r\nhello world\r\n0;y\r\n\r\n", "b\r\nhello world\r\n0\r\n\r\n"),
            (
                "1\r\nx\r\n0\r\nX-Sum:  9 \r\nContent-Length: 5\r\nHost: evil\r\nConnection: close\r\nX-Last:\r\n\r\n",
                "1\r\nx\r\n0\r\nX-Sum: 9\r\nX-Last: \r\n\r\n",
            ),
        ] {
            write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
                .unwrap();
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "), "{body:?}");
            let message = heard.recv().unwrap();
            let (_, got) = message.split_once("\r\n\r\n").unwrap();
            assert_eq!(got, expected, "{count} nodes, {body:?}");
        }
    }
}

#[test]
fn chunks_are_written_anew_for_the_client() {
    let (origin, _heard) = origin(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         5 ;a=b\r\nhello\r\n0 \r\nX-Sum: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let chain = Chain::new(1);
    let mut client = connect(chain.address("web"));
    for _ in 0..2 {
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        read_head(&mut client);
        let expected = "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
        let mut body = vec![0; expected.len()];
        client.read_exact(&mut body).unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }
}

#[test]
fn a_body_that_cannot_be_read_is_refused_and_ends_nowhere() {
    for count in [0, 1] {
        let chain = Chain::new(count);
        for body in [
            "5\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "-1\r\n",
            "5 5\r\nhello\r\n",
            "10000000000000005\r\nhello\r\n",
            "5\r\nhelloGET / HTTP/1.1\r\n\r\n",
            "5\r\nhello\r\n0\r\nno field\r\n\r\n",
            "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
            "5\r\nhello\r\n0\r\nX: a\r\n folded\r\n\r\n",
            "5\r\nhello\r\n0\r\nX: a\0b\r\n\r\n",
            "5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n",
            "5\r\nhello\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            let (host, origin) = listener();
            let mut client = connect(chain.address("web"));
            write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
                .unwrap();
            let mut server = accept(&host);
            let mut heard = Vec::new();
            assert!(server.read_to_end(&mut heard).is_err(), "{count} nodes, {body:?}: the origin was shown an end");
            let head = read_head(&mut client);
            assert!(head.starts_with("HTTP/1.1 400 "), "{count} nodes, {body:?}: {head}");
        }
    }
}

#[test]
fn a_request_body_that_breaks_off_ends_nowhere() {
    for count in [0, 1] {
        let chain = Chain::new(count);
        for framing in [
            "Content-Length: 10",
            "Content-Length: 18446744073709551615",
            "Transfer-Encoding: chunked",
            "Content-Length: 5, 5",
        ] {
            let (host, origin) = listener();
            let mut client = connect(chain.address("web"));
            write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n5\r\n").unwrap();
            let mut server = accept(&host);
            read_head(&mut server);
            client.shutdown(Shutdown::Write).unwrap();
            assert!(!ends_cleanly(&mut server), "{count} nodes, {framing}");
        }
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let (origin, heard) = origin(EMPTY);
    let chain = Chain::new(0);
    let status_of = |request: &str| {
        let mut client = connect(chain.address("web"));
        client.write_all(request.as_bytes()).unwrap();
        let head = read_head(&mut client);
        head.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let refused = |request: String, status: u16| assert_eq!(status_of(&request), status, "{request:?}");
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 05, 6",
        "Content-Length: 5, 6",
        "Content-Length: 5,",
        "Content-Length: ,",
        "Content-Length:",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: 5.0",
        "Content-Length: 18446744073709551621",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding:",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding\t: chunked",
        "X: a\r\n folded",
        "X: a\r\n\tTransfer-Encoding: chunked",
        "X : a",
        "X: a\nContent-Length: 5",
        "X: a\rContent-Length: 5",
        "X: a\0b",
        "X\0: a",
        ": a",
        "no colon",
        "Connection: content-length\r\nContent-Length: 5",
        "Connection: transfer-encoding\r\nTransfer-Encoding: chunked",
        "Host: twice",
        "Host: x",
    ] {
        refused(format!("POST http://{origin}/ HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n"), 400);
    }
    for coding in ["gzip, chunked", "identity", "gzip", "xchunked"] {
        refused(format!("POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n"), 501);
        refused(format!("POST http://{origin}/ HTTP/1.0\r\nTransfer-Encoding: {coding}\r\n\r\n"), 400);
    }
    for (head, status) in [
        (format!("POST http://{origin}/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400),
        (format!("GET http://{origin}/ HTTP/1.1\r\n\r\n"), 400),
        (format!("GET  http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n"), 400),
        (format!("GET http://{origin}/ x HTTP/1.1\r\nHost: x\r\n\r\n"), 400),
        (format!("GET http://{origin}/\tHTTP/1.1\r\nHost: x\r\n\r\n"), 400),
        (format!(" GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n"), 400),
        (format!("GET http://{origin}/ HTTP/1.1\r\n Host: x\r\n\r\n"), 400),
        (format!("GET http://{origin}/ HTTP/1.1 \r\nHost: x\r\n\r\n"), 400),
        (format!("GET http://{origin}/ HTTP/2.0\r\nHost: x\r\n\r\n"), 505),
        (format!("GET http://x@{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n"), 400),
        (format!("GET http://{origin}\\@evil/ HTTP/1.1\r\nHost: x\r\n\r\n"), 400),
        (format!("GET http://{origin}/#f HTTP/1.1\r\nHost: x\r\n\r\n"), 400),
        (format!("TRACE http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"), 400),
        (format!("CONNECT {origin} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"), 400),
        (format!("CONNECT {origin} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"), 400),
        ("CONNECT http://a/ HTTP/1.1\r\nHost: x\r\n\r\n".into(), 400),
        ("GET http://a:99999/ HTTP/1.1\r\nHost: x\r\n\r\n".into(), 400),
        ("GET http://a:+80/ HTTP/1.1\r\nHost: x\r\n\r\n".into(), 400),
        ("GET http://a%00b/ HTTP/1.1\r\nHost: x\r\n\r\n".into(), 400),
    ] {
        let got = status_of(&head);
        // What stands where the version should may count as one.
        assert!(got == status || (status == 400 && got == 505), "{head:?}: {got}");
    }
    assert!(heard.try_recv().is_err(), "something was passed on");
    // Whatever Host said, the origin is told the URI's.
    let mut client = connect(chain.address("web"));
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: evil\r\n\r\n").unwrap();
    read_head(&mut client);
    let head = heard.recv().unwrap();
    assert!(head.contains(&format!("Host: {origin}\r\n")) && !head.contains("evil"), "{head}");
}

#[test]
fn equal_lengths_count_as_one() {
    let (host, origin) = server_of_lengths();
    let chain = Chain::new(1);
    let mut client = connect(chain.address("web"));
    for fields in ["Content-Length: 5, 5", "Content-Length: 5\r\nContent-Length: 5", "Content-Length: 005 ,5"] {
        write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\nhello").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.matches("Content-Length").count() == 1 && head.contains("Content-Length: 2\r\n"), "{head}");
        client.read_exact(&mut [0; 2]).unwrap();
        let head = host.recv().unwrap();
        assert!(head.matches("Content-Length").count() == 1 && head.contains("Content-Length: 5\r\n"), "{head}");
    }
}

/// An origin that takes bodies of five bytes, and says the length of its own twice.
fn server_of_lengths() -> (Receiver<String>, SocketAddr) {
    let (sender, heard) = channel();
    let address = server(move |mut stream| {
        while let Some(head) = until_empty_line(&mut stream) {
            sender.send(head).unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2, 02\r\n\r\nok";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (heard, address)
}

#[test]
fn responses_without_a_body_have_no_framing_and_nothing_is_taken_for_one() {
    for answer in [
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let (origin, _heard) = origin(answer);
        let chain = Chain::new(0);
        let mut client = connect(chain.address("web"));
        for _ in 0..3 {
            write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut head = read_head(&mut client);
            if head.starts_with("HTTP/1.1 103 ") {
                assert!(!head.contains("Content-Length"), "{head}");
                head = read_head(&mut client);
            }
            assert!(head.starts_with("HTTP/1.1 204 "), "{head}");
            assert!(!head.contains("Content-Length") && !head.contains("Transfer-Encoding"), "{head}");
        }
    }
    // What comes behind such a response is no response to the next request.
    let (origin, _heard) =
        origin("HTTP/1.1 204 No Content\r\nContent-Length: 38\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let chain = Chain::new(0);
    let mut client = connect(chain.address("web"));
    for _ in 0..3 {
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 204 "), "{head}");
    }
}

#[test]
fn a_space_before_a_response_fields_colon_is_removed() {
    let (origin, _heard) = origin("HTTP/1.1 200 OK\r\nX-One : 1\r\nContent-Length \t: 2\r\n\r\nok");
    let chain = Chain::new(1);
    let mut client = connect(chain.address("web"));
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let head = read_head(&mut client);
    assert!(head.contains("\r\nX-One: 1\r\n") && head.contains("\r\nContent-Length: 2\r\n"), "{head}");
    client.read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn an_old_origins_chunks_are_the_last_of_their_connections() {
    let (origin, _heard) = origin("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    let chain = Chain::new(0);
    let mut client = connect(chain.address("web"));
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert!(all.contains("Connection: close\r\n") && all.ends_with("2\r\nok\r\n0\r\n\r\n"), "{all}");
}
