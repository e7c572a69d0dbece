//! Reaches a destination over the overlay: through the node nearest to it, and through the next one if that one cannot be
//! reached or does not answer.

use std::future::pending;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_overlay::places::TRIED;
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};
use ekiden_transport::take_first_of;
use ekiden_units::without_dot;
use tokio::time::{sleep, sleep_until};

use super::auto::{Sent, is_of_a_node, reach_at};
use super::{Destination, Upstream};
use crate::config::classes::BULK;
use crate::config::route::Auto;
use crate::peer::Early;
use crate::shared::Node;

/// Reaches a destination through the first of the nodes near it that succeeds.
pub async fn reach(node: &Node, auto: &Auto, to: Destination<'_>, early: Early<'_>) -> Result<Upstream, Failure> {
    let config = node.config();
    let mut exits = match &config.overlay {
        Some(overlay) => {
            let exits = overlay.exits(auto, to.target);
            exits.map_err(|why| Failure::new(FailureCode::NodeUnreachable, format_args!("{why}")))?
        }
        None => Vec::new(),
    };
    let Some(&nearest) = exits.first() else { return reach_at(node, auto, None, to, early, None).await };
    // The nearest decides whether the route lets the stream go. The others stand in for it.
    let may_be_exit = |exit: &&str| config.overlay.as_ref().is_some_and(|overlay| overlay.may_be_exit(exit, auto));
    let is_refused = nearest != config.name && !may_be_exit(&nearest);
    exits.retain(|exit| *exit == nearest || !is_refused && may_be_exit(exit));
    if exits.len() == 1 {
        return reach_at(node, auto, Some(nearest), to, early, None).await;
    }
    let destination = same(to.target);
    node.overlay.sort_exits(&mut exits, &destination);
    exits.reverse();
    // 1.5 times the pause of a path, so that the next path to an exit is tried first.
    let pause = config.limits.connect / TRIED as u32 * 3 / 2;
    // A class with a limit on `streams` has one place for each stream, not two.
    let may_be_beside = config.classes.get(to.class.unwrap_or(BULK)).1.streams.is_none();
    let (tried, gave_way, said, until) = Default::default();
    let (early, rest) = (Some(early), exits);
    Exits { node, auto, to, destination, nearest, early, pause, may_be_beside, rest, tried, gave_way, said, until }
        .run()
        .await
}

/// A destination in one normal form for all spellings of its name.
fn same(target: &Target) -> String {
    match &target.host {
        Host::Name(name) => format!("{}:{}", without_dot(name), target.port),
        Host::Ip(_) => target.to_string(),
    }
}

/// The nodes near a destination, tried one after the other, and in parallel where one does not answer.
struct Exits<'a> {
    node: &'a Node,
    auto: &'a Auto,
    to: Destination<'a>,
    destination: String,
    /// The exit whose answer about the destination counts. What another one refuses, this one may accept.
    nearest: &'a str,
    early: Option<Early<'a>>,
    /// The delay before the next exit is tried in parallel.
    pause: Duration,
    may_be_beside: bool,
    /// Those that are still to be tried, the last first.
    rest: Vec<&'a str>,
    tried: Vec<Attempt<'a>>,
    /// The exits that were given up for the next one, and whether each had let its time pass without an answer.
    gave_way: Vec<(&'a str, bool)>,
    /// The failure to report if no exit succeeds ...
    said: Option<Failure>,
    /// ... and when to report it, if not as soon as all have failed.
    until: Option<Instant>,
}

/// An exit that is tried.
struct Attempt<'a> {
    exit: &'a str,
    sent: Arc<Sent>,
    reached: Pin<Box<dyn Future<Output = Result<Upstream, Failure>> + Send + 'a>>,
}

impl Attempt<'_> {
    /// Whether it has had `pause` for its answer.
    fn is_late(&self, pause: Duration) -> bool {
        self.sent.when().is_some_and(|sent| sent.elapsed() >= pause)
    }
}

impl<'a> Exits<'a> {
    /// Runs until one exit has succeeded, the nearest has refused, or all have failed.
    async fn run(mut self) -> Result<Upstream, Failure> {
        self.begin();
        while let Some(last) = self.tried.last() {
            let (sent, until) = (last.sent.clone(), self.until);
            // One that nobody is known to reach hardly needs time.
            let is_cut_off = self.node.overlay.is_cut_off(last.exit);
            let pause = if is_cut_off { self.pause / 16 } else { self.pause };
            let gives_up = is_cut_off && !self.has_given_way(last.exit);
            let has_next = !self.rest.is_empty() && (self.may_be_beside || gives_up);
            let (Attempt { exit, sent, .. }, reached) = tokio::select! {
                biased;
                answered = take_first_of(&mut self.tried, |attempt| attempt.reached.as_mut()) => answered,
                () = passed(until) => break,
                () = says_nothing(&sent, pause), if has_next => {
                    if self.may_be_beside {
                        self.begin_beside();
                    } else {
                        self.begin_instead();
                    }
                    continue;
                }
            };
            let failure = match reached {
                Ok(reached) => {
                    self.opened(exit);
                    return Ok(reached);
                }
                Err(failure) => failure,
            };
            match self.failed(exit, sent.is_of_relays_alone(), failure) {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(failure) => return Err(failure),
            }
        }
        let nothing = || Failure::new(FailureCode::NodeUnreachable, "no node near the destination leads there");
        Err(self.said.unwrap_or_else(nothing))
    }

    /// An exit has failed: goes on with the next one, or breaks with the failure to report. `is_unsure`: only one path has
    /// reported it, and a node in between may have invented it.
    fn failed(&mut self, exit: &str, is_unsure: bool, failure: Failure) -> ControlFlow<Failure> {
        let overlay = &self.node.overlay;
        if failure.is_local || is_unreachable(self.node, exit, &failure) {
            self.log_next(exit, &failure);
            // If the route restricts the paths, other routes may still have paths to the exit.
            if !failure.is_local && (self.auto.has_all_paths() || overlay.is_cut_off(exit)) {
                overlay.exit_lost(exit);
            }
            self.said.get_or_insert(failure);
            self.begin();
            return ControlFlow::Continue(());
        }
        let (is_nearest, is_late) = (exit == self.nearest, failure.code == FailureCode::TimedOut);
        if is_nearest && !is_late && !is_unsure {
            return ControlFlow::Break(failure);
        }
        let is_refused = failure.code == FailureCode::Refused && (is_nearest || !is_unsure);
        let is_tried = self.tried.iter().any(|attempt| attempt.exit == self.nearest);
        let goes_on = match (is_nearest, is_late) {
            // The exit may have gone a short while ago, while others still say that they reach it.
            (true, true) => self.tried.is_empty() && overlay.has_failed(exit),
            (true, false) => self.tried.is_empty(),
            (false, _) if is_refused && !is_tried => self.nearest_is_next(),
            (false, _) => self.tried.is_empty(),
        };
        if is_nearest || is_refused && !is_tried {
            // The destination seems to be silent, or to refuse. The nearest exit and the others still have a little time.
            self.until.get_or_insert(Instant::now() + self.pause);
        }
        if goes_on {
            self.begin();
        }
        // What exits other than the nearest report may hold only for them.
        let counts =
            |said: &Failure| is_refused || said.code != FailureCode::Refused && (is_nearest || is_of_a_node(said));
        let is_told = is_nearest || !is_unsure && failure.code != FailureCode::Forbidden;
        if is_told && self.said.as_ref().is_none_or(counts) {
            self.said = Some(failure);
        }
        ControlFlow::Continue(())
    }

    /// Makes the nearest the next one to try, if it is still to be tried.
    fn nearest_is_next(&mut self) -> bool {
        let at = self.rest.iter().position(|exit| *exit == self.nearest);
        at.inspect(|at| self.rest[*at..].rotate_left(1)).is_some()
    }

    /// Begins to try the next exit beside the nearest of those that are tried. Any other one has had its time.
    fn begin_beside(&mut self) {
        if self.tried.len() > 1
            && let Some(other) = self.tried.iter().position(|other| other.exit != self.nearest)
        {
            let other = self.tried.remove(other);
            self.gave_way.push((other.exit, other.is_late(self.pause)));
        }
        self.begin();
    }

    /// Gives up the exits that are tried for the next one. They come last, with all their time.
    fn begin_instead(&mut self) {
        for given_up in std::mem::take(&mut self.tried) {
            self.rest.insert(0, given_up.exit);
            self.gave_way.push((given_up.exit, given_up.is_late(self.pause)));
        }
        self.begin();
    }

    /// Whether this exit was tried, and given up for another one.
    fn has_given_way(&self, exit: &str) -> bool {
        self.gave_way.iter().any(|(other, _)| *other == exit)
    }

    /// Begins to try the next exit, if any is left. If it is the only one, and has all its time, it gets all early payload;
    /// otherwise only what may arrive twice.
    fn begin(&mut self) {
        let Some(exit) = self.rest.pop() else { return };
        let is_only = self.rest.is_empty() && self.tried.is_empty() && self.until.is_none();
        let early = match &self.early {
            _ if is_only => self.early.take().unwrap_or(Early::Nothing),
            Some(Early::Repeatable(bytes)) => Early::Repeatable(bytes),
            _ => Early::Nothing,
        };
        let (node, auto, to, sent) = (self.node, self.auto, self.to, Arc::new(Sent::default()));
        if exit == node.config().name && exit != self.nearest {
            sent.now();
        }
        let at = sent.clone();
        let reached =
            Box::pin(async move { reach_at(node, auto, Some(exit), to, early, (!is_only).then_some(&*at)).await });
        self.tried.push(Attempt { exit, sent, reached });
    }

    /// An exit has succeeded. Another exit that had its time and did not answer comes last for this destination from now on;
    /// one that no node is known to reach comes last for all.
    fn opened(&self, exit: &str) {
        let (overlay, to) = (&self.node.overlay, &self.destination);
        overlay.exit_opened(exit, to);
        let tried = self.tried.iter().map(|other| (other.exit, other.is_late(self.pause)));
        let silent = tried.chain(self.gave_way.iter().copied()).filter(|(silent, _)| *silent != exit);
        for (silent, is_late) in silent {
            if overlay.is_cut_off(silent) {
                overlay.exit_lost(silent);
            }
            if !is_late {
                continue;
            }
            overlay.exit_silent(silent, to);
            let line = match self.node.config().log_addresses {
                true => {
                    format!("node {exit} has reached {to}, of which node {silent} says nothing; it comes last there")
                }
                false => format!("node {exit} has reached a destination of which node {silent} says nothing"),
            };
            self.node.lines.info("exit", silent, format_args!("{line}"));
        }
    }

    /// Logs which exit is tried next.
    fn log_next(&self, exit: &str, failure: &Failure) {
        let Some(next) = self.rest.last() else { return };
        let line = match self.node.config().log_addresses {
            true => format!("to {}: {failure}; node {next} is near it as well, and is tried", self.destination),
            false if failure.is_local => {
                format!("{failure}; node {next} is near the destination as well, and is tried")
            }
            false => {
                format!("node {exit} cannot be reached; node {next} is near the destination as well, and is tried")
            }
        };
        self.node.lines.info("exit", exit, format_args!("{line}"));
    }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => pending().await,
    }
}

/// Completes when an exit has had `pause` for its answer. The stream's wait for its turn does not count.
async fn says_nothing(sent: &Sent, pause: Duration) {
    loop {
        match sent.when() {
            Some(at) => return sleep_until((at + pause).into()).await,
            None => sleep(pause / 16).await,
        }
    }
}

/// Whether a node cannot be reached on any path, or admits this one on none. If some paths gave no answer, what is known of
/// the node's legs decides: a node also gives no answer if the destination does not.
fn is_unreachable(node: &Node, exit: &str, failure: &Failure) -> bool {
    use FailureCode::{Authentication, NodeUnreachable, TimedOut, UnknownNode};
    let is_exits = match failure.code {
        NodeUnreachable | Authentication | UnknownNode => true,
        TimedOut => node.overlay.is_cut_off(exit),
        _ => false,
    };
    exit != node.config().name && is_exits
}
