//! SOCKS and HTTP on one port: a client's first byte tells which it speaks.

use ekiden_relay_proto::mixup::{Guess, Spoken, guess};
use ekiden_transport::Connection;
use tokio::time::timeout;

use super::begun::Begun;
use super::caller::Caller;
use super::socks::Version;
use crate::access::quota::ClientKey;
use crate::shared::Node;

/// What a client speaks.
pub(super) enum Protocol {
    Socks(Version),
    /// Also what is neither: HTTP has an answer to that.
    Http,
}

/// What `client` speaks. `None` if it has said nothing, and left, taken too long or given way to others.
pub(super) async fn protocol(node: &Node, client: &Connection, caller: Caller) -> Option<Protocol> {
    let mut begun = Begun::new(node, ClientKey::from(caller.address().ip()));
    let first =
        timeout(node.config().limits.handshake, begun.wait(client, 0, client.peek_first())).await.ok()??.ok()?;
    Some(match guess(&[first]) {
        Guess::Speaks(Spoken::Socks4) => Protocol::Socks(Version::Four),
        Guess::Speaks(Spoken::Socks5) => Protocol::Socks(Version::Five),
        _ => Protocol::Http,
    })
}
