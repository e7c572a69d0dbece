//! Keeps the legs shared between service classes, and the limits in bit/s among the connections of clients and users.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep;

use crate::access::bandwidth::TICK;
use crate::shared::Node;

/// Runs until the node stops.
pub async fn keep(node: Arc<Node>) {
    let sharing = async {
        loop {
            match node.overlay.share() {
                Some(pause) => sleep(pause).await,
                None => node.overlay.is_shared().await,
            }
        }
    };
    tokio::select! {
        () = sharing => {}
        () = node.stopping() => {}
    }
}

/// Runs as long as the node does: streams that it lets end have limits too.
pub async fn keep_bandwidth(node: Arc<Node>) {
    loop {
        node.bandwidth.begun().await;
        let before = Instant::now();
        sleep(TICK).await;
        node.bandwidth.share((&node.config().limits).into(), before.elapsed());
    }
}
