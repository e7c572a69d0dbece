//! Returns the memory of many closed connections to the kernel.

use std::time::{Duration, Instant};

use ekiden_net::allocator;

/// Returns memory to the kernel after many connections have ended. The allocator by itself keeps every page of which any part
/// is in use, and so most of the memory of connections that are gone.
#[derive(Debug)]
pub struct Crowd {
    /// The most connections since memory was last given back.
    most: usize,
    /// How many there were at the last check.
    last: usize,
    given_back: Instant,
}

impl Crowd {
    /// This many closed connections are worth it, if they were half of all.
    const GONE: usize = 256;

    /// The least time between two returns: each costs milliseconds.
    const PAUSE: Duration = Duration::from_secs(5);

    /// Nobody is there yet.
    pub fn new() -> Self {
        Self { most: 0, last: 0, given_back: Instant::now() }
    }

    /// So many connections are `open`, and `most` were at one time since the last call. To be called about once a second.
    pub fn look(&mut self, open: usize, most: usize) {
        let now = Instant::now();
        self.most = self.most.max(most);
        if self.has_gone(open, now) {
            // Beside the event loops, which wait only where they share an arena.
            tokio::task::spawn_blocking(allocator::give_back);
        }
    }

    fn has_gone(&mut self, open: usize, now: Instant) -> bool {
        self.most = self.most.max(open);
        // The rest of it may be about to go.
        let is_going = open < std::mem::replace(&mut self.last, open);
        let are_many = self.most - open >= Self::GONE.max(self.most / 2);
        let has_gone = are_many && !is_going && now - self.given_back >= Self::PAUSE;
        if has_gone {
            (self.most, self.given_back) = (open, now);
        }
        has_gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_a_crowd_has_gone_and_not_all_the_time() {
        let mut crowd = Crowd::new();
        let start = crowd.given_back;
        let mut gone = |open, seconds| crowd.has_gone(open, start + Duration::from_secs(seconds));
        assert!(!gone(8000, 10));
        assert!(!gone(4001, 11) && !gone(4001, 12));
        assert!(!gone(3000, 13), "more may go at once");
        assert!(gone(3000, 14));
        assert!(!gone(10, 15) && !gone(10, 16), "not yet again");
        assert!(gone(10, 19));
        assert!(!gone(255, 30) && !gone(0, 40) && !gone(0, 41), "these are few");
        assert!(!gone(256, 50) && !gone(0, 60) && gone(0, 61));
    }
}
