//! Counts the descriptors that connections need beyond two: for name look-ups, for addresses that are tried at the same time,
//! and for FTP's data connection. Every connection is counted with two, its own and the one to its destination. Any other is
//! counted here before it is opened.
//!
//! Look-ups that wait take turns by whoever asks: the nodes and the sites of clients, and within each its clients' addresses.

use std::collections::HashMap;
use std::future::pending;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_net::socket;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::access::fair_queue::FairQueue;
use crate::access::quota::ClientKey;

/// The number of spare descriptors is the open-file limit divided by `PART`, but at least `LEAST` and at most `MOST`. One
/// look-up takes no more than `LEAST`.
const PART: usize = 8;
const LEAST: usize = 16;
const MOST: usize = 4096;

/// The timeout of a look-up while others wait to begin. The owner of a name decides how slowly it is answered, and a client
/// may have several times as many connections as there are look-ups at a time. So each waits for a few such periods at most.
const WHILE_OTHERS_WAIT: Duration = Duration::from_secs(1);

/// How often a look-up that takes longer checks whether any wait.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Descriptors that may still be opened. One for all threads.
#[derive(Debug)]
pub struct Spare {
    free: Semaphore,
    waiting: Mutex<Waiting>,
}

/// The look-ups that wait for descriptors.
#[derive(Debug, Default)]
struct Waiting {
    /// Whether a look-up is the next one to get descriptors. Those of the queue wait until it has them.
    has_head: bool,
    queue: FairQueue<Who, oneshot::Sender<()>>,
    /// How many look-ups each group has that have begun.
    begun: HashMap<Who, usize>,
}

/// Who takes turns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    Own,
    Client(ClientKey),
    Node(Box<str>),
}

/// Whom a name is looked up for. By default it is this node itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asker<'a> {
    /// The node that the stream comes from.
    pub node: Option<&'a str>,
    /// The client's address.
    pub client: Option<IpAddr>,
}

/// Descriptors that are counted until this is dropped.
pub type Counted<'a> = SemaphorePermit<'a>;

/// How many descriptors a node keeps for this, of those that the limit of open files allows.
pub fn kept() -> usize {
    let files = socket::open_files().map_or(MOST, |files| usize::try_from(files).unwrap_or(usize::MAX));
    (files / PART).clamp(LEAST, MOST)
}

impl Asker<'_> {
    /// The group that takes turns with others, and its member.
    fn places(&self) -> (Who, Who) {
        let client = self.client.map(ClientKey::from);
        let member = client.map_or(Who::Own, Who::Client);
        match (self.node, client) {
            (Some(node), _) => (Who::Node(node.into()), member),
            (None, Some(client)) => (Who::Client(client.site()), member),
            (None, None) => (Who::Own, member),
        }
    }
}

impl Spare {
    /// With this many descriptors.
    pub fn new(descriptors: usize) -> Self {
        Self { free: Semaphore::new(descriptors), waiting: Mutex::default() }
    }

    /// Reserves one descriptor. `None` if all are in use.
    pub fn one(&self) -> Option<Counted<'_>> {
        self.free.try_acquire().ok()
    }

    /// A look-up for `asker` that has not begun.
    pub fn look_up<'a>(&'a self, asker: Asker<'a>) -> LookUp<'a> {
        LookUp { spare: self, asker, has_begun: AtomicBool::new(false) }
    }

    /// Waits for `descriptors` in turn.
    async fn in_turn(&self, asker: &Asker<'_>, descriptors: u32) -> Begun<'_> {
        let (group, member) = asker.places();
        let mut entry = {
            let mut waiting = self.lock();
            if waiting.has_head {
                let (sender, called) = oneshot::channel();
                let number = waiting.queue.enter(group.clone(), member.clone(), sender);
                Entry { spare: self, queued: Some((group.clone(), member, number, called)) }
            } else {
                if let Ok(counted) = self.free.try_acquire_many(descriptors) {
                    drop(waiting);
                    return Begun::new(self, group, Some(counted));
                }
                waiting.has_head = true;
                Entry { spare: self, queued: None }
            }
        };
        if let Some((_, _, _, called)) = &mut entry.queued {
            // The sender stays in the queue until it is used.
            let _ = called.await;
        }
        // It is never closed.
        let counted = self.free.acquire_many(descriptors).await.ok();
        Begun::new(self, group, counted)
    }

    /// Whether others wait and no group has begun more look-ups than this one.
    fn is_wanted_of(&self, group: &Who) -> bool {
        let waiting = self.lock();
        let own = waiting.begun.get(group).copied().unwrap_or_default();
        waiting.has_head && waiting.begun.values().all(|begun| *begun <= own)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look-up's place among those that wait: in the queue, or at its head. If it was the head when it is dropped, the next one
/// of the queue becomes the head.
struct Entry<'a> {
    spare: &'a Spare,
    queued: Option<(Who, Who, u64, oneshot::Receiver<()>)>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut waiting = self.spare.lock();
        let left =
            self.queued.as_ref().and_then(|(group, member, number, _)| waiting.queue.leave(group, member, *number));
        if left.is_none() {
            let next = waiting.queue.take();
            waiting.has_head = next.is_some();
            // Its receiver is there for as long as its entry.
            let _ = next.map(|next| next.send(()));
        }
    }
}

/// A look-up that has its descriptors until this is dropped.
#[derive(Debug)]
struct Begun<'a> {
    spare: &'a Spare,
    group: Who,
    since: Instant,
    _counted: Option<Counted<'a>>,
}

impl<'a> Begun<'a> {
    fn new(spare: &'a Spare, group: Who, counted: Option<Counted<'a>>) -> Self {
        *spare.lock().begun.entry(group.clone()).or_default() += 1;
        Self { spare, group, since: Instant::now(), _counted: counted }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut waiting = self.spare.lock();
        if let Some(begun) = waiting.begun.get_mut(&self.group) {
            *begun -= 1;
            if *begun == 0 {
                waiting.begun.remove(&self.group);
            }
        }
    }
}

/// A look-up, which may have its turn or not.
#[derive(Debug)]
pub struct LookUp<'a> {
    spare: &'a Spare,
    asker: Asker<'a>,
    has_begun: AtomicBool,
}

impl LookUp<'_> {
    /// Whether a name server was, or would have been, asked at once.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Its turn, for which it has not waited yet.
    pub fn turn(&self) -> Turn<'_> {
        Turn { look_up: self, begun: OnceCell::new() }
    }
}

/// The turn of a look-up. Its descriptors are counted until this is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    look_up: &'a LookUp<'a>,
    begun: OnceCell<Begun<'a>>,
}

impl Turn<'_> {
    /// Waits for the turn, which comes with so many descriptors, unless it has come.
    pub async fn begin(&self, descriptors: u32) {
        let begin = async || {
            let begun = self.look_up.spare.in_turn(&self.look_up.asker, descriptors).await;
            self.look_up.has_begun.store(true, Ordering::Relaxed);
            begun
        };
        self.begun.get_or_init(begin).await;
    }

    /// Completes when the turn has taken too long, others wait for theirs, and this one is of those who have most. Before it has
    /// begun it is not over.
    pub async fn is_over(&self) {
        let Some(begun) = self.begun.get() else { return pending().await };
        sleep_until(begun.since + WHILE_OTHERS_WAIT).await;
        while !begun.spare.is_wanted_of(&begun.group) {
            sleep(CHECK_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests;
