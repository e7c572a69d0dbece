//! SOCKS and HTTP on one port: a client's first byte tells which it speaks.

use std::io;

use ekiden_net::socket;
use ekiden_relay_proto::mixup::{Guess, Spoken, guess};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::socks::Version;
use crate::shared::Node;

/// What a client speaks.
pub(super) enum Protocol {
    Socks(Version),
    /// Also what is neither: HTTP has an answer to that.
    Http,
}

/// What `client` speaks. `None` if it has said nothing, and left or taken too long.
pub(super) async fn protocol(node: &Node, client: &TcpStream) -> Option<Protocol> {
    let first = timeout(node.config().limits.handshake, first_byte(client)).await.ok()?.ok()?;
    Some(match guess(&[first]) {
        Guess::Speaks(Spoken::Socks4) => Protocol::Socks(Version::Four),
        Guess::Speaks(Spoken::Socks5) => Protocol::Socks(Version::Five),
        _ => Protocol::Http,
    })
}

/// The next byte, which stays in the socket.
async fn first_byte(client: &TcpStream) -> io::Result<u8> {
    let mut first = [0];
    loop {
        client.readable().await?;
        match client.try_io(Interest::READABLE, || socket::peek(client, &mut first)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(first[0]),
            Err(error) if ekiden_transport::is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
}
