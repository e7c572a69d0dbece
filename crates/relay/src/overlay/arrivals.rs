//! Whether streams over other nodes arrive: what their entry counts, what their exit does, and the questions of the one to the other. The
//! deciding is `ekiden_overlay`'s.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden_net::socket::unread;
use ekiden_net::tcp_info::{TcpInfo, tcp_info};
use ekiden_net::watched::{Watched, WatchedSockets};
use ekiden_overlay::judged::Taken;
use ekiden_overlay::receipt::{
    Asked, Counts, Delivery, End, RECEIPTS_FORMAT, Receipt, Receipts, STREAMS_MOST, StreamId, Verdict,
};
use ekiden_relay_proto::Target;
use ekiden_relay_proto::leg::MAX_CONTROL;
use ekiden_units::Time;
use tokio::sync::Notify;

/// An exit remembers streams for so long after their end: entries ask after 64 s at the latest ...
const KEPT: Time = Time::secs(130);
/// ... and so many.
const KEPT_MOST: usize = 4096;
/// Of so many streams that end after something has come, the exit is asked of one: that something came does not say that all did.
const SAMPLED: u64 = 8;
/// So many streams that have ended wait for their exits to be asked.
const WAITING_MOST: usize = 256;
/// An exit that did not answer is not asked again for so long.
const MUTE: Time = Time::secs(10);
/// What JSON puts around a stream's names, in bytes, and around all of them.
const AROUND: usize = 24;

/// The streams that begin or end here and pass other nodes.
#[derive(Debug, Default)]
pub struct Arrivals {
    entries: WatchedSockets<Entry>,
    exits: WatchedSockets<StreamId>,
    state: Mutex<State>,
    /// How many streams that began here have ended.
    ended: AtomicU64,
    /// Notified when a stream has ended of which its exit is to be asked.
    pub doubted: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Streams that had their exit here, by when they ended.
    left: VecDeque<(Time, StreamId, Receipt)>,
    /// The last of them that is not remembered.
    forgotten: Time,
    /// Streams that began here and have ended, whose exit is to be asked.
    waiting: Vec<(StreamId, Ended)>,
    mute: BTreeMap<String, Time>,
}

/// A stream that begins here, beside its client's connection.
#[derive(Debug)]
struct Entry {
    taken: Arc<Taken>,
    id: StreamId,
    delivery: Delivery,
    base: Moved,
}

#[derive(Debug)]
struct Ended {
    taken: Arc<Taken>,
    delivery: Delivery,
    counts: Counts,
    has_broken: bool,
}

/// What a connection to a client or a destination has moved.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    received: u64,
    written: u64,
    /// Whether what is received is passed on as it is, and so is what is written.
    is_whole: bool,
}

impl Moved {
    fn of(info: &TcpInfo) -> Self {
        let written = info.sent_bytes.saturating_sub(info.resent_bytes) + u64::from(info.unsent_bytes);
        Self { received: info.received_bytes, written, is_whole: true }
    }

    fn counts(self, info: &TcpInfo) -> Counts {
        let now = Self::of(info);
        let got = now.written.saturating_sub(self.written);
        let is_full = info.unsent_bytes > 0;
        match self.is_whole {
            true => Counts { sent: Some(now.received.saturating_sub(self.received)), got, is_full },
            // Of what is rewritten it is known whether something has come.
            false => Counts { sent: None, got: if got > 0 { u64::MAX / 2 } else { 0 }, is_full },
        }
    }
}

/// What a stream's connection to its client or destination is watched for.
#[derive(Debug)]
pub struct Arrival<'a> {
    all: &'a Arrivals,
    host: BorrowedFd<'a>,
    end: EndOf<'a>,
    /// Whether the connection to the node has broken, or that node has given the stream up.
    has_broken: bool,
}

#[derive(Debug)]
enum EndOf<'a> {
    Entry(Watched<'a, Entry>),
    Exit(Watched<'a, StreamId>),
}

/// What is asked of an exit.
#[derive(Debug)]
pub struct Doubts {
    pub exit: String,
    streams: Vec<StreamId>,
    of: Vec<Of>,
    bytes: usize,
}

#[derive(Debug)]
enum Of {
    Running(u64),
    Ended(Ended),
}

/// What a stream says of its path.
pub struct Said {
    pub taken: Arc<Taken>,
    pub verdict: Verdict,
    pub begun: Time,
}

/// What a stream is called between its ends; none if its exit has not said from where it connects.
pub fn stream_id(bound: Option<SocketAddr>, target: &Target) -> Option<StreamId> {
    let bound = bound.filter(|bound| bound.port() != 0)?;
    Some(StreamId {
        bound: SocketAddr::new(bound.ip().to_canonical(), bound.port()).to_string(),
        to: target.to_string(),
    })
}

impl Arrivals {
    /// Watches a stream that begins here. `is_whole`: what its client's connection carries is what the stream does.
    pub fn enter<'a>(
        &'a self,
        client: &'a impl AsFd,
        taken: Arc<Taken>,
        id: StreamId,
        is_whole: bool,
        now: Time,
    ) -> Option<Arrival<'a>> {
        let mut base = Moved { is_whole, ..Moved::of(&tcp_info(client).ok()?) };
        // That is still to be passed on.
        base.received = base.received.saturating_sub(unread(client));
        let delivery = Delivery::new(now, taken.rtt);
        let end = EndOf::Entry(self.entries.watch(client, Entry { taken, id, delivery, base }));
        Some(Arrival { all: self, host: client.as_fd(), end, has_broken: false })
    }

    /// Watches a stream that leaves the overlay here.
    pub fn leave<'a>(&'a self, host: &'a impl AsFd, id: StreamId) -> Arrival<'a> {
        let end = EndOf::Exit(self.exits.watch(host, id));
        Arrival { all: self, host: host.as_fd(), end, has_broken: false }
    }

    /// What exits are to be asked now.
    pub fn doubts(&self, now: Time) -> Vec<Doubts> {
        let mut all: BTreeMap<String, Doubts> = BTreeMap::new();
        let mut waiting = std::mem::take(&mut self.lock().waiting);
        waiting.retain_mut(|(id, ended)| {
            let doubts = Doubts::to(&mut all, &ended.taken.exit);
            if !doubts.has_room(id) {
                return true;
            }
            let ended = Ended { taken: ended.taken.clone(), ..*ended };
            doubts.add(id.clone(), Of::Ended(ended));
            false
        });
        self.entries.each(|number, entry, client| {
            if !entry.delivery.is_due(now) {
                return;
            }
            let doubts = Doubts::to(&mut all, &entry.taken.exit);
            if let Ok(info) = tcp_info(&client)
                && doubts.has_room(&entry.id)
            {
                entry.delivery.ask(entry.base.counts(&info), now);
                doubts.add(entry.id.clone(), Of::Running(number));
            }
        });
        let mut state = self.lock();
        let room = WAITING_MOST.saturating_sub(state.waiting.len());
        state.waiting.extend(waiting.into_iter().take(room));
        all.into_values().filter(|doubts| !doubts.of.is_empty()).collect()
    }

    /// Whether an exit has not answered a short while ago.
    pub fn is_mute(&self, exit: &str, now: Time) -> bool {
        self.lock().mute.get(exit).is_some_and(|since| now.since(*since) < MUTE)
    }

    /// Takes what an exit has said, or that it could not be asked, and returns what follows.
    pub fn answered(&self, doubts: Doubts, said: Result<Vec<u8>, ()>, now: Time) -> Vec<Said> {
        let receipts = said.map_err(|()| String::new()).and_then(|said| Receipts::read(&said, doubts.of.len()));
        match &receipts {
            Ok(_) => _ = self.lock().mute.remove(&doubts.exit),
            Err(_) if self.is_mute(&doubts.exit, now) => {}
            Err(_) => _ = self.lock().mute.insert(doubts.exit, now),
        }
        let remembers = receipts.as_ref().map_or(Time(0), |said| Time((said.remembers_s * 1e9) as u64));
        let mut streams = receipts.ok().map(|said| said.streams.into_iter());
        let (mut verdicts, mut running) = (Vec::new(), HashMap::new());
        for of in doubts.of {
            // None of the exit; or of the stream.
            let receipt = streams.as_mut().map(|streams| streams.next().flatten());
            match of {
                Of::Running(number) => _ = running.insert(number, receipt),
                Of::Ended(Ended { taken, delivery, counts, has_broken }) => {
                    let verdict = match receipt {
                        Some(receipt) => delivery.ended(&counts, has_broken, receipt, remembers, now),
                        None => delivery.by_sight(&counts, now),
                    };
                    verdicts.extend(verdict.map(|verdict| Said { taken, verdict, begun: delivery.begun() }));
                }
            }
        }
        self.entries.each(|number, Entry { taken, delivery, .. }, _| {
            let Some(receipt) = running.remove(&number) else { return };
            let verdict = match receipt {
                Some(receipt) => delivery.answered(receipt, remembers, now),
                None => delivery.unanswered(now),
            };
            let (taken, begun) = (taken.clone(), delivery.begun());
            verdicts.extend(verdict.map(|verdict| Said { taken, verdict, begun }));
        });
        verdicts
    }

    /// Answers an entry's question about streams that leave the overlay here.
    ///
    /// # Errors
    /// If the question cannot be read.
    pub fn answer(&self, question: &[u8], now: Time) -> Result<Vec<u8>, String> {
        let asked = Asked::read(question)?;
        let mut known: HashMap<&StreamId, Receipt> = HashMap::new();
        let mut places: HashMap<&StreamId, ()> = asked.streams.iter().map(|id| (id, ())).collect();
        let state = self.lock();
        for (_, id, receipt) in &state.left {
            if let Some((id, ())) = places.get_key_value(id) {
                known.insert(id, *receipt);
            }
        }
        let remembers = now.since(state.forgotten);
        drop(state);
        self.exits.each(|_, id, host| {
            if let (Some((id, ())), Ok(info)) = (places.remove_entry(id), tcp_info(&host)) {
                known.insert(id, receipt(&info, None));
            }
        });
        let streams = asked.streams.iter().map(|id| known.get(id).copied()).collect();
        let receipts = Receipts { receipts_format: RECEIPTS_FORMAT, remembers_s: remembers.as_secs(), streams };
        // Numbers and words alone cannot fail to be written.
        Ok(serde_json::to_vec(&receipts).unwrap_or_default())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrival<'_> {
    /// The connection to the node has broken, or that node has given the stream up.
    pub fn broke(&mut self) {
        self.has_broken = true;
    }

    /// The stream has ended. `is_on_trial`: whether it is to be seen that a path delivers. Returns what the stream says without its exit.
    pub fn end(self, is_on_trial: impl FnOnce(&Taken) -> bool, now: Time) -> Option<Said> {
        let Self { all, host, end, has_broken } = self;
        let info = tcp_info(&host).ok();
        match end {
            EndOf::Entry(watched) => {
                let Entry { taken, id, delivery, base } = watched.end()?;
                let counts = base.counts(&info?);
                let is_sample = all.ended.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLED);
                if !has_broken && counts.got > 0 && !is_sample && !is_on_trial(&taken) {
                    return Some(Said { taken, verdict: Verdict::Came, begun: delivery.begun() });
                }
                let mut state = all.lock();
                if state.waiting.len() < WAITING_MOST {
                    state.waiting.push((id, Ended { taken, delivery, counts, has_broken }));
                    all.doubted.notify_one();
                }
            }
            EndOf::Exit(watched) => {
                let id = watched.end()?;
                let end = if has_broken { End::Leg } else { End::Exit };
                all.lock().leaves(id, receipt(&info?, Some(end)), now);
            }
        }
        None
    }
}

impl State {
    fn leaves(&mut self, id: StreamId, receipt: Receipt, now: Time) {
        self.left.push_back((now, id, receipt));
        while let Some((at, ..)) = self.left.front()
            && (self.left.len() > KEPT_MOST || now.since(*at) > KEPT)
        {
            self.forgotten = *at;
            self.left.pop_front();
        }
    }
}

impl Doubts {
    fn to<'a>(all: &'a mut BTreeMap<String, Self>, exit: &str) -> &'a mut Self {
        let empty = || Self { exit: exit.to_owned(), streams: Vec::new(), of: Vec::new(), bytes: 3 * AROUND };
        all.entry(exit.to_owned()).or_insert_with(empty)
    }

    fn has_room(&self, id: &StreamId) -> bool {
        self.of.len() < STREAMS_MOST && self.bytes + bytes(id) <= MAX_CONTROL as usize
    }

    fn add(&mut self, id: StreamId, of: Of) {
        self.bytes += bytes(&id);
        self.streams.push(id);
        self.of.push(of);
    }

    /// The question.
    pub fn question(&self) -> Vec<u8> {
        serde_json::to_vec(&Asked::new(self.streams.clone())).unwrap_or_default()
    }
}

fn bytes(id: &StreamId) -> usize {
    id.bound.len() + id.to.len() + AROUND
}

fn receipt(info: &TcpInfo, end: Option<End>) -> Receipt {
    let Moved { received, written, .. } = Moved::of(info);
    Receipt { to_host: written, from_host: received, is_full: info.unsent_bytes > 0, end }
}
