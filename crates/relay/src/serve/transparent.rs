//! A connection that was on its way through this machine: its own address here is its destination.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::{Stream, reach_for};
use crate::node::Node;
use crate::segment::Early;

pub(super) async fn prepare(node: &Arc<Node>, client: TcpStream) -> Option<Stream> {
    // An error means that the client is gone already.
    let (to, from) = (client.local_addr().ok()?, client.peer_addr().ok()?);
    if to.ip().is_loopback() {
        // Nothing on its way through is for loopback, where the listener itself is.
        tracing::info!("{from} connected to a transparent listener's own address, {to}, and is refused");
        return None;
    }
    let busy = node.begin();
    match reach_for(node, &to.into(), Some(from), Early::Host(&client)).await {
        Ok(upstream) => {
            let mut stream = Stream::new(busy, client, upstream, Vec::new());
            stream.client.foreign = true;
            Some(stream)
        }
        Err(failure) => {
            // The client has no protocol to be told in; dropping its connection resets it.
            tracing::info!("{from} to {to}: {failure}");
            None
        }
    }
}
