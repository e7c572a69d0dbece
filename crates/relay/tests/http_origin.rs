//! What becomes of an origin's connection, and of a client's, when the other one is done.

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;

use common::*;

/// An origin that says the same to every request and closes.
fn closing_origin() -> SocketAddr {
    server(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
    })
}

#[test]
fn an_origin_that_closes_after_each_response_leaves_the_segment_warm() {
    let chain = Chain::new(1);
    let origin = closing_origin();
    let mut client = connect(chain.address("web"));
    for _ in 0..5 {
        write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        read_head(&mut client);
        let mut body = [0; 2];
        client.read_exact(&mut body).unwrap();
        wait_until("the stream is over", || chain.nodes[0].busy() == 0);
        // The node said so a moment before the entry hears it.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(chain.nodes[0].connections(), 1);
    }
}
