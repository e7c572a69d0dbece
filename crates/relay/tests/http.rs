//! The HTTP proxy between raw clients and raw origins.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc;

use crate::common::log::{self, is_logged};
use crate::common::*;

/// An origin that answers each request's head by `answer`, on one connection after another.
fn origin(answer: impl Fn(&str, &mut TcpStream) -> bool + Send + Sync + Clone + 'static) -> SocketAddr {
    server(move |mut stream| {
        while let Some(head) = try_head(&mut stream) {
            if !answer(&head, &mut stream) {
                break;
            }
        }
    })
}

fn try_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn say(stream: &mut TcpStream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

#[test]
fn heads_are_rewritten_for_the_next_hop() {
    let (sender, heads) = mpsc::channel();
    let origin = origin(move |head, stream| {
        sender.send(head.to_owned()).unwrap();
        say(
            stream,
            "HTTP/1.1 200 Fine\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\nKeep-Alive: x\r\nContent-Length: 2\r\n\r\nok",
        )
    });
    for count in [0, 1, 3] {
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        write!(
            client,
            "GET http://{origin}/a?b HTTP/1.1\r\nHost: elsewhere\r\nConnection: close-not, x-secret\r\nX-Secret: 1\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nTE: trailers\r\nUpgrade: h2c\r\nX-Kept: 3\r\n\r\n"
        )
        .unwrap();
        let answer = read_head(&mut client);
        assert_eq!(body(&mut client, 2), b"ok");
        assert!(answer.starts_with("HTTP/1.1 200 Fine\r\n"), "{answer}");
        assert!(answer.contains("X-End: 2\r\n") && answer.contains("Via: 1.1 ekiden\r\n"), "{answer}");
        assert!(!answer.contains("X-Hop") && !answer.contains("Keep-Alive"), "{answer}");
        let head = heads.recv().unwrap();
        let expected = format!("GET /a?b HTTP/1.1\r\nHost: {origin}\r\nX-Kept: 3\r\nVia: 1.1 ekiden\r\n\r\n");
        assert_eq!(head, expected);
    }
}

#[test]
fn one_connection_serves_requests_to_several_origins_in_order() {
    let named = |name: &'static str| {
        origin(move |_, stream| {
            say(stream, &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()))
        })
    };
    let origins = [named("first"), named("second"), named("third!")];
    for count in [0, 1, 3] {
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        // All at once: pipelined, with an empty line before each.
        let order = [0, 0, 1, 2, 0, 1];
        let requests = order.map(|i| format!("\r\nGET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n", origins[i]));
        client.write_all(requests.concat().as_bytes()).unwrap();
        for i in order {
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200"));
            let name = ["first", "second", "third!"][i];
            assert_eq!(body(&mut client, name.len()), name.as_bytes(), "{count} nodes");
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        wait_until("streams are over", || chain.nodes.iter().all(|node| node.busy() == 0));
    }
}

#[test]
fn bodies_of_every_framing_go_both_ways() {
    let origin = origin(|head, stream| {
        let length = |head: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            line.map(|n| n.parse::<usize>().unwrap())
        };
        if head.contains("Expect: 100-continue") {
            say(stream, "HTTP/1.1 100 Continue\r\n\r\n");
        }
        let body = match length(head) {
            Some(length) => body(stream, length),
            None => unchunk(stream),
        };
        if head.starts_with("POST /chunked") {
            say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n");
            for (i, piece) in body.chunks(100_000).enumerate() {
                let half = if i % 2 == 0 { piece.len() } else { piece.len().min(7) };
                for piece in [&piece[..half], &piece[half..]] {
                    if !piece.is_empty() {
                        say(stream, &format!("{:x};ext=1\r\n", piece.len()));
                        stream.write_all(piece).unwrap();
                        say(stream, "\r\n");
                    }
                }
            }
            return say(stream, "0\r\nX-T: yes\r\n\r\n");
        }
        if head.starts_with("POST /close") {
            say(stream, "HTTP/1.1 200 OK\r\n\r\n");
            stream.write_all(&body).unwrap();
            return false;
        }
        say(stream, &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        stream.write_all(&body).is_ok()
    });
    for count in [0, 3] {
        let chain = Chain::new(count);
        for length in [0, 1, 70_000, 5_000_000] {
            let data = noise(length, 9);
            let mut client = connect(chain.address("web"));
            for path in ["length", "chunked", "length", "chunked", "close"] {
                let mut writer = client.try_clone().unwrap();
                let send_chunks = path != "length";
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let framing = if send_chunks {
                            "Transfer-Encoding: chunked".into()
                        } else {
                            format!("Content-Length: {length}")
                        };
                        write!(writer, "POST http://{origin}/{path} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n").unwrap();
                        if send_chunks {
                            for piece in data.chunks(150_000) {
                                write!(writer, "{:X}\r\n", piece.len()).unwrap();
                                writer.write_all(piece).unwrap();
                                writer.write_all(b"\r\n").unwrap();
                            }
                            writer.write_all(b"0\r\n\r\n").unwrap();
                        } else {
                            writer.write_all(&data).unwrap();
                        }
                    });
                    let head = read_head(&mut client);
                    let back = match path {
                        "length" => body(&mut client, length),
                        "chunked" => unchunk(&mut client),
                        _ => {
                            assert!(head.contains("Connection: close\r\n"), "{head}");
                            let mut all = Vec::new();
                            client.read_to_end(&mut all).unwrap();
                            all
                        }
                    };
                    assert!(back == data, "{path}, {length} bytes, {count} nodes");
                });
            }
        }
        // The client waits for 100 before it sends its body.
        let mut client = connect(chain.address("web"));
        write!(
            client,
            "POST http://{origin}/length HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        .unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 100 "));
        client.write_all(b"abc").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        assert_eq!(body(&mut client, 3), b"abc");
    }
}

fn unchunk(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(body(stream, 1));
        }
        let text = String::from_utf8(line).unwrap();
        let length = usize::from_str_radix(text.trim().split(';').next().unwrap(), 16).unwrap();
        if length == 0 {
            // The trailer.
            let mut rest = b"\r\n".to_vec();
            while !rest.ends_with(b"\r\n\r\n") {
                rest.extend(body(stream, 1));
            }
            return all;
        }
        all.extend(body(stream, length));
        body(stream, 2);
    }
}

#[test]
fn responses_without_a_body_leave_the_connection_usable() {
    let origin = origin(|head, stream| {
        let status = head.split(['/', ' ']).find(|part| part.parse::<u16>().is_ok()).unwrap_or("200");
        let more = if head.starts_with("HEAD") || status == "304" { "Content-Length: 1000\r\n" } else { "" };
        let more = if status == "205" { "Content-Length: 0\r\n" } else { more };
        say(stream, &format!("HTTP/1.1 {status} X\r\n{more}\r\n"))
    });
    let chain = Chain::new(1);
    let mut client = connect(chain.address("web"));
    for (method, status) in [("GET", 204), ("GET", 304), ("HEAD", 200), ("GET", 205), ("HEAD", 404)] {
        write!(client, "{method} http://{origin}/{status} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
}

#[test]
fn an_old_client_gets_no_chunks() {
    let origin = origin(|_, stream| {
        say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    });
    let chain = Chain::new(1);
    let mut client = connect(chain.address("web"));
    write!(client, "GET http://{origin}/ HTTP/1.0\r\n\r\n").unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert!(all.ends_with("\r\n\r\nabcde") && !all.contains("chunked"), "{all}");
}

#[test]
fn an_origin_that_dies_in_a_body_is_a_reset_for_the_client() {
    let ways = [
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nsome",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551614\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nsome",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno chunk",
    ];
    for count in [0, 1, 3] {
        for way in ways {
            let origin = origin(move |_, stream| {
                say(stream, way);
                false
            });
            let chain = Chain::new(count);
            let mut client = connect(chain.address("web"));
            write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200"));
            assert!(!ends_cleanly(&mut client), "{count} nodes, {way}");
        }
        // Close-delimited, and the origin resets instead of ending.
        let origin = server(|mut stream| {
            try_head(&mut stream);
            say(&mut stream, "HTTP/1.1 200 OK\r\n\r\nsome");
            // The client has it; only then comes the reset.
            let _ = stream.read(&mut [0; 1]);
            reset(stream);
        });
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n").unwrap();
        read_head(&mut client);
        body(&mut client, 4);
        client.write_all(b"x").unwrap();
        assert!(!ends_cleanly(&mut client), "{count} nodes, close-delimited");
    }
}

#[test]
fn failures_have_their_status_and_say_why() {
    log::keep();
    for count in [0, 1, 3] {
        let refuse = "[[route]]\nto = [\"forbidden.example\"]\naction = \"refuse\"\n";
        let chain = Chain::with(count, refuse, "");
        let closed = closed_port();
        let silent = origin(|_, _| false);
        let garbage = origin(|_, stream| {
            say(stream, "SSH-2.0-x\r\n\r\n");
            false
        });
        let doubtful = origin(|_, stream| {
            say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
            false
        });
        let answer = format!("by http to {silent}: the origin closed the connection without a response");
        for (url, status, why) in [
            (format!("http://{closed}/"), 502, "connection refused"),
            ("http://no-such-host.invalid/".into(), 502, "does not exist"),
            ("http://forbidden.example/".into(), 403, "refuses"),
            (format!("http://{silent}/"), 502, "without a response"),
            (format!("http://{garbage}/"), 502, "HTTP"),
            (format!("http://{doubtful}/"), 502, "the origin's response: Content-Length"),
            ("/local".into(), 400, "http://"),
            ("gopher://x/".into(), 400, "ftp://"),
        ] {
            let mut client = connect(chain.address("web"));
            write!(client, "GET {url} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(why), "{url}: {answer}");
        }
        // The others are of the same client, and are counted.
        assert!(is_logged(&answer), "{answer}");
    }
}

#[test]
fn a_password_is_asked_for_by_407() {
    let origin = origin(|_, stream| say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let chain = Chain::new(1);
    // alice:secret, alice:wrong, none.
    for (credentials, status) in [("Basic YWxpY2U6c2VjcmV0", 200), ("Basic YWxpY2U6d3Jvbmc=", 407), ("", 407)] {
        let mut client = connect(chain.address("weblocked"));
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {credentials}\r\n\r\n")
            .unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert_eq!(head.contains("Proxy-Authenticate: Basic"), status == 407);
    }
}

#[test]
fn a_kept_connection_that_the_origin_closed_is_replaced() {
    // One request on each connection, although it says nothing of closing.
    let origin = origin(|_, stream| {
        say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        false
    });
    for count in [0, 2] {
        let chain = Chain::new(count);
        let mut client = connect(chain.address("web"));
        for _ in 0..50 {
            write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let head = read_head(&mut client);
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            body(&mut client, 2);
        }
    }
}

#[test]
fn curl_works_through_every_front_end() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: there is no curl here");
        return;
    }
    let data = noise(3_000_000, 11);
    let served = data.clone();
    let origin = origin(move |_, stream| {
        say(stream, &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", served.len()));
        stream.write_all(&served).is_ok()
    });
    let chain = Chain::new(3);
    let web = chain.address("web");
    let socks = chain.address("socks");
    let locked = format!("http://alice:secret@{}", chain.address("weblocked"));
    for proxy in [
        vec![format!("http://{web}")],
        vec![format!("http://{web}"), "-p".into()],
        vec![format!("socks5h://{socks}")],
        vec![locked],
    ] {
        // Two downloads in one run: the second uses the kept connection.
        let url = format!("http://{origin}/file");
        let mut command = Command::new("curl");
        command.args(["-sSf", "--noproxy", "", "-x"]).args(&proxy).args([&url, &url]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{proxy:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == [&data[..], &data[..]].concat(), "{proxy:?}");
    }
}
