//! A fixed forward: every connection goes to one destination.

use std::pin::pin;
use std::sync::Arc;

use ekiden_relay_proto::proxy_protocol;
use ekiden_transport::Connection;
use tokio::net::TcpStream;

use super::Stream;
use super::caller::Caller;
use super::departure::{ClientEof, unless_client_leaves};
use super::failed::Asked;
use crate::config::{Listener, ListenerKind, Reply};
use crate::peer::Early;
use crate::reach::{Destination, reach, reach_in_turn};
use crate::shared::Node;

pub(super) async fn prepare(
    node: &Arc<Node>,
    listener: &Listener,
    client: TcpStream,
    caller: Caller,
) -> Option<Stream> {
    let ListenerKind::Forward { to, via, proxy_protocol } = &listener.kind else { return None };
    let busy = node.begin();
    let header = match proxy_protocol {
        // An error means that the client is gone already.
        Some(version) => proxy_protocol::write(*version, &caller.addresses(&client).ok()?),
        None => Vec::new(),
    };
    let client = Connection::from(client);
    let early = match listener.reply {
        Reply::Early if header.is_empty() => Early::Host(&client),
        Reply::Early => Early::Introduced(&header, &client),
        Reply::Connected => Early::Nothing,
    };
    let asked = Box::new(Asked::new(caller.address(), "forward", to));
    let destination = Destination::configured(to).asked_by(caller.asker()).of_class(listener.class.as_deref());
    let reaching = async {
        match via {
            // Boxed, as in `reach`.
            Some(chain) => Box::pin(reach_in_turn(node, chain, destination, early)).await,
            None => reach(node, destination, early).await,
        }
    };
    let reached = unless_client_leaves(&client, ClientEof::HalfClose, pin!(reaching)).await;
    match reached {
        Ok(upstream) if upstream.took_early => Some(Stream::new(busy, client, upstream, Vec::new(), asked)),
        Ok(upstream) => Some(Stream::new(busy, client, upstream, header, asked)),
        Err(failure) => {
            // The client has no protocol to be told in; dropping its connection resets it.
            asked.log_failure(node, &failure);
            None
        }
    }
}
