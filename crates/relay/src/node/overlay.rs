//! Looks at this node's legs, and asks other nodes about theirs while streams want paths over them.

use std::sync::Arc;
use std::time::Duration;

use ekiden_net::status_socket;
use tokio::net::UnixListener;
use tokio::time::{MissedTickBehavior, interval};

use crate::overlay::{Questions, socket_name};
use crate::peer;
use crate::shared::Node;

/// How often legs are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the node stops.
pub async fn keep(node: Arc<Node>) {
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answering = None;
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = node.stopping() => return,
        }
        let config = node.config();
        if config.overlay.is_none() {
            continue;
        }
        if answering.is_none() {
            answering = Some(tokio::spawn(answer(node.clone())));
        }
        node.overlay.look(&config, node.load());
        let Questions { to, wanted } = node.overlay.questions();
        let wanted: Arc<[String]> = wanted.into();
        for name in to {
            tokio::spawn(ask(node.clone(), name, wanted.clone()));
        }
    }
}

/// Bounded in time by `limits.connect` and `limits.handshake`.
async fn ask(node: Arc<Node>, name: String, wanted: Arc<[String]>) {
    match peer::ask::ask(&node, &name, &wanted).await {
        Ok(told) => {
            if let Err(error) = node.overlay.hear(&node.config(), &name, &told) {
                node.lines.warn("told", &name, format_args!("node {name} is not believed: {error}"));
            }
        }
        Err(failure) => tracing::debug!("node {name} was not asked: {failure}"),
    }
}

/// Answers this host's users who ask for what is known, until the node ends.
async fn answer(node: Arc<Node>) {
    let name = socket_name(&node.config().name);
    let listening = status_socket::listen(&name).and_then(UnixListener::from_std);
    match listening {
        Ok(listener) => {
            let status = || serde_json::to_vec(&node.overlay.status(&node.config())).unwrap_or_default();
            let refused = |why: String| node.lines.info("status", "overlay", format_args!("{why}"));
            status_socket::answer_all(listener, status, refused).await;
        }
        Err(error) => {
            tracing::warn!("`ekiden overlay` cannot ask this node: the socket '{name}' is not to be had: {error}")
        }
    }
}
