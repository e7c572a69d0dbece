//! SOCKS and HTTP on one port: a client's first byte tells which it speaks.

use ekiden_relay_proto::mixup::{Guess, Spoken, guess};
use ekiden_transport::Connection;
use tokio::time::timeout;

use super::secure::first_byte;
use super::socks::Version;
use crate::shared::Node;

/// The version of SOCKS that `client` speaks, or `Some(None)` if it speaks something else: then it is answered as by HTTP. `None` if it has
/// said nothing, and left or taken too long.
pub(super) async fn socks_version(node: &Node, client: &Connection) -> Option<Option<Version>> {
    let first = timeout(node.config().limits.handshake, first_byte(client)).await.ok()?.ok()?;
    Some(match guess(&[first]) {
        Guess::Speaks(Spoken::Socks4) => Some(Version::Four),
        Guess::Speaks(Spoken::Socks5) => Some(Version::Five),
        _ => None,
    })
}
