//! HTTP: heads, framing, chunks; arbitrary bytes, split anywhere.

use ekiden_relay_proto::http::*;
use proptest::prelude::*;

fn request(head: &str) -> Result<Request, HttpError> {
    parse_request(head.as_bytes(), 64)
}

fn response(head: &str, request: &Request) -> Result<Response, HttpError> {
    parse_response(head.as_bytes(), 64, request)
}

fn get(version: &str) -> Request {
    request(&format!("GET http://a/ HTTP/{version}\r\nHost: a\r\n\r\n")).unwrap()
}

#[test]
fn targets_of_every_form() {
    let target = |uri: &str, method: &str| {
        request(&format!("{method} {uri} HTTP/1.1\r\nHost: x\r\n\r\n")).map(|r| (r.target.to_string(), r.head)).map(
            |(target, head)| {
                let line = String::from_utf8(head).unwrap().lines().next().map(str::to_owned);
                (target, line.unwrap_or_default())
            },
        )
    };
    let ok = |uri, method| target(uri, method).unwrap();
    assert_eq!(ok("http://Example.org", "GET"), ("example.org:80".into(), "GET / HTTP/1.1".into()));
    assert_eq!(ok("HTTP://a:81?q", "GET"), ("a:81".into(), "GET /?q HTTP/1.1".into()));
    assert_eq!(ok("http://[::1]:8/x", "PUT"), ("[::1]:8".into(), "PUT /x HTTP/1.1".into()));
    assert_eq!(ok("http://a", "OPTIONS"), ("a:80".into(), "OPTIONS * HTTP/1.1".into()));
    assert_eq!(ok("a.b:443", "CONNECT"), ("a.b:443".into(), String::new()));
    for (uri, method) in [
        ("/", "GET"),
        ("*", "OPTIONS"),
        ("https://a/", "GET"),
        ("http://", "GET"),
        ("http://u@a/", "GET"),
        ("http://a/#f", "GET"),
        ("http://a:0/", "GET"),
        ("http://a:x/", "GET"),
        ("http://a:99999/", "GET"),
        ("a", "CONNECT"),
        ("http://a/", "CONNECT"),
    ] {
        assert_eq!(target(uri, method).unwrap_err().status, 400, "{method} {uri}");
    }
}

#[test]
fn framing_of_requests() {
    let body = |fields: &str| request(&format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).map(|r| r.body);
    assert_eq!(body(""), Ok(Body::Length(0)));
    assert_eq!(body("Content-Length: 18446744073709551615\r\n"), Ok(Body::Length(u64::MAX)));
    assert_eq!(body("Content-Length: 18446744073709551616\r\n").unwrap_err().status, 400);
    assert_eq!(body("Content-Length: \r\n").unwrap_err().status, 400);
    assert_eq!(body("transfer-encoding: Chunked\r\n"), Ok(Body::Chunked));
    assert_eq!(body("Transfer-Encoding: gzip, chunked\r\n").unwrap_err().status, 501);
    let old = "POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(request(old).unwrap_err().status, 400);
    assert_eq!(request("GET http://a/ HTTP/1.1\r\n\r\n").unwrap_err().status, 400);
    assert_eq!(request("GET http://a/ HTTP/2.0\r\nHost: a\r\n\r\n").unwrap_err().status, 505);
    let many = format!("GET http://a/ HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(65));
    assert_eq!(request(&many).unwrap_err().status, 431);
}

#[test]
fn framing_of_responses() {
    let new = get("1.1");
    let body = |head: &str| response(head, &new).unwrap();
    assert_eq!(body("HTTP/1.1 200 OK\r\n\r\n").body, Body::UntilEnd);
    assert!(!body("HTTP/1.1 200 OK\r\n\r\n").keeps_client);
    assert!(body("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n").keeps_client);
    assert!(body("HTTP/1.1 200\r\nContent-Length: 1\r\n\r\n").keeps_origin);
    assert!(!body("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Close\r\n\r\n").keeps_origin);
    assert!(!body("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n").keeps_origin);
    assert!(body("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n").is_interim);
    assert_eq!(response("HTTP/1.1 101 Switching\r\n\r\n", &new).unwrap_err().status, 502);
    assert!(response("HTTP/1.1 103 Early Hints\r\n\r\n", &get("1.0")).unwrap().head.is_empty());
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(response(both, &new).unwrap_err().status, 502);
    assert!(response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &get("1.0")).unwrap().unchunk);
}

/// Follows a chunked body given in pieces; returns its data, the bytes taken and how it went.
fn follow(wire: &[u8], cuts: &[usize]) -> (Vec<u8>, usize, Result<bool, HttpError>) {
    let mut chunked = Chunked::default();
    let mut data = Vec::new();
    let (mut at, mut end) = (0, 0);
    let mut cuts = cuts.iter().cycle();
    while !chunked.is_done() {
        if at == end {
            if end == wire.len() {
                break;
            }
            end += (wire.len() - end).min(*cuts.next().unwrap());
        }
        match chunked.advance(&wire[at..end]) {
            Ok(piece) => {
                assert!(piece.length > 0);
                if piece.is_data {
                    data.extend(&wire[at..at + piece.length]);
                }
                at += piece.length;
            }
            Err(error) => return (data, 0, Err(error)),
        }
    }
    (data, at, Ok(chunked.is_done()))
}

#[test]
fn only_blanks_may_stand_between_a_chunks_size_and_its_extension() {
    for fine in ["5 \r\n", "5 \t;x=y z\r\n", "5;x\r\n"] {
        assert!(Chunked::default().advance(fine.as_bytes()).is_ok(), "{fine:?}");
    }
    for wrong in ["5 0\r\n", "5\tx\r\n", " 5\r\n", "5 \n"] {
        assert!(Chunked::default().advance(wrong.as_bytes()).is_err(), "{wrong:?}");
    }
}

#[test]
fn chunks_are_followed_to_their_end_and_no_further() {
    let wire = b"5;a=\"b\"\r\nhello\r\n1\r\n \r\n00F\r\n123456789012345\r\n0\r\nX: y\r\nZ: \r\n\r\nGET";
    let (data, taken, end) = follow(wire, &[usize::MAX]);
    assert_eq!((data.as_slice(), taken, end), (&b"hello 123456789012345"[..], wire.len() - 3, Ok(true)));
    let malformed: [&[u8]; 8] =
        [b"\r\n", b"x\r\n", b"5\nhello", b"1\r\nab\r\n", b"1\r\na\n", b"-1\r\n", b"1111111111111111\r\n", b"0\r\nX\n"];
    for wire in malformed {
        assert!(follow(wire, &[1]).2.is_err(), "{wire:?}");
    }
    assert!(follow(&[b'0', b';'].repeat(9000), &[100]).2.is_err());
    let trailers = [&b"0\r\n"[..], &b"X: yyyyyyyy\r\n".repeat(1000)].concat();
    assert!(follow(&trailers, &[100]).2.is_err());
}

/// Looks for a head in bytes given in pieces.
fn scan(bytes: &[u8], cuts: &[usize]) -> Result<Option<usize>, HttpError> {
    let mut scanner = HeadScanner::default();
    let mut end = 0;
    let mut cuts = cuts.iter().cycle();
    loop {
        match scanner.find(&bytes[..end], 100) {
            Ok(None) if end < bytes.len() => end += (bytes.len() - end).min(*cuts.next().unwrap()),
            other => return other,
        }
    }
}

proptest! {
    #[test]
    fn heads_are_found_the_same_however_they_are_split(
        bytes in "(GET|\r\n|[a-z: ]{1,9}|\r\n\r\n|\n|\r){0,30}",
        cuts in prop::collection::vec(1usize..20, 1..9),
    ) {
        prop_assert_eq!(scan(bytes.as_bytes(), &cuts), scan(bytes.as_bytes(), &[usize::MAX]));
    }

    #[test]
    fn chunks_read_the_same_however_they_are_split(
        wire in "([0-9a-f]{1,2}|\r\n|;x|[a-z]{1,20}|5\r\nhello\r\n|0\r\n\r\n){0,20}",
        cuts in prop::collection::vec(1usize..20, 1..9),
    ) {
        let (mut split, mut whole) = (follow(wire.as_bytes(), &cuts), follow(wire.as_bytes(), &[usize::MAX]));
        if whole.2.is_err() {
            // How much was passed on before the error depends on the pieces.
            (split.0, whole.0) = (Vec::new(), Vec::new());
        }
        prop_assert_eq!(split, whole);
    }

    #[test]
    fn arbitrary_heads_are_refused_or_read(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        text in "(GET|CONNECT|POST) (http://)?[a-z.:@/0-9\\[\\]]{0,20} HTTP/1.[019]\r\n([A-Za-z-]{1,20}: ?[ -~]{0,20}\r\n){0,9}\r\n",
        status in "HTTP/1.[01] [0-9]{1,4} [a-z]{0,9}\r\n((Content-Length|Connection|Transfer-Encoding): ?[a-z0-9, ]{0,20}\r\n){0,4}\r\n",
    ) {
        let asked = get("1.1");
        for head in [&bytes, text.as_bytes(), status.as_bytes()] {
            let _ = parse_response(head, 10, &asked);
            let _ = empty_lines(head);
            if let Ok(request) = parse_request(head, 10) && !request.is_connect {
                // What goes on is one head and reads as the same request.
                prop_assert_eq!(HeadScanner::default().find(&request.head, 1000), Ok(Some(request.head.len())));
            }
        }
    }
}
