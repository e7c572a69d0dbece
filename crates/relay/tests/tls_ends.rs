//! An end is only an end if it was said, also where a client speaks TLS: close_notify, and nothing else.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use rustls::version::{TLS12, TLS13};
use socket2::SockRef;

use crate::common::tls::*;
use crate::common::*;

const COUNTS: [usize; 2] = [0, 1];

fn chain(count: usize) -> Chain {
    let (own, _) = files();
    Chain::with(count, &format!("[listen.tls]\nkind = \"mixed\"\naddress = \"127.0.0.1:0\"\ntls = {{ {own} }}\n"), "")
}

fn client() -> Client {
    Client::default()
}

/// A host that tells how the stream from its client ended: with how many bytes, and whether cleanly.
fn listener_of_ends() -> (SocketAddr, mpsc::Receiver<(usize, bool)>) {
    let (told, ends) = mpsc::channel();
    let address = server(move |mut stream| {
        let (mut count, mut piece) = (0, [0; 4096]);
        let is_clean = loop {
            match stream.read(&mut piece) {
                Ok(0) => break true,
                Ok(n) => count += n,
                Err(_) => break false,
            }
        };
        let _ = told.send((count, is_clean));
    });
    (address, ends)
}

#[test]
fn a_client_that_ends_tcp_without_close_notify_leaves_no_end() {
    for count in COUNTS {
        let chain = chain(count);
        let all = [&TLS12, &TLS13].into_iter().flat_map(|version| {
            [(true, true), (false, true), (true, false), (false, false)].map(|(says, socks)| (version, says, socks))
        });
        for (version, says_end, is_socks) in all {
            let (host, ends) = listener_of_ends();
            let client = Client { versions: vec![version], ..Client::default() };
            let tls = client.connect(chain.address("tls"));
            let mut stream = match is_socks {
                true => {
                    let mut tls = tls;
                    assert_eq!(socks5(&mut tls, host), 0);
                    tls
                }
                false => tunnel(tls, host),
            };
            stream.write_all(&[7; 1000]).unwrap();
            if says_end {
                say_end(&mut stream);
            }
            stream.sock.shutdown(Shutdown::Write).unwrap();
            let end = ends.recv_timeout(PATIENCE).unwrap();
            assert_eq!(end, (1000, says_end), "{count} nodes, socks {is_socks}");
            if !says_end {
                assert!(!rest(&mut stream).1, "it sees no end either");
            }
        }
    }
}

#[test]
fn a_record_that_is_cut_short_or_damaged_is_no_end() {
    let chain = chain(0);
    for damage in [
        &[0x17, 3, 3, 0, 100, 1, 2, 3][..],
        &[0x17, 3, 3, 0, 20, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
    ] {
        let (host, ends) = listener_of_ends();
        let mut stream = tunnel(client().connect(chain.address("tls")), host);
        stream.write_all(&[7; 1000]).unwrap();
        stream.sock.write_all(damage).unwrap();
        stream.sock.shutdown(Shutdown::Write).unwrap();
        let (_, is_clean) = ends.recv_timeout(PATIENCE).unwrap();
        assert!(!is_clean);
    }
}

#[test]
fn a_host_that_resets_or_ends_is_told_from_the_other() {
    for count in COUNTS {
        let chain = chain(count);
        for version in [&TLS12, &TLS13] {
            for ends in [true, false] {
                let host = server(move |mut stream| {
                    stream.write_all(&[1; 10_000]).unwrap();
                    // The client has it before anything else happens.
                    stream.read_exact(&mut [0]).unwrap();
                    if !ends {
                        reset(stream);
                    }
                });
                let client = Client { versions: vec![version], ..Client::default() };
                let mut stream = tunnel(client.connect(chain.address("tls")), host);
                stream.read_exact(&mut [0; 10_000]).unwrap();
                stream.write_all(b"x").unwrap();
                assert_eq!(rest(&mut stream), (Vec::new(), ends), "{count} nodes, {version:?}");
            }
        }
    }
}

#[test]
fn after_one_ends_the_other_direction_goes_on() {
    for count in COUNTS {
        let chain = chain(count);
        let (go, going) = mpsc::channel();
        let going = std::sync::Arc::new(std::sync::Mutex::new(going));
        let host = server(move |mut stream| {
            // Its end first; then it reads on.
            stream.write_all(b"answer").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            let _ = go.send(all.len());
        });
        let mut stream = tunnel(client().connect(chain.address("tls")), host);
        assert_eq!(rest(&mut stream), (b"answer".to_vec(), true));
        let data = noise(2 << 20, 3);
        stream.write_all(&data).unwrap();
        say_end(&mut stream);
        assert_eq!(going.lock().unwrap().recv_timeout(PATIENCE).unwrap(), data.len(), "{count} nodes");
    }
}

/// It is demanded (RFC 5246 §7.2.1), and the client drops what it had to send.
#[test]
fn in_tls_1_2_the_answer_to_an_end_is_none() {
    for count in COUNTS {
        let chain = chain(count);
        let (told, ends) = mpsc::channel();
        let host = server(move |mut stream| {
            stream.write_all(b"answer").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = told.send(stream.read_to_end(&mut Vec::new()).is_ok());
        });
        let client = Client { versions: vec![&TLS12], ..Client::default() };
        let mut stream = tunnel(client.connect(chain.address("tls")), host);
        stream.write_all(&[7; 1000]).unwrap();
        assert_eq!(rest(&mut stream), (b"answer".to_vec(), true));
        say_end(&mut stream);
        assert!(!ends.recv_timeout(PATIENCE).unwrap(), "{count} nodes: an end that nobody said");
    }
}

/// It has not heard of the destination's end, and reads late.
#[test]
fn in_tls_1_2_an_end_that_crosses_the_other_costs_the_client_nothing() {
    for count in COUNTS {
        let chain = chain(count);
        let data = noise(3 << 20, 6);
        let (sent, (told, ends)) = (data.clone(), mpsc::channel());
        let host = server(move |mut stream| {
            stream.write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            let _ = told.send(stream.read_to_end(&mut all).map(|_| all.len()).map_err(|error| error.kind()));
        });
        let client = Client { versions: vec![&TLS12], ..Client::default() };
        let mut stream = tunnel(client.connect(chain.address("tls")), host);
        stream.write_all(&[7; 1000]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        say_end(&mut stream);
        std::thread::sleep(Duration::from_millis(500));
        let (got, is_said) = rest(&mut stream);
        assert!(got == data && is_said, "{count} nodes: {} of {}, {is_said}", got.len(), data.len());
        // Whether it was in time is the machine's.
        let end = ends.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(end, Ok(1000) | Err(std::io::ErrorKind::ConnectionReset)), "{end:?}");
    }
}

#[test]
fn a_client_that_reads_late_gets_everything_and_the_end() {
    for count in COUNTS {
        let chain = chain(count);
        let data = noise(6 << 20, 5);
        let sent = data.clone();
        let (done, is_done) = mpsc::channel();
        let host = server(move |mut stream| {
            stream.write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = stream.read(&mut [0]);
            let _ = done.send(());
        });
        let mut stream = tunnel(client().connect(chain.address("tls")), host);
        say_end(&mut stream);
        std::thread::sleep(Duration::from_millis(700));
        let (got, is_said) = rest(&mut stream);
        assert!(got == data && is_said, "{count} nodes: {} of {}, {is_said}", got.len(), data.len());
        is_done.recv_timeout(PATIENCE).unwrap();
    }
}

/// The end of the connection is the end of such a response, and of no other.
#[test]
fn a_response_without_a_length_ends_with_close_notify_also_for_a_late_reader() {
    let node = chain(0);
    for breaks in [false, true] {
        let body = noise(3 << 20, 11);
        let sent = body.clone();
        let origin = server(move |mut stream| {
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
            stream.write_all(&sent).unwrap();
            if breaks {
                // All of it has been taken by then, or the reset is seen in the middle of it.
                std::thread::sleep(Duration::from_millis(300));
                reset(stream);
            }
        });
        let mut tls = client().connect(node.address("tls"));
        write!(tls, "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
        head(&mut tls);
        std::thread::sleep(Duration::from_millis(600));
        let (got, is_said) = rest(&mut tls);
        assert_eq!(is_said, !breaks, "{} of {}", got.len(), body.len());
        assert!(breaks || got == body);
    }
}

#[test]
fn a_node_that_goes_away_leaves_no_end_on_either_side() {
    let (host, ends) = listener_of_ends();
    let chain = chain(0);
    let mut stream = tunnel(client().connect(chain.address("tls")), host);
    stream.write_all(&[7; 1000]).unwrap();
    drop(chain);
    assert!(!rest(&mut stream).1);
    assert!(!ends.recv_timeout(PATIENCE).unwrap().1);
}

#[test]
fn urgent_data_is_no_end_and_breaks_nothing_unnoticed() {
    let chain = chain(0);
    let (host, ends) = listener_of_ends();
    let mut stream = tunnel(client().connect(chain.address("tls")), host);
    stream.write_all(&[7; 1000]).unwrap();
    SockRef::from(&stream.sock).send_out_of_band(b"!").unwrap();
    // The byte is no part of what is received in order, so the records behind it are as they were said.
    stream.write_all(&[7; 1000]).unwrap();
    say_end(&mut stream);
    let (count, is_clean) = ends.recv_timeout(PATIENCE).unwrap();
    assert!(!is_clean || count == 2000, "{count}");
}

/// Many clients close like this between two requests (RFC 9112 §9.8).
#[test]
fn a_client_that_leaves_between_two_requests_without_close_notify_breaks_nothing() {
    let node = chain(0);
    let origin = server(|mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        let _ = stream.read(&mut [0]);
    });
    let mut tls = client().connect(node.address("tls"));
    write!(tls, "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
    head(&mut tls);
    tls.read_exact(&mut [0; 2]).unwrap();
    tls.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut tls), (Vec::new(), true));
}
