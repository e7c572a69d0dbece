//! What this process holds of others' bytes, in all: what was read and could not yet be written, in memory and in pipes.
//!
//! One stream holds little, but there may be many. Near the limit streams move smaller pieces, and at the limit nothing new
//! begins; none that runs ever waits for another to let go.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Of all nodes of the process: memory is the process's.
static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Bytes that one holder holds; counted until it is dropped.
#[derive(Debug, Default)]
pub struct Holding(u32);

impl Holding {
    /// It holds this many now.
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

/// Whether nothing new may begin.
pub fn is_full() -> bool {
    HELD.load(Ordering::Relaxed) >= LIMIT.load(Ordering::Relaxed)
}

/// Whether streams must do with little.
pub fn is_scarce() -> bool {
    HELD.load(Ordering::Relaxed) >= LIMIT.load(Ordering::Relaxed) / 2
}
