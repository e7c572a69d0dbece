//! Keeps connections to peers warm before a stream wants them: makes as many as a peer's `warm` says, and makes new ones
//! for those that are taken or have died.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::interval;

use crate::config::Peer;
use crate::peer;
use crate::shared::Node;

/// How often it is checked whether the connections live.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the node stops.
pub async fn keep(node: Arc<Node>) {
    let mut checks = interval(CHECK_INTERVAL);
    loop {
        for (name, peer) in node.pool.missing() {
            tokio::spawn(make(node.clone(), name, peer));
        }
        tokio::select! {
            _ = checks.tick() => node.pool.look(),
            () = node.pool.wanted() => {}
            () = node.stopping() => return,
        }
    }
}

/// Bounded in time by `limits.connect`, `limits.handshake` and the proof of full segments.
async fn make(node: Arc<Node>, name: String, peer: Peer) {
    let made = peer::connect_ahead(&node, &name, &peer).await;
    node.pool.made(&name, &peer, made);
}
