//! A host that has no room for long gets all that it was sent: a client its response, an origin its request, also when the
//! other side has ended or gone meanwhile.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{scope, sleep};
use std::time::Duration;

use common::*;
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
fn an_origin_that_reads_late_gets_all_of_a_request_that_it_has_answered() {
    let chains = [0, 1].map(|count| Chain::with(count, TCP, TCP));
    scope(|scope| {
        for chain in &chains {
            scope.spawn(|| {
                let socket = small();
                socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
                socket.listen(16).unwrap();
                let listener = TcpListener::from(socket);
                let mut client = connect(chain.address("web"));
                let origin = listener.local_addr().unwrap();
                write!(client, "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {BYTES}\r\n\r\n").unwrap();
                client.write_all(&noise(BYTES, 2)).unwrap();
                let mut server = accept(&listener);
                read_head(&mut server);
                server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
                server.shutdown(Shutdown::Write).unwrap();
                assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
                client.read_exact(&mut [0; 2]).unwrap();
                drop(client);
                sleep(PAUSE);
                let mut body = Vec::new();
                server.read_to_end(&mut body).unwrap();
                assert!(body == noise(BYTES, 2), "{} bytes", body.len());
            });
        }
    });
}
