//! The descriptors that a node has for looking names up, for trying a name's addresses beside each other and for FTP's second
//! connection. Each connection is reckoned with two, its own and one towards its destination: what takes more is counted here
//! before it is opened.

use ekiden_net::socket;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Part of the open files, and how many that is at least and at most.
const PART: usize = 8;
const LEAST: usize = 16;
const MOST: usize = 4096;

/// What a look-up takes: two families, each asked for at two name servers at once.
const LOOK_UP: u32 = 4;

/// Descriptors that may still be opened. One for all threads.
#[derive(Debug)]
pub struct Spare(Semaphore);

/// Descriptors that are counted until this is dropped.
pub type Counted<'a> = SemaphorePermit<'a>;

/// How many descriptors a node keeps for this, of those that the limit of open files allows.
pub fn kept() -> usize {
    let files = socket::open_files().map_or(MOST, |files| usize::try_from(files).unwrap_or(usize::MAX));
    (files / PART).clamp(LEAST, MOST)
}

impl Spare {
    /// With so many.
    pub fn new(descriptors: usize) -> Self {
        Self(Semaphore::new(descriptors))
    }

    /// One, unless all are in use.
    pub fn one(&self) -> Option<Counted<'_>> {
        self.0.try_acquire().ok()
    }

    /// What a look-up takes, when it is free. `None`: never.
    pub async fn look_up(&self) -> Option<Counted<'_>> {
        self.0.acquire_many(LOOK_UP).await.ok()
    }
}
