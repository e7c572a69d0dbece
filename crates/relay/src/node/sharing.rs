//! Keeps the legs shared between service classes.

use std::sync::Arc;

use tokio::time::sleep;

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
