//! Counts the descriptors that connections need beyond two: for name look-ups, for addresses that are tried at the same time,
//! and for FTP's data connection. Every connection is counted with two, its own and the one to its destination. Any other is
//! counted here before it is opened.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ekiden_net::socket;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;

/// The number of spare descriptors is the open-file limit divided by `PART`, but at least `LEAST` and at most `MOST`.
const PART: usize = 8;
const LEAST: usize = 16;
const MOST: usize = 4096;

/// The descriptors of a look-up: two address families, each asked for by UDP and, if the answer is long, by TCP.
const LOOKUP_DESCRIPTORS: u32 = 4;

/// The timeout of a look-up while others wait to begin. The owner of a name decides how slowly it is answered, and a client
/// may have several times as many connections as there are look-ups at a time. So each waits for a few such periods at most.
const WHILE_OTHERS_WAIT: Duration = Duration::from_secs(1);

/// How often a look-up that takes longer checks whether any wait.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Descriptors that may still be opened. One for all threads.
#[derive(Debug)]
pub struct Spare {
    free: Semaphore,
    /// How many look-ups wait for descriptors.
    waiting: AtomicUsize,
}

/// Descriptors that are counted until this is dropped.
pub type Counted<'a> = SemaphorePermit<'a>;

/// How many descriptors a node keeps for this, of those that the limit of open files allows.
pub fn kept() -> usize {
    let files = socket::open_files().map_or(MOST, |files| usize::try_from(files).unwrap_or(usize::MAX));
    (files / PART).clamp(LEAST, MOST)
}

impl Spare {
    /// With this many descriptors.
    pub fn new(descriptors: usize) -> Self {
        Self { free: Semaphore::new(descriptors), waiting: AtomicUsize::new(0) }
    }

    /// Reserves one descriptor. `None` if all are in use.
    pub fn one(&self) -> Option<Counted<'_>> {
        self.free.try_acquire().ok()
    }

    /// Waits for the descriptors of a look-up. It never returns `None`.
    pub async fn look_up(&self) -> Option<Counted<'_>> {
        if let Ok(counted) = self.free.try_acquire_many(LOOKUP_DESCRIPTORS) {
            return Some(counted);
        }
        let _waiting = Waiting::new(&self.waiting);
        self.free.acquire_many(LOOKUP_DESCRIPTORS).await.ok()
    }

    /// Completes when a look-up that begins now has taken too long and others wait to begin.
    pub async fn give_way(&self) {
        sleep(WHILE_OTHERS_WAIT).await;
        while self.waiting.load(Ordering::Relaxed) == 0 {
            sleep(CHECK_INTERVAL).await;
        }
    }
}

/// Counts one that waits until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
