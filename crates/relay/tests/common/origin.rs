//! An HTTP origin, and a client of a proxy that asks it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;

use super::*;

/// A server that answers every request, and how many connections it has had.
pub fn origin() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let address = server(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        let mut head = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|n| n == 1) {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            }
        }
    });
    (address, count)
}

/// The status of one request on a connection that may go on.
pub fn get(stream: &mut TcpStream, server: SocketAddr, login: &str) -> u16 {
    let credentials = base64::engine::general_purpose::STANDARD.encode(login);
    let head = format!("GET http://{server}/ HTTP/1.1\r\nHost: {server}\r\nProxy-Authorization: Basic {credentials}");
    write!(stream, "{head}\r\n\r\n").unwrap();
    let head = read_head(stream);
    if head.contains("\r\nContent-Length: 2\r\n") {
        stream.read_exact(&mut [0; 2]).unwrap();
    }
    head[9..12].parse().unwrap()
}
