//! HTTP: heads, framing, chunks; arbitrary bytes, split anywhere.

use ekiden_relay_proto::http::*;
use proptest::prelude::*;

fn request(head: &str) -> Result<Request, HttpError> {
    parse_request(head.as_bytes(), 64)
}

fn response(head: &str, request: &Request) -> Result<Response, HttpError> {
    parse_response(head.as_bytes(), 64, request, true)
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
    assert_eq!(body("Content-Length: 5 ,05\r\ncontent-length: 5\r\n"), Ok(Body::Length(5)));
    assert_eq!(body("Content-Length: 5\r\nContent-Length: 6\r\n").unwrap_err().status, 400);
    assert_eq!(body("Content-Length: 5,,5\r\n").unwrap_err().status, 400);
    assert_eq!(body("transfer-encoding: Chunked\r\n"), Ok(Body::Chunked));
    assert_eq!(body("Transfer-Encoding: gzip, chunked\r\n").unwrap_err().status, 501);
    let old = "POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(request(old).unwrap_err().status, 400);
    assert_eq!(request("GET http://a/ HTTP/1.1\r\n\r\n").unwrap_err().status, 400);
    assert_eq!(request("GET http://a/ HTTP/2.0\r\nHost: a\r\n\r\n").unwrap_err().status, 505);
    assert_eq!(request("GET http://a/ HTTP/1.1\r\n\r\n").unwrap_err().status, 400);
    // The target is the host.
    assert_eq!(request("CONNECT a:443 HTTP/1.1\r\n\r\n").unwrap().target.to_string(), "a:443");
    assert_eq!(request("CONNECT a:443 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap_err().status, 400);
    for line in ["GET http://a/b c HTTP/1.1", "GET http://a/b c d HTTP/1.0", "GET http://a/ b", "GET http://a/ FTP/1.1"]
    {
        assert_eq!(request(&format!("{line}\r\nHost: a\r\n\r\n")).unwrap_err().status, 400, "{line}");
    }
    let many = format!("GET http://a/ HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(65));
    assert_eq!(request(&many).unwrap_err().status, 431);
}

#[test]
fn a_status_line_may_be_odd() {
    let of = |line: &str| response(&format!("{line}\r\nContent-Length: 1\r\n\r\n"), &get("1.1"));
    for line in ["HTTP/1.2 200 OK", "HTTP/1.9 200 OK", "HTTP/1.1  200  OK"] {
        let head = String::from_utf8(of(line).unwrap().head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{line}: {head}");
    }
    for line in ["HTTP/1.12 200 OK", "HTTP/2.0 200 OK", "HTTP/1.1 099 OK"] {
        assert_eq!(of(line).unwrap_err().status, 502, "{line}");
    }
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
    assert!(body("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n").keeps_origin);
    let old = body("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!((old.body, old.keeps_origin, old.keeps_client), (Body::Chunked, false, false));
    // What says that it has a body and must not have one.
    for head in ["204 X\r\nContent-Length: 5", "204 X\r\nTransfer-Encoding: chunked", "103 X\r\nContent-Length: 5"] {
        let response = body(&format!("HTTP/1.1 {head}\r\n\r\n"));
        assert_eq!((response.body, response.keeps_origin), (Body::Length(0), false), "{head}");
        let text = String::from_utf8(response.head).unwrap();
        assert!(!text.contains("Content-Length") && !text.contains("Transfer-Encoding"), "{text}");
    }
    let unchanged = body("HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n");
    assert!(unchanged.keeps_origin && String::from_utf8(unchanged.head).unwrap().contains("Content-Length: 5\r\n"));
    assert!(body("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n").is_interim);
    assert_eq!(response("HTTP/1.1 101 Switching\r\n\r\n", &new).unwrap_err().status, 502);
    assert!(response("HTTP/1.1 103 Early Hints\r\n\r\n", &get("1.0")).unwrap().head.is_empty());
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(response(both, &new).unwrap_err().status, 502);
    assert!(response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &get("1.0")).unwrap().unchunk);
}

/// Gives a chunked body in pieces; returns what goes on, the bytes taken and whether the body is done.
fn rewrite(wire: &[u8], unchunk: bool, cuts: &[usize]) -> Result<(Vec<u8>, usize, bool), HttpError> {
    let mut chunked = Chunked::new(unchunk);
    let (mut out, mut at, mut end) = (Vec::new(), 0, 0);
    let mut cuts = cuts.iter().cycle();
    while !chunked.is_done() && end < wire.len() {
        end += (wire.len() - end).min(*cuts.next().unwrap());
        at += chunked.advance(&wire[at..end], &mut out)?;
        assert!(at == end || chunked.is_done(), "it stands still");
    }
    Ok((out, at, chunked.is_done()))
}

#[test]
fn chunks_are_written_anew_up_to_their_end() {
    let wire = b"5;a=\"b\"\r\nhello\r\n1 \t\r\n \r\n00F \t;x=y z\r\n123456789012345\r\n000;z\r\nX: y\r\nZ: \r\n\r\nGET";
    let (anew, taken, is_done) = rewrite(wire, false, &[usize::MAX]).unwrap();
    let expected = "5\r\nhello\r\n1\r\n \r\nf\r\n123456789012345\r\n0\r\nX: y\r\nZ: \r\n\r\n";
    assert_eq!((String::from_utf8(anew).unwrap().as_str(), taken, is_done), (expected, wire.len() - 3, true));
    let (data, ..) = rewrite(wire, true, &[1]).unwrap();
    assert_eq!(data, b"hello 123456789012345");
}

#[test]
fn chunks_that_could_be_read_in_two_ways_are_refused() {
    let malformed = [
        "\r\n",
        "x\r\n",
        " 5\r\n",
        "5 0\r\n",
        "5\tx\r\n",
        "5 \n",
        "5\nhello",
        "5;x\nhello",
        "5;x\ry",
        "5\r\r\n",
        "0x5\r\n",
        "+5\r\n",
        "-1\r\n",
        "5h\r\n",
        "1111111111111111\r\n",
        "0000000000000005\r\n",
        "1\r\nab\r\n",
        "1\r\na\n",
        "1\r\na\r\r\n",
        "0\r\nX\n",
        "0\r\n\n",
        "0\r\nX: y\n\r\n",
        "0\r\nno field\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX: a\r\n folded\r\n\r\n",
        "0\r\nX: a\0b\r\n\r\n",
        "0\r\nX: a\rb\r\n\r\n",
        "0\r\n: y\r\n\r\n",
    ];
    for wire in malformed {
        for (unchunk, cut) in [(false, usize::MAX), (true, 1)] {
            assert!(rewrite(wire.as_bytes(), unchunk, &[cut]).is_err(), "{wire:?}");
        }
    }
    assert!(rewrite(&[b'0', b';'].repeat(9000), false, &[100]).is_err());
    assert!(rewrite(&[&b"0\r\n"[..], &b"X: yyyyyyyy\r\n".repeat(1000)].concat(), false, &[100]).is_err());
}

#[test]
fn a_trailer_has_no_fields_that_belong_into_a_head() {
    let fields = [
        "Content-Length: 5",
        "transfer-encoding: chunked",
        "Host: a",
        "Connection: close",
        "TE: x",
        "Trailer: x",
        "Cookie: a",
        "Authorization: a",
        "Proxy-Authorization: a",
        "If-Match: x",
        "Range: bytes=0-",
        "Content-Encoding: gzip",
        "Via: x",
    ];
    let wire = format!("0\r\n{}\r\nX-Sum: 1\r\n\r\n", fields.join("\r\n"));
    let (anew, ..) = rewrite(wire.as_bytes(), false, &[usize::MAX]).unwrap();
    assert_eq!(String::from_utf8(anew).unwrap(), "0\r\nX-Sum: 1\r\n\r\n");
}

#[test]
fn a_trailer_has_no_fields_that_the_heads_connection_lists() {
    let head = "POST http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close, X-Hop\r\nTransfer-Encoding: chunked\r\n\r\n";
    let asked = request(head).unwrap();
    let head = "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answered = response(head, &asked).unwrap();
    for listed in [&asked.listed, &answered.listed] {
        let mut out = Vec::new();
        let wire = b"0\r\nx-hop: 1\r\nX-Sum: 1\r\nClose: 1\r\n\r\n";
        Chunked::new(false).without(listed).advance(wire, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "0\r\nX-Sum: 1\r\n\r\n");
    }
}

#[test]
fn data_that_went_by_otherwise_counts() {
    let mut chunked = Chunked::new(false);
    let mut out = Vec::new();
    assert_eq!(chunked.advance(b"fffffffffffffff\r\n", &mut out), Ok(17));
    assert_eq!((chunked.data_due(), out.as_slice()), ((1 << 60) - 1, &b"fffffffffffffff\r\n"[..]));
    chunked.skipped((1 << 60) - 2);
    assert_eq!(chunked.advance(b"x\r\n0\r\n\r\n", &mut out), Ok(8));
    assert!(chunked.is_done() && out.ends_with(b"\r\nx\r\n0\r\n\r\n"));
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
    fn chunks_are_rewritten_the_same_however_they_are_split(
        wire in "([0-9a-f]{1,2}[ ;]?|\r\n|;x|[a-z]{1,20}|5 ?\r\nhello\r\n|0\r\n|X-[a-z]{1,3}: ?[a-z]{0,5}\r\n|\r\n){0,20}",
        cuts in prop::collection::vec(1usize..20, 1..9),
        unchunk: bool,
    ) {
        let whole = rewrite(wire.as_bytes(), unchunk, &[usize::MAX]);
        prop_assert_eq!(rewrite(wire.as_bytes(), unchunk, &cuts), whole);
    }

    #[test]
    fn a_rewritten_body_has_the_same_data_and_is_not_changed_again(
        chunks in prop::collection::vec(("0{0,3}", "( |\t)?(;[a-z]{0,5}(=\"[ -~]{0,5}\")?)?", "[a-z]{1,30}"), 0..9),
        last in "0{1,5} ?(;[a-z]{0,5})?",
        trailer in "(X-[a-z]{1,5}: {0,2}[!-~]{1,9}\r\n){0,4}",
        behind in "[ -~]{0,9}",
    ) {
        let mut wire = String::new();
        let mut data = String::new();
        for (zeros, extension, text) in &chunks {
            wire += &format!("{zeros}{:X}{extension}\r\n{text}\r\n", text.len());
            data += text;
        }
        wire += &format!("{last}\r\n{trailer}\r\n{behind}");
        let (anew, taken, is_done) = rewrite(wire.as_bytes(), false, &[usize::MAX]).unwrap();
        prop_assert!(is_done);
        prop_assert_eq!(taken, wire.len() - behind.len());
        let again = rewrite(&anew, false, &[usize::MAX]).unwrap();
        prop_assert_eq!((&again.0, again.1, again.2), (&anew, anew.len(), true));
        prop_assert_eq!(rewrite(wire.as_bytes(), true, &[3]).unwrap().0, data.as_bytes());
        prop_assert_eq!(rewrite(&anew, true, &[7]).unwrap().0, data.as_bytes());
    }

    #[test]
    fn arbitrary_heads_are_refused_or_read(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        text in "(GET|CONNECT|POST) (http://)?[a-z.:@/0-9\\[\\]]{0,20} HTTP/1.[019]\r\n([A-Za-z-]{1,20}: ?[ -~]{0,20}\r\n){0,9}\r\n",
        status in "HTTP/1.[01] [0-9]{1,4} [a-z]{0,9}\r\n((Content-Length|Connection|Transfer-Encoding): ?[a-z0-9, ]{0,20}\r\n){0,4}\r\n",
    ) {
        let asked = get("1.1");
        for head in [&bytes, text.as_bytes(), status.as_bytes()] {
            let _ = parse_response(head, 10, &asked, true);
            let _ = empty_lines(head);
            if let Ok(request) = parse_request(head, 10) && !request.is_connect && request.answer.is_none() {
                // What goes on is one head and reads as the same request.
                prop_assert_eq!(HeadScanner::default().find(&request.head, 1000), Ok(Some(request.head.len())));
            }
        }
    }
}
