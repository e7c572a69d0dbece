//! Checks passwords one at a time, on a thread of its own that reuses its memory.
//!
//! Sites take turns, and within a site its clients' addresses, so that a client that guesses delays another by at most one
//! guess. The queue is bounded, for each address and in all. A client that stops waiting leaves it at once.
//!
//! A site is an IPv4 address, or an IPv6 network of 48 bits: sites are given networks of 48 to 56 bits (RFC 6177), of which
//! each would fill the queue with one guess from each of its networks of 64 bits. If a provider gives each customer 64 bits,
//! neighbours are a site together; within it each still has turns of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_transport::fair_queue::FairQueue;
use tokio::sync::oneshot;

use crate::access::quota::ClientKey;

/// The most passwords of one address that may wait.
pub const WAITING_EACH: usize = 32;

/// The most passwords that may wait in all: some seconds' work.
pub const WAITING: usize = 256;

/// The thread ends, and frees its memory, after this time without work.
const CALM: Duration = Duration::from_secs(10);

/// A password and the hash that it may belong to.
#[derive(Debug)]
pub struct Guess {
    pub hash: String,
    pub password: Vec<u8>,
}

/// Why a password was not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Crowded {
    /// The client's address has as many waiting as it may.
    #[error("{WAITING_EACH} passwords from this address wait to be checked")]
    Client,
    /// The node has as many waiting as it may.
    #[error("{WAITING} passwords wait to be checked")]
    Node,
    /// There is no thread to check it.
    #[error("no thread can be started to check passwords")]
    NoThread,
}

/// The function that checks a guess. Each thread gets a new one.
pub type Check = Box<dyn FnMut(&Guess) -> bool>;

/// The queue and its thread, which runs only while there is something to check.
#[derive(Debug)]
pub struct Checker {
    shared: Arc<Shared>,
    /// Makes the check, on the thread.
    check: fn() -> Check,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when the queue is no longer empty, or is closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// The groups are sites, and their members clients' addresses.
    jobs: FairQueue<ClientKey, Job>,
    has_thread: bool,
    is_over: bool,
}

#[derive(Debug)]
struct Job {
    guess: Guess,
    answer: oneshot::Sender<bool>,
}

/// A job's place in the queue, given up when dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    client: ClientKey,
    number: u64,
}

impl Checker {
    /// A queue of guesses that `check` decides.
    pub fn new(check: fn() -> Check) -> Self {
        Self { shared: Arc::default(), check }
    }

    /// Whether the password of `guess` belongs to its hash. Dropping the future takes it out of the queue.
    ///
    /// # Errors
    /// It cannot be checked now.
    pub async fn check(&self, client: ClientKey, guess: Guess) -> Result<bool, Crowded> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut queue = self.shared.lock();
            let number = queue.enter(client, guess, answer)?;
            if !queue.has_thread {
                queue.has_thread = self.start();
            }
            if !queue.has_thread {
                queue.leave(client, number);
                return Err(Crowded::NoThread);
            }
            number
        };
        self.shared.changed.notify_one();
        let _waiting = Waiting { shared: &self.shared, client, number };
        // The sender was dropped: the job was removed to make room for another address's.
        answered.await.map_err(|_| Crowded::Node)
    }

    fn start(&self) -> bool {
        let (shared, check) = (self.shared.clone(), self.check);
        let thread = std::thread::Builder::new().name("logins".into());
        thread.spawn(move || shared.work(check())).is_ok()
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn work(&self, mut check: Check) {
        // Another thread takes over from one that panicked.
        struct Unwinding<'a>(&'a Shared);
        impl Drop for Unwinding<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.lock().has_thread = false;
                }
            }
        }
        let _unwinding = Unwinding(self);
        while let Some(Job { guess, answer, .. }) = self.next() {
            // The waiter may have left.
            let _ = answer.send(check(&guess));
        }
    }

    /// The next job. `None` if the thread is to end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.is_over {
                return None;
            }
            if let Some(job) = queue.jobs.take() {
                return Some(job);
            }
            let (after, wait) = self.changed.wait_timeout(queue, CALM).unwrap_or_else(PoisonError::into_inner);
            queue = after;
            if wait.timed_out() && queue.jobs.is_empty() {
                queue.has_thread = false;
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn enter(&mut self, client: ClientKey, guess: Guess, answer: oneshot::Sender<bool>) -> Result<u64, Crowded> {
        let site = client.site();
        if self.jobs.len_of(&site, &client) >= WAITING_EACH {
            return Err(Crowded::Client);
        }
        if self.jobs.len() >= WAITING {
            let (site, client, last) = self.jobs.last_of_most(&site, &client).ok_or(Crowded::Node)?;
            self.jobs.leave(&site, &client, last);
        }
        Ok(self.jobs.enter(site, client, Job { guess, answer }))
    }

    fn leave(&mut self, client: ClientKey, number: u64) {
        self.jobs.leave(&client.site(), &client, number);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.lock().leave(self.client, self.number);
    }
}

#[cfg(test)]
mod tests;
