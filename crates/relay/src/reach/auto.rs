//! Reaches a destination through one node near it: on the best path that is known, and on the next one if that fails.
//!
//! This module decides when the next path is tried beside one that does not answer.

use std::cmp::Reverse;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ekiden_keys::random_secret;
use ekiden_overlay::places::TRIED;
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::take_first_of;
use tokio::time::{sleep, sleep_until};

use super::{Destination, Upstream, exit, reach_via, turn};
use crate::config::classes::BULK;
use crate::config::route::Auto;
use crate::overlay::{StreamId, Taken};
use crate::peer::Early;
use crate::shared::Node;
use crate::shared::turns::Turn;

/// The maximum number of paths tried in parallel: if none of that many answers, it is the destination that does not answer.
const BESIDE: usize = 3;
/// The same maximum for an exit beside which other exits may be tried.
const BESIDE_OTHERS: usize = 2;

/// The delay, besides four round trips, before the next path is tried in parallel, for a path that has not been seen to
/// deliver yet. RFC 8305 §5 lets a Connection Attempt Delay be 100 ms to 2 s.
const ON_TRIAL: Duration = Duration::from_millis(150);
/// If other streams try all paths that are left, the maximum wait until one of these paths is seen to deliver.
const SEEN: Duration = Duration::from_millis(500);

/// A stream to an exit beside which others may be tried.
#[derive(Default)]
pub struct Sent {
    first: OnceLock<Instant>,
    of_relays_alone: OnceLock<()>,
}

impl Sent {
    /// The stream is sent now, perhaps not for the first time.
    pub fn now(&self) {
        let _ = self.first.set(Instant::now());
    }

    /// Only one path has reported this failure, and it has nodes in between.
    fn is_said_by_relays(&self) {
        let _ = self.of_relays_alone.set(());
    }

    /// When it was first sent.
    pub fn when(&self) -> Option<Instant> {
        self.first.get().copied()
    }

    /// Whether a node in between may have invented the failure: no other path has reported it.
    pub fn is_of_relays_alone(&self) -> bool {
        self.of_relays_alone.get().is_some()
    }
}

/// Reaches a destination through the node `near` it, or from here: on the first of the paths to that node that succeeds. If
/// there are several paths, only early payload that may arrive twice is sent before that. If other nodes are near the
/// destination too, it waits half as long, and sets `sent` when the stream is first sent.
pub async fn reach_at(
    node: &Node,
    auto: &Auto,
    near: Option<&str>,
    to: Destination<'_>,
    early: Early<'_>,
    sent: Option<&Sent>,
) -> Result<Upstream, Failure> {
    let config = node.config();
    let own = config.name.as_str();
    // If no node, or this one, is near the destination, this node connects.
    let Some((overlay, near)) = config.overlay.as_ref().zip(near.filter(|near| *near != own)) else {
        return match auto.required(own).next() {
            Some(required) => {
                let text =
                    format_args!("the route wants {required} in between, and no other node is near {}", to.target);
                Err(Failure::new(FailureCode::Forbidden, text))
            }
            None => exit(node, to).await,
        };
    };
    if !overlay.may_be_exit(near, auto) {
        let text = format_args!("node {near} is near {}, and not in the regions of the route", to.target);
        return Err(Failure::new(FailureCode::Forbidden, text));
    }
    let relays = if auto.through.is_empty() { Vec::new() } else { overlay.relays(auto) };
    if let Some(required) = auto.required(near).find(|required| !relays.contains(required)) {
        let text = format_args!("the route wants {required} in between, which is no member that may relay there");
        return Err(Failure::new(FailureCode::NodeUnreachable, text));
    }
    let (_, class) = config.classes.get(to.class.unwrap_or(BULK));
    let (paths, is_own) = node.overlay.paths(overlay, auto, class.kind, near);
    if let [only] = &paths[..] {
        let asked = Asked::default();
        let reached = on_path(node, only.clone(), None, to, early, (&asked, sent)).await;
        if reached.is_err() && asked.get().is_some() && !only.path.relays().is_empty() {
            sent.inspect(|sent| sent.is_said_by_relays());
        }
        return reached;
    }
    let again = match early {
        Early::Repeatable(bytes) => Some(bytes),
        _ => None,
    };
    let rest = paths.into_iter().rev().collect();
    let (limit, has_others) = (config.limits.connect, sent.is_some());
    let (pause, pauses) = (limit / TRIED as u32, if has_others { TRIED } else { 2 * TRIED } as u32);
    let most = if has_others { BESIDE_OTHERS } else { BESIDE };
    let (tried, first, lacks, said) = Default::default();
    Search { node, near, to, again, sent, most, pause, pauses, rest, is_own, tried, first, lacks, said }.run().await
}

/// Paths to a destination, tried one after the other, and in parallel where one does not answer.
struct Search<'a> {
    node: &'a Node,
    near: &'a str,
    to: Destination<'a>,
    /// Early payload that may arrive twice.
    again: Option<&'a [u8]>,
    /// When it was first sent, for a caller that tries another exit in parallel.
    sent: Option<&'a Sent>,
    /// The maximum number of paths tried in parallel.
    most: usize,
    /// The maximum delay before the next path is tried in parallel: a part of `limits.connect`.
    pause: Duration,
    /// The whole wait, in units of `pause`.
    pauses: u32,
    /// The paths that are still to be tried, the last first.
    rest: Vec<Arc<Taken>>,
    /// Whether the first one is this stream's to try.
    is_own: bool,
    tried: Vec<Attempt<'a>>,
    /// The first failure of a node, or that of the direct path, and whether a node in between may have invented it.
    first: Option<(Failure, bool)>,
    /// Whether a path was not asked, or hardly, because this node lacked a resource.
    lacks: bool,
    /// A failure of the destination that a path has reported whose nodes in between may have invented it; the path; and how
    /// it was asked.
    said: Option<(Failure, Arc<Taken>, Arc<Asked>)>,
}

/// When a path was asked, and the stream's identifier on it.
type Asked = OnceLock<(Instant, Option<StreamId>)>;

/// A path that is tried.
struct Attempt<'a> {
    taken: Arc<Taken>,
    asked: Arc<Asked>,
    /// The delay before the next path is tried in parallel.
    pause: Duration,
    reached: Pin<Box<dyn Future<Output = Result<Upstream, Failure>> + Send + 'a>>,
}

/// The state of a path that is left, with its index in [`Search::rest`].
enum Standing {
    /// It may be taken.
    Free(usize),
    /// Another stream tries it, and it has not been seen to deliver yet.
    Tried(usize),
    /// It is known to fail.
    Fails(usize),
}

impl Search<'_> {
    /// Runs until one path has reached the destination, the destination has refused, or all paths have failed.
    async fn run(mut self) -> Result<Upstream, Failure> {
        // Its class says how long it waits for its turn.
        let Some(first) = self.next().await else { return Err(self.nothing()) };
        let turn = turn_on(self.node, &first, self.to).await?;
        let mut until = Instant::now() + self.pause * self.pauses;
        self.begin(first, Some(turn));
        loop {
            if self.tried.is_empty() {
                return Err(self.nothing());
            }
            let next = Instant::now() + self.tried.last().map_or(self.pause, |last| last.pause);
            // Until the next path is to be tried.
            loop {
                let is_last = self.rest.is_empty() || self.tried.len() == self.most;
                let (Attempt { taken, asked, .. }, reached) = tokio::select! {
                    biased;
                    answered = take_first_of(&mut self.tried, |attempt| attempt.reached.as_mut()) => answered,
                    () = sleep_until(until.into()) => return Err(self.too_late()),
                    () = sleep_until(next.into()), if !is_last => break,
                };
                let failure = match reached {
                    Ok(reached) => return Ok(self.suspect_others(reached)),
                    Err(failure) => failure,
                };
                self.lacks |= failure.is_local || asked.get().is_none();
                if asked.get().is_none() {
                    // No turn came; another path may still lead there.
                    self.first.get_or_insert((failure, false));
                    break;
                }
                if is_of_a_node(&failure) {
                    let (node, to) = (self.node, self.to.target);
                    let (path, told) = (&taken.path, node.told(&failure));
                    let line = match node.config().log_addresses {
                        true => format!("over {path} to {to}: {told}; the next path is tried"),
                        false => format!("over {path}: {told}; the next path is tried"),
                    };
                    node.lines.info("path", self.near, format_args!("{line}"));
                    if !failure.is_local {
                        node.overlay.path_failed(&taken);
                    }
                    let is_direct = taken.path.relays().is_empty();
                    if self.first.is_none() || is_direct {
                        self.first = Some((failure, !is_direct));
                    }
                    break;
                }
                if taken.path.relays().is_empty() || self.said.is_some() {
                    return Err(failure);
                }
                // A node in between may report anything: another path must confirm it, the direct one if possible.
                self.rest.sort_by_key(|other| other.path.relays().is_empty());
                self.said = Some((failure, taken, asked));
                until = until.min(Instant::now() + self.pause);
                if self.tried.is_empty() {
                    break;
                }
            }
            if let Some(next) = self.next().await {
                self.begin(next, None);
            }
        }
    }

    /// The next path to try. A path that is known to fail comes after the others; the attempt before may have shown that it
    /// fails. A path that another stream tries, and that has not been seen to deliver yet, also comes after them: if there
    /// is no other, this waits a little for it.
    async fn next(&mut self) -> Option<Arc<Taken>> {
        let until = Instant::now() + SEEN;
        while let Standing::Tried(_) = self.standing()?
            && self.tried.is_empty()
            && Instant::now() < until
        {
            sleep(SEEN / 50).await;
        }
        let (Standing::Free(at) | Standing::Tried(at) | Standing::Fails(at)) = self.standing()?;
        Some(self.rest.remove(at))
    }

    /// The best of the paths that are left, if any is.
    fn standing(&self) -> Option<Standing> {
        let (overlay, chosen) = (&self.node.overlay, self.rest.len().checked_sub(1)?);
        let is_own = |at: usize| self.is_own && at == chosen && self.tried.is_empty() && self.first.is_none();
        let is_well = |at: &usize| !overlay.fails_on(&self.rest[*at]);
        let is_free = |at: &usize| is_well(at) && (is_own(*at) || overlay.is_free(&self.rest[*at]));
        let places = || (0..=chosen).rev();
        let free = places().find(is_free).map(Standing::Free);
        // A path that has been tried for long has had its time to deliver.
        let since = |at: &usize| Reverse(overlay.tried_since(&self.rest[*at]));
        let tried = || places().filter(is_well).min_by_key(since).map(Standing::Tried);
        free.or_else(tried).or(Some(Standing::Fails(chosen)))
    }

    /// Begins to try a path: with a turn, or as soon as the stream has one.
    fn begin(&mut self, taken: Arc<Taken>, turn: Option<Turn>) {
        let (node, to, again, sent, asked) = (self.node, self.to, self.again, self.sent, Arc::new(Asked::default()));
        let (of, at) = (taken.clone(), asked.clone());
        node.overlay.tries(&taken);
        let early = again.map_or(Early::Nothing, Early::Repeatable);
        let reached = Box::pin(async move { on_path(node, of, turn, to, early, (&at, sent)).await });
        let pause = match node.overlay.is_on_trial(&taken) {
            true => self.pause.min(ON_TRIAL + Duration::from(taken.rtt) * 4),
            false => self.pause,
        };
        self.tried.push(Attempt { taken, asked, pause, reached });
    }

    /// The failure to report when no path is left.
    fn nothing(&mut self) -> Failure {
        if let Some(said) = self.relays_said() {
            return said;
        }
        let none = || Failure::new(FailureCode::NodeUnreachable, format_args!("no path to node {}", self.near));
        let (failure, is_of_relays) = self.first.take().unwrap_or_else(|| (none(), false));
        if is_of_relays {
            self.sent.inspect(|sent| sent.is_said_by_relays());
        }
        // Not all have been asked.
        if self.lacks && failure.code != FailureCode::Overloaded { failure.local() } else { failure }
    }

    /// The failure of the destination that only one path has reported.
    fn relays_said(&mut self) -> Option<Failure> {
        let (said, ..) = self.said.take()?;
        self.sent.inspect(|sent| sent.is_said_by_relays());
        Some(said)
    }

    /// One path has reached the destination. Other paths that should have reached it too may have nodes that hold streams
    /// back.
    fn suspect_others(self, reached: Upstream) -> Upstream {
        let suspect = |taken: &Arc<Taken>, asked: &Asked, was_refused| {
            if let Some((at, Some(id))) = asked.get() {
                self.node.overlay.suspect(taken, *id, at.elapsed(), was_refused);
            }
        };
        let is_late = |other: &&Attempt<'_>| other.asked.get().is_some_and(|(at, _)| at.elapsed() >= other.pause);
        for late in self.tried.iter().filter(is_late) {
            suspect(&late.taken, &late.asked, false);
        }
        if let Some((failure, taken, asked)) = &self.said {
            suspect(taken, asked, failure.code != FailureCode::TimedOut);
        }
        reached
    }

    fn too_late(mut self) -> Failure {
        let (near, to) = (self.near, self.to.target);
        let late =
            || Failure::new(FailureCode::TimedOut, format_args!("no path to node {near} has led to {to} in time"));
        self.relays_said().unwrap_or_else(late)
    }
}

/// Reaches a destination on this path as soon as the stream has a turn. `asked` becomes the time of that, and `sent` too if
/// it is the first time.
async fn on_path(
    node: &Node,
    taken: Arc<Taken>,
    has_turn: Option<Turn>,
    to: Destination<'_>,
    early: Early<'_>,
    (asked, sent): (&Asked, Option<&Sent>),
) -> Result<Upstream, Failure> {
    let turn = match has_turn {
        Some(turn) => turn,
        None => turn_on(node, &taken, to).await?,
    };
    let name = (!taken.path.relays().is_empty()).then(new_id).flatten();
    let id = name.map(|name| name.towards(to.target));
    let _ = asked.set((Instant::now(), id));
    sent.inspect(|sent| sent.now());
    let reached = reach_via(node, &taken.path.0, to.called(name.as_ref().map(|name| &name.0)), early).await?;
    Ok(Upstream { taken: Some(taken), id, turn, ..reached })
}

/// A turn on the first leg of a path. If that leg has failed, streams that wait on it in vain may hold all turns; this says
/// nothing about the exit.
async fn turn_on(node: &Node, taken: &Taken, to: Destination<'_>) -> Result<Turn, Failure> {
    let has_failed = || taken.path.0.first().is_some_and(|peer| node.overlay.has_failed(peer));
    let turn = turn(node, &taken.path.0, to).await;
    turn.map_err(|failure| if has_failed() { failure.local() } else { failure })
}

/// An identifier that nobody can guess. If the kernel gives no random numbers, the stream has none, and is not judged.
fn new_id() -> Option<StreamId> {
    Some(StreamId(*random_secret().ok()?.first_chunk()?))
}

/// Reaches another port of the host that `first` is connected to, on the same path.
pub async fn reach_beside(node: &Node, first: &Upstream, to: Destination<'_>) -> Result<Upstream, Failure> {
    let Some(taken) = &first.taken else { return exit(node, to).await };
    let reached = reach_via(node, &taken.path.0, to, Early::Nothing).await?;
    Ok(Upstream { taken: Some(taken.clone()), ..reached })
}

/// Whether a node of the path failed, and not the destination.
pub fn is_of_a_node(failure: &Failure) -> bool {
    use FailureCode::{Authentication, NodeUnreachable, Overloaded, UnknownNode};
    matches!(failure.code, NodeUnreachable | UnknownNode | Authentication | Overloaded)
}
