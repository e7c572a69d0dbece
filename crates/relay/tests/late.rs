//! A host that has no room for long gets all that it was sent: a client its response, an origin its request, also when the
//! other side has ended or gone meanwhile.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::common::peer::{frame, stream_that_both_end};
use crate::common::*;
use ekiden_relay_proto::leg::FrameKind;
use socket2::{Domain, Socket, Type};

/// With it the pauses between retransmissions grow to 1 s, and the kernel gives up a closed socket after about 3 s without
/// room if they are left at that.
const TCP: &str = "[tcp]\nkeepalive = \"6s\"\n";

/// More than that, and than a client that was answered is waited for.
const PAUSE: Duration = Duration::from_secs(6);

/// More than a small receive buffer takes, and less than a node's socket does besides.
const BYTES: usize = 400_000;

fn small() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(8192).unwrap();
    socket
}

/// A client with little room.
fn small_client(to: SocketAddr) -> TcpStream {
    let socket = small();
    socket.connect(&to.into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.into()
}

/// Answers every request on every connection with `head` and [`BYTES`] bytes, and ends the connection.
fn origin(head: &'static str) -> SocketAddr {
    server(move |mut stream| {
        read_head(&mut stream);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&noise(BYTES, 1)).unwrap();
    })
}

/// The response of `origin` to a request with this header; the client ends its side behind it if it `ends`.
fn response(web: SocketAddr, origin: SocketAddr, header: &str, ends: bool) -> Vec<u8> {
    let mut client = small_client(web);
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n{header}\r\n").unwrap();
    if ends {
        client.shutdown(Shutdown::Write).unwrap();
    }
    sleep(PAUSE);
    read_head(&mut client);
    let mut body = vec![0; BYTES];
    client.read_exact(&mut body).unwrap();
    body
}

#[test]
fn a_client_that_reads_late_gets_all_of_its_last_response() {
    let known = origin("HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n");
    let until_end = origin("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    let chains = [0, 1].map(|count| Chain::with(count, TCP, TCP));
    scope(|scope| {
        for chain in &chains {
            let web = chain.address("web");
            for (origin, header, ends) in
                [(known, "Connection: close\r\n", false), (known, "", true), (until_end, "", false)]
            {
                scope.spawn(move || assert!(response(web, origin, header, ends) == noise(BYTES, 1), "{header} {ends}"));
            }
        }
    });
}

#[test]
fn a_client_that_reads_late_gets_all_of_it_also_when_its_next_request_is_refused() {
    let origin = origin("HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n");
    let dead = closed_port();
    let node = Chain::with(0, TCP, "").entry;
    let web = node.address("web").unwrap();
    let unreachable = format!("GET http://{dead}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    scope(|scope| {
        for (next, status) in [("BAD\r\n\r\n", "400"), (&unreachable, "502")] {
            scope.spawn(move || {
                let mut client = small_client(web);
                write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n{next}").unwrap();
                sleep(PAUSE);
                read_head(&mut client);
                let mut body = vec![0; BYTES];
                client.read_exact(&mut body).unwrap();
                assert!(body == noise(BYTES, 1));
                let answer = read_head(&mut client);
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{next}: {answer}");
            });
        }
    });
}

#[test]
fn a_client_that_reads_late_gets_all_of_it_also_when_little_comes_through_a_tunnel_behind_it() {
    let origin = origin("HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n");
    let echo = echo();
    let node = Chain::with(0, TCP, "").entry;
    let mut client = small_client(node.address("web").unwrap());
    let connect = format!("CONNECT {echo} HTTP/1.1\r\nHost: x\r\n\r\nlittle");
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n{connect}").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    sleep(PAUSE);
    read_head(&mut client);
    let mut body = vec![0; BYTES];
    client.read_exact(&mut body).unwrap();
    assert!(body == noise(BYTES, 1));
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"little");
}

#[test]
fn a_client_that_says_all_before_it_reads_gets_an_early_answer() {
    const PIECES: usize = 40;
    let origin = server(|mut stream| {
        read_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 400000\r\n\r\n")
            .unwrap();
        stream.write_all(&noise(BYTES, 1)).unwrap();
        // A close with something unread would reset.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let node = Chain::with(0, TCP, "").entry;
    let mut client = small_client(node.address("web").unwrap());
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    let piece = noise(1 << 20, 3);
    let length = PIECES * piece.len();
    write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").unwrap();
    for _ in 0..PIECES {
        client.write_all(&piece).unwrap();
        // Longer, in all, than a client that was answered is waited for.
        sleep(Duration::from_millis(100));
    }
    assert!(read_head(&mut client).starts_with("HTTP/1.1 413 "));
    let mut body = vec![0; BYTES];
    client.read_exact(&mut body).unwrap();
    assert!(body == noise(BYTES, 1));
}

/// Waits until the node at the other end of `client` has read all that it was sent.
fn wait_until_read(client: &TcpStream) {
    let [ours, nodes] =
        [client.local_addr(), client.peer_addr()].map(|address| format!(":{:04X}", address.unwrap().port()));
    // Columns of /proc/net/tcp: the row's number, both addresses, the state, and what is queued to be sent and to be read.
    let all_read = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let queued = |from: &str, to: &str, part: usize| {
            let row = rows.clone().find(|row| row[1].ends_with(from) && row[2].ends_with(to));
            row.is_some_and(|row| row[4].split(':').nth(part) != Some("00000000"))
        };
        !queued(&ours, &nodes, 0) && !queued(&nodes, &ours, 1)
    };
    wait_until("all was read", all_read);
    sleep(Duration::from_millis(200));
}

#[test]
fn an_origin_that_reads_late_gets_all_of_a_request_that_it_has_answered() {
    let chains = [0, 1].map(|count| Chain::with(count, TCP, TCP));
    scope(|scope| {
        for chain in &chains {
            // The client leaves, or asks for what is refused.
            for next in ["", "BAD\r\n\r\n"] {
                scope.spawn(move || {
                    let socket = small();
                    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
                    socket.listen(16).unwrap();
                    let listener = TcpListener::from(socket);
                    let mut client = connect(chain.address("web"));
                    let origin = listener.local_addr().unwrap();
                    write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {BYTES}\r\n\r\n")
                        .unwrap();
                    client.write_all(&noise(BYTES, 2)).unwrap();
                    let mut server = accept(&listener);
                    read_head(&mut server);
                    // An answer before the node has sent all is one to a part, and resets.
                    wait_until_read(&client);
                    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
                    client.read_exact(&mut [0; 2]).unwrap();
                    client.write_all(next.as_bytes()).unwrap();
                    sleep(PAUSE);
                    drop(client);
                    let mut body = vec![0; BYTES];
                    server.read_exact(&mut body).unwrap();
                    assert!(body == noise(BYTES, 2));
                });
            }
        }
    });
}

/// It says nothing more of streams that both their ends have ended: such a node, in a chain, must keep no client out.
#[test]
fn a_peer_that_never_says_delivered_keeps_no_client_out() {
    let (listener, address) = listener();
    let entry = node(&format!(
        "[limits]\nclient_connections = 20\n\
         [listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"p\"]\n\
         [peer.p]\naddress = \"{address}\"\nplain_key_file = \"key\"\n"
    ));
    let mut streams: Vec<_> = (0..20).map(|_| stream_that_both_end(&entry, &listener)).collect();
    wait_until("16 places are free", || entry.connections() == 4);
    streams.extend((0..16).map(|_| stream_that_both_end(&entry, &listener)));
    assert_eq!(entry.connections(), 20);
    wait_until("the client may connect again", || entry.connections() == 0);
    // Those of the places are waited for.
    assert_eq!(entry.busy(), 16);
    let (mut client, peer) = stream_that_both_end(&entry, &listener);
    assert!(ends_cleanly(&mut client));
    // Those that were left got their END, and then a FIN.
    let ended = |peer: &mut TcpStream| {
        peer.set_nonblocking(false).unwrap();
        assert_eq!(frame(peer).0, FrameKind::End);
        peer.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        matches!(peer.read(&mut [0]), Ok(0))
    };
    let left = streams.iter_mut().filter_map(|(_, peer)| ended(peer).then_some(())).count();
    assert_eq!(left, 20);
    drop(peer);
}
