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
        let files = node.config().followed();
        // A long one takes a while, and a file system may not answer at all: streams go on meanwhile.
        if !files.is_empty() && spawn_blocking(move || refresh(&files)).await.is_ok_and(|is_new| is_new) {
            node.files_changed();
        }
    }
}

/// Whether any of the files says something new.
fn refresh(files: &[Arc<dyn Follow>]) -> bool {
    files.iter().filter(|file| file.has_changed() && file.refresh()).count() > 0
}
