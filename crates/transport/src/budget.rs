//! Counts the bytes that this process holds for others: those that were read and could not yet be written, in memory and in
//! pipes, and what connections hold whose other ends have not proven yet who they are.
//!
//! One stream holds little, but there may be many. From half of the limit on, streams move smaller pieces. At the limit no new
//! stream begins. A running stream never waits until another frees memory.

use std::sync::atomic::{AtomicUsize, Ordering};

/// For all nodes of the process together, because they share its memory.
static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The bytes that one holder holds. They count until it is dropped.
#[derive(Debug, Default)]
pub struct Holding(u32);

impl Holding {
    /// Sets how many bytes it holds.
    pub fn set(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes > self.0 {
            HELD.fetch_add((bytes - self.0) as usize, Ordering::Relaxed);
        } else if bytes < self.0 {
            HELD.fetch_sub((self.0 - bytes) as usize, Ordering::Relaxed);
        }
        self.0 = bytes;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Sets the limit, in bytes.
pub fn limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// The bytes that are held now.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Whether the limit is reached, so that nothing new may begin.
pub fn is_full() -> bool {
    held() >= LIMIT.load(Ordering::Relaxed)
}

/// Whether half of the limit is reached, so that streams must move smaller pieces.
pub fn is_scarce() -> bool {
    held() >= LIMIT.load(Ordering::Relaxed) / 2
}
