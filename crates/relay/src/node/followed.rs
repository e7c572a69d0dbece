//! Reads files of users and destinations again when they have changed.

use std::sync::Arc;

use ekiden_service::followed::{CHECK_INTERVAL, Follow};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::shared::Node;

/// Runs as long as the node, also while it stops: those who are connected go on to ask.
pub async fn keep(node: Arc<Node>) {
    loop {
        sleep(CHECK_INTERVAL).await;
        let mut changed = node.config().followed();
        changed.retain(|file| file.has_changed());
        // A long one takes a while: streams go on meanwhile.
        if !changed.is_empty() && spawn_blocking(move || refresh(&changed)).await.is_ok_and(|is_new| is_new) {
            node.files_changed();
        }
    }
}

/// Whether any of the files says something new.
fn refresh(files: &[Arc<dyn Follow>]) -> bool {
    files.iter().filter(|file| file.refresh()).count() > 0
}
