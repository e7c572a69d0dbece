//! A fixed forward: every connection goes to one destination.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::{Destination, Stream, reach, reach_via};
use crate::config::{Accept, Listener, ListenerKind};
use crate::connection::Connection;
use crate::node::Node;
use crate::segment::Early;

pub(super) async fn prepare(node: &Arc<Node>, listener: &Listener, client: TcpStream) -> Option<Stream> {
    let ListenerKind::Forward { to, via } = &listener.kind else { return None };
    let busy = node.begin();
    let client = Connection::from(client);
    let early = match listener.accept {
        Accept::Early => Early::Host(&client),
        Accept::True => Early::Nothing,
    };
    let reached = match via {
        Some(chain) => reach_via(node, chain, Destination::configured(to), early).await,
        None => reach(node, Destination::configured(to), early).await,
    };
    match reached {
        Ok(upstream) => Some(Stream::new(busy, client, upstream, Vec::new())),
        Err(failure) => {
            // The client has no protocol to be told in; dropping its connection resets it.
            tracing::info!("forward to {to}: {failure}");
            None
        }
    }
}
