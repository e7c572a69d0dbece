//! Looks at this node's legs, and asks other nodes about theirs while streams want paths over them.

use std::io;
use std::mem::replace;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ekiden_service::ask_socket::{self, AskSocket};
use ekiden_service::status_socket;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::overlay::{Doubts, Questions, socket_name};
use crate::peer;
use crate::shared::Node;

/// How often legs are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The interval between urgent questions to exits. Streams that need an urgent question meanwhile are gathered into the next
/// one: an exit answers a node 20 times a second, and there is one question for each node from which streams come to it.
const GATHERED: Duration = Duration::from_millis(250);

/// Runs until the node stops. Questions for the status are answered as soon as this has returned.
pub fn keep(node: Arc<Node>) -> impl Future<Output = ()> {
    let mut first = node.config().overlay.is_some().then(|| listen(&node));
    async move {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut answering: Option<JoinHandle<()>> = None;
        let mut is_told = false;
        let mut asked = Asked::default();
        let mut last_doubts = Instant::now();
        let mut doubts_at = None;
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = node.overlay.is_doubted(), if doubts_at.is_none() => {
                    doubts_at = Some(last_doubts + GATHERED);
                    continue;
                }
                () = sleep_until(doubts_at.unwrap_or(last_doubts)), if doubts_at.is_some() => {
                    (last_doubts, doubts_at) = (Instant::now(), None);
                    ask_doubts(&node);
                    continue;
                }
                () = node.stopping() => {
                    // The name is for the process that comes after this one.
                    answering.inspect(JoinHandle::abort);
                    return;
                }
            }
            node.overlay.forget_exits();
            node.overlay.still().iter().for_each(|still| node.stands_still(still));
            let config = node.config();
            asked.follow(&node, config.overlay.as_ref().and_then(|overlay| overlay.ask_socket.as_deref()));
            if config.overlay.is_none() {
                continue;
            }
            if answering.is_none() {
                match first.take().unwrap_or_else(|| listen(&node)).and_then(UnixListener::from_std) {
                    Ok(listener) => answering = Some(tokio::spawn(answer(node.clone(), listener))),
                    // The name may be free later: perhaps this node's process from before a restart still has it.
                    Err(error) if !replace(&mut is_told, true) => {
                        let name = socket_name(&config.name);
                        tracing::warn!(
                            "`ekiden overlay` cannot ask this node yet: it waits for the socket '{name}': {error}"
                        );
                    }
                    Err(_) => {}
                }
            }
            node.overlay.look(&config, node.load());
            ask_doubts(&node);
            let Questions { to, wanted } = node.overlay.questions();
            let wanted: Arc<[String]> = wanted.into();
            for name in to {
                tokio::spawn(ask(node.clone(), name, wanted.clone()));
            }
        }
    }
}

/// The socket file on which other programs ask.
#[derive(Default)]
struct Asked {
    /// What the configuration says, as far as it was tried.
    path: Option<PathBuf>,
    /// The number of the configuration that was.
    generation: u64,
    answering: Option<(AskSocket, JoinHandle<()>)>,
}

impl Asked {
    /// Listens where the configuration says.
    fn follow(&mut self, node: &Arc<Node>, path: Option<&Path>) {
        let is_served = self.answering.as_ref().is_some_and(|(socket, _)| socket.is_there());
        let before = replace(&mut self.generation, node.generation());
        // What could not be done is tried again with each configuration.
        if self.path.as_deref() == path && (is_served || before == self.generation) {
            return;
        }
        self.close();
        self.path = path.map(Path::to_owned);
        let Some(path) = path else { return };
        let listening =
            ask_socket::listen(path).and_then(|(socket, listener)| Ok((socket, UnixListener::from_std(listener)?)));
        match listening {
            Ok((socket, listener)) => {
                let (of, at) = (node.clone(), node.clone());
                let answer = move |line: &[u8]| of.overlay.answer(&of.config(), line);
                let failed = move |error| at.lines.warn("ask", "overlay", format_args!("ask_socket: {error}"));
                let task = tokio::spawn(ask_socket::answer_all(listener, answer, failed));
                self.answering = Some((socket, task));
            }
            Err(error) => tracing::warn!("ask_socket: programs cannot ask this node at {}: {error}", path.display()),
        }
    }

    fn close(&mut self) {
        if let Some((socket, task)) = self.answering.take() {
            task.abort();
            drop(socket);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.close();
    }
}

/// Bounded in time by `limits.connect` and `limits.handshake`.
async fn ask(node: Arc<Node>, name: String, wanted: Arc<[String]>) {
    match peer::ask::ask(&node, &name, &wanted).await {
        Ok(told) => {
            if let Err(error) = node.overlay.hear(&node.config(), &name, &told) {
                // The text may contain what the other node has sent.
                let why: String = error.to_string().chars().take(200).collect();
                node.lines.warn("told", &name, format_args!("node {name} is not believed: {why}"));
            }
        }
        Err(failure) => tracing::debug!("node {name} was not asked: {failure}"),
    }
}

fn ask_doubts(node: &Arc<Node>) {
    for doubts in node.overlay.doubts() {
        tokio::spawn(ask_receipts(node.clone(), doubts));
    }
}

/// Asks an exit what it has of streams. Bounded as [`ask`].
async fn ask_receipts(node: Arc<Node>, doubts: Doubts) {
    let said = peer::ask::ask_receipts(&node, &doubts.exit, &doubts.question()).await;
    let said = said.map_err(|failure| tracing::debug!("node {} was not asked of streams: {failure}", doubts.exit));
    node.overlay.receipts(doubts, said);
}

fn listen(node: &Node) -> io::Result<StdListener> {
    status_socket::listen(&socket_name(&node.config().name))
}

/// Answers this host's users who ask for what is known, until the node ends.
async fn answer(node: Arc<Node>, listener: UnixListener) {
    let status = || serde_json::to_vec(&node.overlay.status(&node.config())).unwrap_or_default();
    let refused = |why: String| node.lines.info("status", "overlay", format_args!("{why}"));
    status_socket::answer_all(listener, status, refused).await;
}
