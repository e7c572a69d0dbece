//! Counts the descriptors that connections need beyond two: for name look-ups, for addresses that are tried at the same time,
//! and for FTP's data connection. Every connection is counted with two, its own and the one to its destination. Any other is
//! counted here before it is opened.
//!
//! Look-ups that wait take turns by whoever asks: the nodes and the sites of clients, and within each its clients' addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_net::socket;
use ekiden_transport::fair_queue::FairQueue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::time::{Instant, sleep};

use crate::access::quota::ClientKey;

/// The number of spare descriptors is the open-file limit divided by `PART`, but at least `LEAST` and at most `MOST`. One
/// look-up takes no more than `LEAST`.
const PART: usize = 8;
const LEAST: usize = 16;
const MOST: usize = 4096;

/// The timeout of a look-up while others wait to begin. The owner of a name decides how slowly it is answered, and a client
/// may have several times as many connections as there are look-ups at a time. So each waits for a few such periods at most.
///
/// One look-up of each group is exempt, as long as these have at most half of the descriptors: without that, no name that takes
/// longer would be found while many wait, and no name server would have its whole timeout.
///
/// A look-up that nobody waits for is not exempt, and ends without this timeout as soon as descriptors are wanted.
const WHILE_OTHERS_WAIT: Duration = Duration::from_secs(1);

/// How often a look-up checks whether its descriptors are wanted.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// For this time after one descriptor was wanted and none was free, look-ups that nobody waits for end.
const AFTER_NONE: Duration = Duration::from_secs(1);

/// Descriptors that may still be opened. One for all threads, and its clones are the same.
#[derive(Debug, Clone)]
pub struct Spare {
    free: Arc<Semaphore>,
    /// How many more of them look-ups may have that are exempt from the timeout.
    exempt: Arc<Semaphore>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The look-ups that wait for descriptors.
#[derive(Debug, Default)]
struct Waiting {
    /// Whether a look-up is the next one to get descriptors. Those of the queue wait until it has them.
    has_head: bool,
    queue: FairQueue<Who, oneshot::Sender<()>>,
    /// The groups that have look-ups that have begun.
    begun: HashMap<Who, Begun>,
    /// When [`Spare::one`] last found none.
    found_none: Option<Instant>,
}

/// The look-ups of a group that have begun.
#[derive(Debug, Default)]
struct Begun {
    count: usize,
    /// Whether one of them is exempt from the timeout.
    has_exempt: bool,
}

impl Begun {
    /// The exemption of one that has so many descriptors, unless another one has it or all may not have more.
    fn exempt(&mut self, all: &Arc<Semaphore>, descriptors: u32) -> Option<OwnedSemaphorePermit> {
        if self.has_exempt {
            return None;
        }
        let exempt = all.clone().try_acquire_many_owned(descriptors).ok();
        self.has_exempt = exempt.is_some();
        exempt
    }
}

/// Who takes turns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Who {
    /// This node itself.
    Own,
    /// A client's address, or its site.
    Client(ClientKey),
    /// Another node.
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
        let semaphore = |descriptors| Arc::new(Semaphore::new(descriptors));
        Self { free: semaphore(descriptors), exempt: semaphore(descriptors / 2), waiting: Arc::default() }
    }

    /// Reserves one descriptor. `None` if all are in use.
    pub fn one(&self) -> Option<Counted<'_>> {
        let counted = self.free.try_acquire().ok();
        if counted.is_none() {
            self.lock().found_none = Some(Instant::now());
        }
        counted
    }

    /// A look-up for `asker`, without a turn yet.
    pub fn look_up<'a>(&'a self, asker: Asker<'a>) -> LookUp<'a> {
        LookUp { spare: self, asker, has_begun: AtomicBool::new(false) }
    }

    /// Waits for `descriptors` in turn.
    async fn in_turn(&self, asker: &Asker<'_>, descriptors: u32) -> Turn {
        let (group, member) = asker.places();
        let mut entry = {
            let mut waiting = self.lock();
            if waiting.has_head {
                let (sender, called) = oneshot::channel();
                let number = waiting.queue.enter(group.clone(), member.clone(), sender);
                Entry { spare: self, queued: Some((group.clone(), member, number, called)) }
            } else {
                if let Ok(counted) = self.free.clone().try_acquire_many_owned(descriptors) {
                    drop(waiting);
                    return self.begun(group, descriptors, Some(counted));
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
        let counted = self.free.clone().acquire_many_owned(descriptors).await.ok();
        self.begun(group, descriptors, counted)
    }

    fn begun(&self, group: Who, descriptors: u32, counted: Option<OwnedSemaphorePermit>) -> Turn {
        let mut waiting = self.lock();
        let begun = waiting.begun.entry(group.clone()).or_default();
        begun.count += 1;
        let exempt = begun.exempt(&self.exempt, descriptors);
        drop(waiting);
        let begun_exempt = exempt.is_some();
        Turn { spare: self.clone(), group, since: Instant::now(), descriptors, begun_exempt, exempt, _counted: counted }
    }

    /// Whether others wait, or have just found no descriptor.
    fn is_wanted(&self) -> bool {
        let waiting = self.lock();
        waiting.has_head || waiting.found_none.is_some_and(|when| when.elapsed() < AFTER_NONE)
    }

    /// Whether others wait and no group has begun more look-ups than this one.
    fn is_wanted_of(&self, group: &Who) -> bool {
        let waiting = self.lock();
        let own = waiting.begun.get(group).map_or(0, |begun| begun.count);
        waiting.has_head && waiting.begun.values().all(|begun| begun.count <= own)
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

/// A look-up that may or may not have had its turn.
#[derive(Debug)]
pub struct LookUp<'a> {
    spare: &'a Spare,
    asker: Asker<'a>,
    has_begun: AtomicBool,
}

impl LookUp<'_> {
    /// Whether name servers are, or were, asked for the last name that [`LookUp::turn`] was waited for.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Name servers are asked for the name that it waits for, whosever turn that is.
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// The group that it is for.
    pub fn group(&self) -> Who {
        self.asker.places().0
    }

    /// Waits for a turn, which comes with so many descriptors.
    pub async fn turn(&self, descriptors: u32) -> Turn {
        self.has_begun.store(false, Ordering::Relaxed);
        self.spare.in_turn(&self.asker, descriptors).await
    }
}

/// A turn of a look-up. Its descriptors are counted until this is dropped.
#[derive(Debug)]
pub struct Turn {
    spare: Spare,
    group: Who,
    since: Instant,
    descriptors: u32,
    /// Whether it was exempt when it began.
    begun_exempt: bool,
    /// `None`: the timeout holds for it.
    exempt: Option<OwnedSemaphorePermit>,
    _counted: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// The group whose turn it is.
    pub fn group(&self) -> Who {
        self.group.clone()
    }

    /// Whether it has its whole time, however many wait.
    pub fn is_exempt(&self) -> bool {
        self.exempt.is_some()
    }

    /// Completes when the turn gives way to others, with whether anyone still waited for the look-up, as `is_waited_for` says.
    pub async fn is_over(&mut self, is_waited_for: impl Fn() -> bool) -> bool {
        loop {
            sleep(CHECK_INTERVAL).await;
            let is_waited_for = is_waited_for();
            if self.gives_way(is_waited_for) {
                return is_waited_for;
            }
        }
    }

    /// Whether others want its descriptors and it has no more right to them. If anyone waits for the look-up, that is when it
    /// has taken too long and is of those who have most, but never while it is exempt. If nobody does, it is not exempt until
    /// someone does again.
    fn gives_way(&mut self, is_waited_for: bool) -> bool {
        let is_exempt = is_waited_for && self.begun_exempt;
        if is_exempt != self.exempt.is_some() {
            let mut waiting = self.spare.lock();
            if let Some(begun) = waiting.begun.get_mut(&self.group) {
                if is_exempt {
                    self.exempt = begun.exempt(&self.spare.exempt, self.descriptors);
                } else {
                    (self.exempt, begun.has_exempt) = (None, false);
                }
            }
        }
        if !is_waited_for {
            return self.spare.is_wanted();
        }
        self.exempt.is_none() && self.since.elapsed() >= WHILE_OTHERS_WAIT && self.spare.is_wanted_of(&self.group)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut waiting = self.spare.lock();
        if let Some(begun) = waiting.begun.get_mut(&self.group) {
            begun.count -= 1;
            begun.has_exempt &= self.exempt.is_none();
            if begun.count == 0 {
                waiting.begun.remove(&self.group);
            }
        }
    }
}

#[cfg(test)]
mod tests;
