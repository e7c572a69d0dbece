//! A node's peer that is the test itself, on plain legs.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use ekiden_relay::Relay;
use ekiden_relay_proto::leg::{Acceptor, Dialler, FrameKind, HEADER_BYTES, Header, Open, Opened, SharedSecret};

use super::{accept, connect};

/// The next frame, but for what a node says of itself.
pub fn frame(stream: &mut TcpStream) -> (FrameKind, Vec<u8>) {
    loop {
        match any_frame(stream) {
            (FrameKind::About, _) => {}
            other => return other,
        }
    }
}

/// The next frame.
pub fn any_frame(stream: &mut TcpStream) -> (FrameKind, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = Header::decode(header).unwrap();
    let mut body = vec![0; header.length as usize];
    stream.read_exact(&mut body).unwrap();
    (header.kind, body)
}

/// Connects to a node's plain leg listener and opens a stream to `target`.
pub fn open_at(node: SocketAddr, target: SocketAddr) -> TcpStream {
    let mut stream = greet(connect(node));
    ask_for(&mut stream, target);
    stream
}

/// Proves the key on a connection to a node's plain leg listener.
pub fn greet(mut stream: TcpStream) -> TcpStream {
    let dialler = Dialler::new(SharedSecret([0xaa; 32]), "test", [8; 32]);
    stream.write_all(&dialler.hello()).unwrap();
    let hello = frame(&mut stream).1;
    stream.write_all(&dialler.auth(&hello).unwrap()).unwrap();
    stream
}

/// Opens another stream on the connection.
pub fn ask_for(stream: &mut TcpStream, target: SocketAddr) {
    assert_eq!(ask(stream, target).0, FrameKind::Opened);
}

/// Asks for another stream on the connection, and returns the answer.
pub fn ask(stream: &mut TcpStream, target: SocketAddr) -> (FrameKind, Vec<u8>) {
    let open = Open {
        chain: Vec::new(),
        class: String::new(),
        target: target.into(),
        client: None,
        id: None,
        passed: Vec::new(),
    };
    stream.write_all(&open.encode()).unwrap();
    frame(stream)
}

/// Says a frame without a body.
pub fn say(mut stream: &TcpStream, kind: FrameKind) {
    stream.write_all(&Header { kind, length: 0 }.encode()).unwrap();
}

/// Accepts a node, which proves its key before it has anything to ask.
pub fn accept_node(listener: &TcpListener) -> TcpStream {
    let mut stream = accept(listener);
    let mut acceptor = Acceptor::new(SharedSecret([0xaa; 32]), [7; 32]);
    let hello = frame(&mut stream).1;
    stream.write_all(&acceptor.hello(&hello).unwrap()).unwrap();
    let auth = frame(&mut stream).1;
    acceptor.authenticate(&auth).unwrap();
    assert_eq!(any_frame(&mut stream).0, FrameKind::About);
    stream
}

/// A stream over a peer, of which both ends have been said, and DELIVERED not: the client's end of it, and the peer's.
pub fn stream_that_both_end(entry: &Relay, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = connect(entry.address("fwd").unwrap());
    let mut peer = accept_node(listener);
    assert_eq!(frame(&mut peer).0, FrameKind::Open);
    peer.write_all(&Opened::at(None).encode()).unwrap();
    say(&peer, FrameKind::End);
    client.shutdown(Shutdown::Write).unwrap();
    (client, peer)
}
