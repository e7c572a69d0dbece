//! The streams that leave the overlay here: what this node tells their entries about them. The entries decide what follows.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden_overlay::receipt::{Asked, End, RECEIPTS_FORMAT, Receipt, Receipts, StreamId};
use ekiden_units::Time;

use super::arrivals::Moved;

/// How long an ended stream is remembered: entries ask after 64 s at the latest, and rely on no more than two minutes.
const KEPT: Time = Time::secs(130);
/// The maximum number of ended streams remembered for each node from which they come: a node that floods pushes out only its own.
const KEPT_MOST: usize = 4096;
/// The maximum number of nodes whose streams are remembered.
const NODES_MOST: usize = 1024;
/// The maximum number of remembered streams in all. Beyond it, the oldest `AT_ONCE` streams of the node that has most are
/// forgotten.
const ALL_MOST: usize = 1 << 16;
const AT_ONCE: usize = 256;

/// The key under which the streams of a node are remembered that only states a name: it can equal no node's own key.
pub fn by_its_word(name: &str) -> Arc<str> {
    format!("{name} by its word").into()
}

/// The streams that leave the overlay here.
#[derive(Debug, Default)]
pub struct Exits(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: HashMap<StreamId, Running>,
    /// By the node from which they came: its name, or [`by_its_word`].
    ended: HashMap<Arc<str>, Remembered>,
    /// How many there are, approximately: those forgotten since the last look still count.
    count: usize,
    /// Since when streams of nodes that are not among them are remembered.
    since: Time,
}

#[derive(Debug)]
struct Running {
    moved: Arc<Moved>,
    answered: Option<Time>,
}

/// A stream as it is, or was at its end.
#[derive(Debug, Clone, Copy)]
struct Known {
    to_host: u64,
    from_host: u64,
    is_full: bool,
    answered: Option<Time>,
    /// When something last moved.
    moved: Time,
    end: Option<End>,
}

/// Streams of one node that have ended.
#[derive(Debug, Default)]
struct Remembered {
    streams: HashMap<StreamId, Known>,
    /// By when they ended.
    order: VecDeque<(Time, StreamId)>,
    /// Since when all of them are remembered, except those older than [`KEPT`].
    since: Time,
}

impl Exits {
    /// A stream is requested. `None` if there is already one of this name: only a node of its path can know the name, and
    /// gains nothing.
    pub fn begin(&self, id: StreamId) -> Option<Arc<Moved>> {
        let mut state = self.lock();
        if state.running.contains_key(&id) {
            return None;
        }
        let moved = Arc::new(Moved::default());
        state.running.insert(id, Running { moved: moved.clone(), answered: None });
        Some(moved)
    }

    /// The stream's request is answered.
    pub fn answered(&self, id: StreamId, now: Time) {
        if let Some(running) = self.lock().running.get_mut(&id) {
            running.answered = Some(now);
        }
    }

    /// Whether the stream's request was answered.
    pub fn has_answered(&self, id: StreamId) -> bool {
        self.lock().running.get(&id).is_some_and(|running| running.answered.is_some())
    }

    /// The stream has ended. At every moment it is known either as running or as ended.
    pub fn end(&self, id: StreamId, from: &Arc<str>, end: End, now: Time) {
        let mut state = self.lock();
        let Some(running) = state.running.remove(&id) else { return };
        if !state.ended.contains_key(from) && state.ended.len() >= NODES_MOST {
            state.ended.clear();
            (state.since, state.count) = (now, 0);
        }
        if state.count >= ALL_MOST {
            state.make_room();
        }
        state.count += 1;
        let since = state.since;
        let node = state.ended.entry(from.clone()).or_insert_with(|| Remembered { since, ..Remembered::default() });
        node.streams.insert(id, running.known(Some(end)));
        node.order.push_back((now, id));
        node.forget(now);
    }

    /// Forgets the streams that ended long ago, and the nodes that have none left.
    pub fn forget(&self, now: Time) {
        let mut state = self.lock();
        state.ended.retain(|_, node| {
            node.forget(now);
            !node.order.is_empty() || now.since(node.since) < KEPT
        });
        state.recount();
    }

    /// Answers an entry's question.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn answer(&self, question: &[u8], now: Time) -> Result<Vec<u8>, String> {
        let asked = Asked::read(question)?;
        let state = self.lock();
        let names = [asked.from.as_str().into(), by_its_word(&asked.from)];
        let from = names.each_ref().map(|name| state.ended.get(name));
        let known = |id: &StreamId| {
            let ended = || from.iter().flatten().find_map(|node| node.streams.get(id).copied());
            let running = state.running.get(id).map(|running| running.known(None));
            Some(running.or_else(ended)?.receipt(now))
        };
        let streams = asked.streams.iter().map(known).collect();
        let since = from.iter().flatten().map(|node| node.since).max().unwrap_or(state.since);
        let remembers_s = now.since(since).as_secs();
        // Numbers and words alone cannot fail to be written.
        Ok(serde_json::to_vec(&Receipts { receipts_format: RECEIPTS_FORMAT, remembers_s, streams }).unwrap_or_default())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn recount(&mut self) {
        self.count = self.ended.values().map(|node| node.order.len()).sum();
    }

    /// Forgets the oldest streams of the node that has most.
    fn make_room(&mut self) {
        if let Some(most) = self.ended.values_mut().max_by_key(|node| node.order.len()) {
            (0..AT_ONCE).for_each(|_| most.forget_oldest());
        }
        self.recount();
    }
}

impl Running {
    fn known(&self, end: Option<End>) -> Known {
        let Moved { up, down, is_full, at, .. } = &*self.moved;
        let [to_host, from_host, at] = [up, down, at].map(|number| number.load(Ordering::Relaxed));
        let is_full = is_full.load(Ordering::Relaxed);
        Known { to_host, from_host, is_full, answered: self.answered, moved: Time(at), end }
    }
}

impl Known {
    fn receipt(self, now: Time) -> Receipt {
        let Self { to_host, from_host, is_full, answered, moved, end } = self;
        let answered_s = answered.map(|at| now.since(at).as_secs());
        Receipt { to_host, from_host, is_full, answered_s, still_s: now.since(moved).as_secs(), end }
    }
}

impl Remembered {
    fn forget(&mut self, now: Time) {
        while let Some((at, id)) = self.order.front().copied() {
            let is_old = now.since(at) > KEPT;
            if !is_old && self.order.len() <= KEPT_MOST {
                return;
            }
            if is_old {
                self.order.pop_front();
                self.streams.remove(&id);
            } else {
                self.forget_oldest();
            }
        }
    }

    /// Forgets a stream about which an entry may still ask.
    fn forget_oldest(&mut self) {
        if let Some((at, id)) = self.order.pop_front() {
            self.since = at;
            self.streams.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> StreamId {
        StreamId(u128::from(number).to_be_bytes())
    }

    fn asked(exits: &Exits, from: &str, number: u32, now: Time) -> (Option<Receipt>, f64) {
        let question = serde_json::to_vec(&Asked::new(from, vec![id(number)])).unwrap();
        let said = Receipts::read(&exits.answer(&question, now).unwrap(), 1).unwrap();
        (said.streams[0], said.remembers_s)
    }

    #[test]
    fn a_node_that_floods_pushes_out_its_own_streams_alone() {
        let (exits, now) = (Exits::default(), Time::secs(100));
        let end = |number: u32, from: &str, now| {
            exits.begin(id(number)).unwrap();
            exits.end(id(number), &from.into(), End::Done, now);
        };
        end(1, "delhi", Time::secs(50));
        end(2, "flood", Time::secs(60));
        (10..10 + KEPT_MOST as u32).for_each(|number| end(number, "flood", Time::secs(70)));
        assert_eq!(asked(&exits, "delhi", 1, now).0.unwrap().end, Some(End::Done));
        assert_eq!(asked(&exits, "delhi", 1, now).1, 100.0);
        let (gone, remembers) = asked(&exits, "flood", 2, now);
        assert!(gone.is_none() && remembers == 40.0, "{remembers}");
        assert!(asked(&exits, "flood", 10, now).0.is_some());
        // Streams that ended long ago take no memory, and nobody asks about them.
        exits.forget(Time::secs(300));
        assert!(exits.lock().ended.is_empty());
        assert!(asked(&exits, "delhi", 1, Time::secs(300)).0.is_none());
        for node in 0..NODES_MOST as u32 + 1 {
            end(100_000 + node, &node.to_string(), Time::secs(300));
        }
        assert!(exits.lock().ended.len() <= NODES_MOST);
        assert_eq!(asked(&exits, "unknown", 3, Time::secs(301)).1, 1.0);
    }

    #[test]
    fn many_names_that_flood_push_out_no_other_nodes_streams_and_take_bounded_room() {
        let exits = Exits::default();
        let end = |number: u32, from: Arc<str>| {
            exits.begin(id(number)).unwrap();
            exits.end(id(number), &from, End::Done, Time::secs(70));
        };
        end(1, "delhi".into());
        for node in 0..40 {
            (0..4000).for_each(|number| end(1000 + node * 4000 + number, by_its_word(&format!("n{node}"))));
        }
        // Nor does a node that uses another node's name.
        (0..6000).for_each(|number| end(1_000_000 + number, by_its_word("delhi")));
        let count: usize = exits.lock().ended.values().map(|node| node.order.len()).sum();
        assert!(count <= ALL_MOST, "{count}");
        assert_eq!(asked(&exits, "delhi", 1, Time::secs(71)).0.unwrap().end, Some(End::Done));
    }

    #[test]
    fn a_second_stream_of_the_same_name_changes_nothing() {
        let exits = Exits::default();
        let moved = exits.begin(id(1)).unwrap();
        moved.up.store(64, Ordering::Relaxed);
        assert!(exits.begin(id(1)).is_none());
        assert_eq!(asked(&exits, "delhi", 1, Time::secs(1)).0.unwrap().to_host, 64);
    }

    #[test]
    fn a_stream_that_ends_while_it_is_asked_about_is_known_all_the_time() {
        let exits = Exits::default();
        std::thread::scope(|scope| {
            for number in 0..2_000 {
                exits.begin(id(number)).unwrap();
                let exits = &exits;
                let ends = scope.spawn(move || exits.end(id(number), &"delhi".into(), End::Done, Time::secs(1)));
                while !ends.is_finished() {
                    assert!(asked(exits, "delhi", number, Time::secs(1)).0.is_some());
                }
            }
        });
    }
}
