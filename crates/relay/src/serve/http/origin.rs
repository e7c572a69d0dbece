//! Connections to origins between two requests, and what becomes of them.

use std::pin::pin;
use std::sync::Arc;

use ekiden_relay_proto::Target;
use ekiden_relay_proto::leg::{Header, Kind};
use tokio::time::timeout;

use crate::peer::delivered;
use crate::reach::Upstream;
use crate::serve::http::body::Reader;
use crate::serve::timeouts::LINGER;
use crate::shared::Node;
use crate::stream::between_streams::BetweenStreams;
use crate::stream::duplex::Side;
use crate::stream::expiry::{self, Expiry};

/// A connection to an origin that may serve another request.
pub struct Origin {
    pub target: Target,
    pub upstream: Upstream,
    pub reader: Reader,
    /// The configuration that allowed it, or one before.
    pub generation: u64,
}

impl Origin {
    /// Whether it is still there and has said nothing unasked, and the rules are those by which it was reached.
    pub fn is_fresh(&self, node: &Node) -> bool {
        self.generation == node.generation() && self.reader.is_quiet() && self.upstream.side.stream.is_quiet()
    }
}

/// Lets go of an origin between two requests. What it has yet to take of a request that it has answered is left to the kernel. A
/// node is told the end, and the connection serves the next stream once the node has delivered all. Draining waits for that.
pub fn finish(node: &Arc<Node>, origin: Option<Origin>) {
    let Some(Origin { upstream, reader, .. }) = origin else { return };
    if !upstream.side.is_node() {
        return upstream.side.stream.leave_to_kernel();
    }
    // What was said unasked resets it.
    if !reader.is_quiet() {
        return;
    }
    let (busy, node) = (node.begin(), node.clone());
    tokio::spawn(async move {
        let end = Header { kind: Kind::End, length: 0 }.encode();
        if upstream.side.stream.send_all(&end).await.is_err() {
            return;
        }
        let Upstream { side, peer, bound } = upstream;
        let stream = BetweenStreams::new(side.stream);
        let mut expiry = Expiry::new(&node.config().limits);
        let is_delivered = async {
            let mut told = pin!(delivered(&stream, reader.has_ended()));
            if let Ok(told) = timeout(LINGER, &mut told).await {
                return told.is_ok();
            }
            // The origin reads late, or goes on speaking. The client may be gone: nobody counts for these but the node.
            let Ok(_late) = node.late_origins.try_acquire() else { return false };
            tokio::select! {
                told = told => told.is_ok(),
                () = expiry::passed(&mut expiry, stream.socket()) => false,
            }
        };
        if is_delivered.await {
            Upstream { side: Side::node(stream.into_inner()), peer, bound }.rest(&node);
        }
        drop(busy);
    });
}
