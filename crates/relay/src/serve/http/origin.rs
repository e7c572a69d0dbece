//! Connections to origins between two requests, and what becomes of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ekiden_relay_proto::Target;
use ekiden_relay_proto::leg::{FrameKind, Header};
use ekiden_stream::closing::Afterwards;
use tokio::time::timeout;

use crate::reach::{Free, Upstream};
use crate::serve::http::body::Reader;
use crate::serve::timeouts::LINGER;
use crate::shared::Node;
use crate::stream::{BetweenStreams, Expiry, Side, expiry};

/// A directly connected origin whose requests are over is left to the kernel when it has taken nothing for this time.
const LATE_HOST: Duration = Duration::from_secs(60);

/// A connection to an origin that may serve another request.
pub struct Origin {
    pub target: Target,
    pub upstream: Upstream,
    pub reader: Reader,
    /// The number of the configuration that was in force before it was reached.
    pub generation: u64,
}

impl Origin {
    /// Whether it can serve another request: its connection is open, it has sent nothing unasked, and the configuration is the
    /// one by which it was reached.
    pub fn is_fresh(&self, node: &Node) -> bool {
        self.generation == node.generation() && self.reader.is_quiet() && self.upstream.side.stream.is_quiet()
    }
}

/// Gives up an origin between two requests. It may not have taken all of the requests that it has answered, and may have
/// sent unasked data; the rest of the requests is delivered nevertheless. Draining waits for that.
pub fn finish(node: &Arc<Node>, origin: Option<Origin>) {
    let Some(Origin { upstream, reader, .. }) = origin else { return };
    match upstream.side.is_node() {
        true => finish_leg(node, upstream, reader),
        false => finish_host(node, upstream.side),
    }
}

/// A node gets END, and the connection serves the next stream once the node has delivered all.
fn finish_leg(node: &Arc<Node>, upstream: Upstream, mut reader: Reader) {
    let (busy, node) = (node.begin(), node.clone());
    tokio::spawn(async move {
        let end = Header { kind: FrameKind::End, length: 0 }.encode();
        if upstream.side.stream.send_all(&end).await.is_err() {
            return;
        }
        let Upstream { side, peer, .. } = upstream;
        let stream = BetweenStreams::new(side.stream);
        let mut expiry = Expiry::new(&node.config().limits);
        let is_delivered = async {
            let mut told = pin!(reader.delivered(&stream));
            if let Ok(told) = timeout(LINGER, &mut told).await {
                return told.is_ok();
            }
            // The origin is still reading, or does not end. Its client may be gone, so that no client's limit counts the
            // connection. The node has a limit for these.
            let Ok(_late) = node.late.over_legs.try_acquire() else { return false };
            tokio::select! {
                told = told => told.is_ok(),
                () = expiry::passed(&mut expiry, &*stream) => false,
            }
        };
        if is_delivered.await {
            Free { node: node.clone(), peer, made: None }.rest(stream.into_inner());
        }
        drop(busy);
    });
}

/// The kernel delivers the rest to a host. But if the socket is closed with unread data, or data that nobody asked for comes
/// later, the kernel resets the connection.
fn finish_host(node: &Arc<Node>, side: Side) {
    let side = match side.has_unread() {
        true => side,
        false => match side.end_if_sent() {
            Ok(()) => return,
            Err(side) => side,
        },
    };
    let (busy, node) = (node.begin(), node.clone());
    tokio::spawn(async move {
        match node.late.direct.try_acquire() {
            Ok(_late) => {
                let limits = &node.config().limits;
                let idle = limits.idle.map_or(LATE_HOST, |idle| idle.min(LATE_HOST));
                let lifetime = limits.lifetime;
                side.deliver(&mut Expiry::new(expiry::Limits { idle: Some(idle), lifetime })).await;
            }
            Err(_) => side.stream.leave_to_kernel(),
        }
        drop(busy);
    });
}
