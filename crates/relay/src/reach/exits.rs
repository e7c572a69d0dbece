//! Reaches a destination over the overlay: by the node nearest to it, and by the next one where that cannot be reached or says nothing.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_overlay::places::TRIED;
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::first_of;
use tokio::time::{sleep, sleep_until};

use super::auto::{BESIDE, Sent, is_of_a_node, reach_at};
use super::{Destination, Upstream};
use crate::config::route::Auto;
use crate::peer::Early;
use crate::shared::Node;

/// Reaches a destination by the first of the nodes near it that leads there.
pub async fn reach(node: &Node, auto: &Auto, to: Destination<'_>, early: Early<'_>) -> Result<Upstream, Failure> {
    let config = node.config();
    let mut exits = match &config.overlay {
        Some(overlay) => {
            let exits = overlay.exits(auto, to.target);
            exits.map_err(|why| Failure::new(FailureCode::NodeUnreachable, format_args!("{why}")))?
        }
        None => Vec::new(),
    };
    // The nearest decides whether the route lets the stream go. The others stand in for it.
    let may_stand_in = |exit: &&str| config.overlay.as_ref().is_some_and(|overlay| overlay.may_be_exit(exit, auto));
    let mut behind = exits.split_off(exits.len().min(1));
    behind.retain(may_stand_in);
    exits.extend(behind);
    if exits.len() < 2 {
        return reach_at(node, auto, exits.first().copied(), to, early, None).await;
    }
    let destination = to.target.to_string();
    node.overlay.sort_exits(&mut exits, &destination);
    exits.reverse();
    let pause = config.limits.connect / TRIED as u32;
    let (tried, said, until) = Default::default();
    Exits { node, auto, to, destination, early: Some(early), pause, rest: exits, tried, said, until }.run().await
}

/// The nodes near a destination, tried one after the other, and beside each other where one says nothing.
struct Exits<'a> {
    node: &'a Node,
    auto: &'a Auto,
    to: Destination<'a>,
    destination: String,
    early: Option<Early<'a>>,
    /// How long one has for its answer, until the next one is tried beside it.
    pause: Duration,
    /// Those that are still to be tried, the last first.
    rest: Vec<&'a str>,
    tried: Vec<Attempt<'a>>,
    /// What is said if none leads there ...
    said: Option<Failure>,
    /// ... and when.
    until: Option<Instant>,
}

/// An exit that is tried.
struct Attempt<'a> {
    exit: &'a str,
    /// Whether the others stand in for it.
    is_first: bool,
    sent: Arc<Sent>,
    reached: Pin<Box<dyn Future<Output = Result<Upstream, Failure>> + Send + 'a>>,
}

impl<'a> Exits<'a> {
    /// Until one has led there, the first has refused, or all have failed.
    async fn run(mut self) -> Result<Upstream, Failure> {
        self.begin(true);
        while let Some(last) = self.tried.last() {
            let (sent, until, pause) = (last.sent.clone(), self.until, self.pause);
            let has_next = !self.rest.is_empty() && self.tried.len() < BESIDE;
            let (attempt, reached) = tokio::select! {
                biased;
                answered = answer(&mut self.tried) => answered,
                () = passed(until) => break,
                () = says_nothing(&sent, pause), if has_next => {
                    self.begin(false);
                    continue;
                }
            };
            let failure = match reached {
                Ok(reached) => {
                    self.has_answered(attempt.exit);
                    return Ok(reached);
                }
                Err(failure) => failure,
            };
            if is_unreachable(self.node, attempt.exit, &failure) {
                self.log_next(attempt.exit, &failure);
                self.node.overlay.exit_lost(attempt.exit);
                self.said.get_or_insert(failure);
                self.begin(false);
                continue;
            }
            let is_word = |said: &Failure| said.code != FailureCode::TimedOut && !is_of_a_node(said);
            if is_word(&failure) {
                self.has_answered(attempt.exit);
            }
            if attempt.is_first && failure.code != FailureCode::TimedOut {
                return Err(failure);
            }
            // It is the destination that is silent, or refuses, unless one of the others says something else soon.
            if is_word(&failure) || !self.said.as_ref().is_some_and(is_word) {
                self.said = Some(failure);
            }
            self.until.get_or_insert(Instant::now() + self.pause);
        }
        let nothing = || Failure::new(FailureCode::NodeUnreachable, "no node near the destination leads there");
        Err(self.said.unwrap_or_else(nothing))
    }

    /// Begins to try the next one, if any is left. One that is the only one has all early payload, the others what may arrive twice.
    fn begin(&mut self, is_first: bool) {
        let Some(exit) = self.rest.pop() else { return };
        let is_only = self.rest.is_empty() && self.tried.is_empty();
        let early = match &self.early {
            _ if is_only => self.early.take().unwrap_or(Early::Nothing),
            Some(Early::Repeatable(bytes)) => Early::Repeatable(bytes),
            _ => Early::Nothing,
        };
        let (node, auto, to, sent) = (self.node, self.auto, self.to, Arc::new(Sent::new()));
        let at = sent.clone();
        let reached = Box::pin(async move {
            let beside = (!is_only).then_some(&*at);
            reach_at(node, auto, Some(exit), to, early, beside).await
        });
        self.tried.push(Attempt { exit, is_first, sent, reached });
    }

    /// An exit has led there, or has said why not. Others that had their time and said nothing come last for a while.
    fn has_answered(&self, exit: &str) {
        let (overlay, to) = (&self.node.overlay, &self.destination);
        overlay.exit_answered(exit, to);
        for other in &self.tried {
            let Some(sent) = other.sent.get().map(Instant::elapsed).filter(|sent| *sent >= self.pause) else {
                continue;
            };
            overlay.exit_silent(other.exit, to, sent);
            let silent = other.exit;
            let line = match self.node.config().log_addresses {
                true => format!("node {silent} has said nothing of {to} so far, which node {exit} has answered for"),
                false => {
                    format!("node {silent} has said nothing so far of a destination that node {exit} has answered for")
                }
            };
            self.node.lines.info("exit", silent, format_args!("{line}"));
        }
    }

    /// Logs which one is tried next.
    fn log_next(&self, exit: &str, failure: &Failure) {
        let Some(next) = self.rest.last() else { return };
        let line = match self.node.config().log_addresses {
            true => format!("to {}: {failure}; node {next} is near it as well, and is tried", self.destination),
            false => {
                format!("node {exit} cannot be reached; node {next} is near the destination as well, and is tried")
            }
        };
        self.node.lines.info("exit", exit, format_args!("{line}"));
    }
}

/// The first of these that has an answer, which is one of them no more.
async fn answer<'a>(tried: &mut Vec<Attempt<'a>>) -> (Attempt<'a>, Result<Upstream, Failure>) {
    let (place, reached) = first_of(tried, |attempt| attempt.reached.as_mut()).await;
    (tried.remove(place), reached)
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => pending().await,
    }
}

/// Completes when an exit has had so long for its answer. The time in which a stream waits for its turn does not count.
async fn says_nothing(sent: &Sent, pause: Duration) {
    loop {
        match sent.get() {
            Some(at) => return sleep_until((*at + pause).into()).await,
            None => sleep(pause / 16).await,
        }
    }
}

/// Whether a node cannot be reached on any path. Where some say nothing, its own leg tells.
fn is_unreachable(node: &Node, exit: &str, failure: &Failure) -> bool {
    let is_exits =
        |code| code == FailureCode::NodeUnreachable || code == FailureCode::TimedOut && node.overlay.has_failed(exit);
    exit != node.config().name && is_exits(failure.code)
}
