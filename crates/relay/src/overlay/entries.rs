//! The streams that begin here and pass other nodes: which exits are asked of them, and when. What the answers mean is decided by
//! [`ekiden_overlay::delivery`], and what follows for the nodes in between by `ekiden_overlay`'s trust, behind
//! [`ekiden_overlay::places::Places::judge`].

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden_overlay::delivery::{Attempt, Counts, Delivery, Ended, Verdict};
use ekiden_overlay::judged::Taken;
use ekiden_overlay::receipt::{Asked, Receipts, STREAMS_MOST, StreamId};
use ekiden_units::Time;
use tokio::sync::Notify;

use super::arrivals::Moved;
use super::{Overlay, State};

/// The maximum number of ended streams that wait until their exits are asked.
const WAITING_MOST: usize = 256;
/// The maximum number of questions at once to one exit about the streams that come to it from one node.
const QUESTIONS_MOST: usize = 4;
/// The time during which an exit that did not answer is not asked again.
const MUTE: Time = Time::secs(10);

/// The streams that begin here.
#[derive(Debug, Default)]
pub struct Entries {
    state: Mutex<Asking>,
    /// Notified when a stream has ended and its exit is to be asked at once.
    doubted: Notify,
}

#[derive(Debug, Default)]
struct Asking {
    running: HashMap<StreamId, Running>,
    /// Those that have ended, whose exit is to be asked.
    waiting: Vec<Doubt>,
    mute: BTreeMap<String, Time>,
}

#[derive(Debug)]
struct Running {
    taken: Arc<Taken>,
    delivery: Delivery,
    moved: Arc<Moved>,
    is_whole: bool,
}

/// A stream of which an exit is asked.
#[derive(Debug)]
struct Doubt {
    id: StreamId,
    taken: Arc<Taken>,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Running,
    Ended(Past),
    Attempt(Attempt),
}

/// A stream that has ended.
#[derive(Debug)]
struct Past {
    delivery: Delivery,
    counts: Counts,
    ended: Ended,
    /// Whether its exit has been asked of it before. An exit that was about to count what it had passed on is asked again.
    is_again: bool,
}

/// What is asked of an exit, of streams that come to it from one node.
#[derive(Debug)]
pub struct Doubts {
    pub exit: String,
    from: String,
    of: Vec<Doubt>,
}

/// What a stream says of its path.
struct Said {
    taken: Arc<Taken>,
    verdict: Verdict,
    begun: Time,
}

impl Running {
    fn counts(&self, now: Time) -> Counts {
        let Moved { up, down, has_down_end, is_full, .. } = &*self.moved;
        Counts {
            sent: self.is_whole.then(|| up.load(Ordering::Relaxed)),
            got: down.load(Ordering::Relaxed),
            has_got_end: has_down_end.load(Ordering::Relaxed),
            is_full: is_full.load(Ordering::Relaxed),
            still: self.moved.still(self.delivery.begun(), now),
        }
    }
}

impl Entries {
    pub fn begin(&self, taken: Arc<Taken>, id: StreamId, is_whole: bool, moved: Arc<Moved>, now: Time) {
        let delivery = Delivery::new(now, taken.rtt);
        self.lock().running.insert(id, Running { taken, delivery, moved, is_whole });
    }

    /// Asks of a stream that has ended, with the next look, or `is_urgent`.
    fn doubt(&self, doubt: Doubt, is_urgent: bool) {
        let mut state = self.lock();
        if state.waiting.len() < WAITING_MOST {
            state.waiting.push(doubt);
        }
        if is_urgent {
            self.doubted.notify_one();
        }
    }

    /// What exits are to be asked now. Streams that run go first: those that have ended wait.
    fn doubts(&self, now: Time) -> Vec<Doubts> {
        let mut all = BTreeMap::new();
        let Asking { running, waiting, .. } = &mut *self.lock();
        for (id, stream) in running.iter_mut().filter(|(_, stream)| stream.delivery.is_due(now)) {
            let Some(of) = Doubts::with_room(&mut all, &stream.taken) else { continue };
            let counts = stream.counts(now);
            stream.delivery.ask(counts, now);
            of.push(Doubt { id: *id, taken: stream.taken.clone(), of: Of::Running });
        }
        for doubt in std::mem::take(waiting) {
            match Doubts::with_room(&mut all, &doubt.taken) {
                Some(of) => of.push(doubt),
                None => waiting.push(doubt),
            }
        }
        all.into_values().flatten().collect()
    }

    /// Whether an exit has not answered a short while ago.
    fn is_mute(&self, exit: &str, now: Time) -> bool {
        self.lock().mute.get(exit).is_some_and(|since| now.since(*since) < MUTE)
    }

    /// Takes what an exit has said, or that it could not be asked, and returns what follows.
    fn answered(&self, doubts: Doubts, said: Result<Vec<u8>, ()>, now: Time) -> Vec<Said> {
        let receipts = said.ok().and_then(|said| Receipts::read(&said, doubts.of.len()).ok());
        let Asking { running, mute, waiting } = &mut *self.lock();
        match &receipts {
            Some(_) => _ = mute.remove(&doubts.exit),
            None => {
                let since = mute.entry(doubts.exit).or_insert(now);
                if now.since(*since) >= MUTE {
                    *since = now;
                }
            }
        }
        let remembers = receipts.as_ref().map_or(Time(0), Receipts::remembers);
        let mut streams = receipts.map(|said| said.streams.into_iter());
        let said = doubts.of.into_iter().filter_map(|Doubt { id, taken, of }| {
            // None of the exit; or of the stream.
            let receipt = streams.as_mut().map(|streams| streams.next().flatten());
            let (begun, verdict) = match (of, receipt) {
                (Of::Running, receipt) => {
                    let delivery = &mut running.get_mut(&id)?.delivery;
                    let verdict = match receipt {
                        Some(receipt) => delivery.answered(receipt, remembers, now),
                        None => delivery.unanswered(now),
                    };
                    (delivery.begun(), verdict)
                }
                (Of::Ended(past), Some(receipt)) => {
                    let verdict = past.delivery.ended(&past.counts, past.ended, receipt, remembers, now);
                    if verdict == Some(Verdict::HeldBack) && receipt.is_some() && !past.is_again {
                        let of = Of::Ended(Past { is_again: true, ..past });
                        waiting.push(Doubt { id, taken, of });
                        return None;
                    }
                    (past.delivery.begun(), verdict)
                }
                (Of::Ended(past), None) => {
                    let is_hollow = past.counts.is_hollow().then_some(Verdict::Hollow);
                    (past.delivery.begun(), is_hollow.or_else(|| past.delivery.by_sight(&past.counts, now)))
                }
                (Of::Attempt(attempt), Some(receipt)) => (attempt.begun, attempt.answered(receipt, remembers, now)),
                (Of::Attempt(_), None) => return None,
            };
            Some(Said { taken, verdict: verdict?, begun })
        });
        said.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Asking> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overlay {
    /// A stream that began here has ended. Its exit is asked at once if the leg broke or the path has not been seen to
    /// deliver yet, with the next look while the path is not proven, and otherwise for a sample of streams.
    pub(super) fn has_ended(&self, taken: &Arc<Taken>, id: StreamId, ended: Ended, now: Time) {
        let Some(stream) = self.entries.lock().running.remove(&id) else { return };
        let (counts, begun) = (stream.counts(now), stream.delivery.begun());
        let (is_on_trial, is_asked_of) = {
            let State { places, .. } = &mut *self.lock();
            (places.is_on_trial(&taken.path), places.is_asked_of(&taken.path))
        };
        let is_urgent = ended == Ended::Leg || is_on_trial;
        if !is_urgent && counts.got > 0 && !counts.is_hollow() && !is_asked_of {
            return self.take(Said { taken: taken.clone(), verdict: Verdict::Came, begun }, now);
        }
        let of = Of::Ended(Past { delivery: stream.delivery, counts, ended, is_again: false });
        self.entries.doubt(Doubt { id, taken: taken.clone(), of }, is_urgent);
    }

    /// A stream on this path was not opened in time, or was refused, and then was opened on another path. For a while the
    /// path is tried last. Its exit is asked whether the destination was the cause. `asked`: how long ago the path was asked
    /// for the stream.
    pub fn suspect(&self, taken: &Arc<Taken>, id: StreamId, asked: std::time::Duration, was_refused: bool) {
        let now = self.now();
        self.lock().places.failed(&taken.path, now);
        let attempt = Attempt { begun: now.since(asked.into()), ended: now, rtt: taken.rtt, was_refused };
        self.entries.doubt(Doubt { id, taken: taken.clone(), of: Of::Attempt(attempt) }, true);
    }

    /// The questions for exits about the streams on the way to them. Streams whose exits cannot be asked now are left out,
    /// and judged by what this node sees itself.
    pub fn doubts(&self) -> Vec<Doubts> {
        let now = self.now();
        let is_deaf = |exit: &str| self.entries.is_mute(exit, now) || self.lock().known.is_shunned(exit, now);
        let (deaf, to) = self.entries.doubts(now).into_iter().partition(|doubts| is_deaf(&doubts.exit));
        Vec::into_iter(deaf).for_each(|doubts: Doubts| self.receipts(doubts, Err(())));
        to
    }

    /// Completes when a stream has ended and its exit is to be asked at once.
    pub async fn is_doubted(&self) {
        self.entries.doubted.notified().await;
    }

    /// Takes what an exit has said, or that it could not be asked.
    pub fn receipts(&self, doubts: Doubts, said: Result<Vec<u8>, ()>) {
        let now = self.now();
        let said = self.entries.answered(doubts, said, now);
        said.into_iter().for_each(|said| self.take(said, now));
    }

    /// Takes what a stream says of its path.
    fn take(&self, Said { taken, verdict, begun }: Said, now: Time) {
        if self.lock().places.judge(&taken.path, verdict, begun, now) {
            let (path, relays) = (&taken.path, taken.path.relays().join(" and "));
            tracing::info!(
                "over {path} a stream did not arrive: streams to {} avoid node {relays} for now",
                taken.exit
            );
        }
    }
}

impl Doubts {
    /// What is asked of streams on this path, if there is room for one more.
    fn with_room<'a>(all: &'a mut BTreeMap<(String, String), Vec<Self>>, taken: &Taken) -> Option<&'a mut Vec<Doubt>> {
        let from = taken.path.relays().last().cloned().unwrap_or_default();
        let questions = all.entry((taken.exit.clone(), from.clone())).or_default();
        if questions.last().is_none_or(|last| last.of.len() == STREAMS_MOST) && questions.len() < QUESTIONS_MOST {
            questions.push(Self { exit: taken.exit.clone(), from, of: Vec::new() });
        }
        questions.last_mut().map(|last| &mut last.of).filter(|of| of.len() < STREAMS_MOST)
    }

    /// The question.
    pub fn question(&self) -> Vec<u8> {
        let streams = self.of.iter().map(|doubt| doubt.id).collect();
        serde_json::to_vec(&Asked::new(&self.from, streams)).unwrap_or_default()
    }
}
