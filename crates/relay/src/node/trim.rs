//! Returns the memory of many closed connections to the kernel.

use std::time::{Duration, Instant};

use ekiden_net::allocator;

/// Returns memory to the kernel after many connections have ended. The allocator by itself keeps every page of which any part
/// is in use, and so most of the memory of connections that are gone.
#[derive(Debug)]
pub struct Trimmer {
    /// The most connections since memory was last given back.
    most: usize,
    /// How many there were at the last check.
    last: usize,
    trimmed: Instant,
}

impl Trimmer {
    /// Returning memory pays if at least this many connections have closed, and they were half of all.
    const FEWEST: usize = 256;

    /// The least time between two returns: each costs milliseconds.
    const PAUSE: Duration = Duration::from_secs(5);

    /// There are no connections yet.
    pub fn new() -> Self {
        Self { most: 0, last: 0, trimmed: Instant::now() }
    }

    /// Takes the number of `open` connections, and `most`, the peak since the last call. To be called about once a second.
    pub fn observe(&mut self, open: usize, most: usize) {
        let now = Instant::now();
        self.most = self.most.max(most);
        if self.is_due(open, now) {
            // Beside the event loops, which wait only where they share an arena.
            tokio::task::spawn_blocking(allocator::give_back);
        }
    }

    fn is_due(&mut self, open: usize, now: Instant) -> bool {
        self.most = self.most.max(open);
        // The rest of it may be about to go.
        let is_going = open < std::mem::replace(&mut self.last, open);
        let are_many = self.most - open >= Self::FEWEST.max(self.most / 2);
        let is_due = are_many && !is_going && now - self.trimmed >= Self::PAUSE;
        if is_due {
            (self.most, self.trimmed) = (open, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_a_crowd_has_gone_and_not_all_the_time() {
        let mut trimmer = Trimmer::new();
        let start = trimmer.trimmed;
        let mut due = |open, seconds| trimmer.is_due(open, start + Duration::from_secs(seconds));
        assert!(!due(8000, 10));
        assert!(!due(4001, 11) && !due(4001, 12));
        assert!(!due(3000, 13), "more may go at once");
        assert!(due(3000, 14));
        assert!(!due(10, 15) && !due(10, 16), "not yet again");
        assert!(due(10, 19));
        assert!(!due(255, 30) && !due(0, 40) && !due(0, 41), "these are few");
        assert!(!due(256, 50) && !due(0, 60) && due(0, 61));
    }
}
