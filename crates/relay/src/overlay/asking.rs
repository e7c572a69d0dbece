//! When a node's questions are answered: each of them costs a look at all that is known of legs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Owner;

/// The interval at which one node is answered. A healthy node asks once in 2 s, and a few times at once when it starts.
const EVERY: Duration = Duration::from_millis(50);

/// The burst: questions that are answered at once after a pause.
const AT_ONCE: u32 = 20;

/// The maximum wait of a question: a node that floods delays others with the same key by no more than that.
const WAIT_MOST: Duration = Duration::from_secs(2);

/// The number of nodes that are remembered. Beyond it, those that have not asked lately are forgotten.
const REMEMBERED: usize = 1024;

/// The turns of all nodes, over all of their connections, by the owner of the connection: a node's name identifies nobody
/// where nodes share a key.
#[derive(Debug, Default)]
pub struct Asking(Mutex<HashMap<Owner, Instant>>);

impl Asking {
    /// How long this node's next question waits for its answer.
    pub fn wait(&self, node: &Owner, now: Instant) -> Duration {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= REMEMBERED && !turns.contains_key(node) {
            turns.retain(|_, full| *full > now);
        }
        // Until then the whole burst has been asked.
        let full = turns.entry(node.clone()).or_insert(now);
        *full = ((*full).max(now) + EVERY).min(now + EVERY * AT_ONCE + WAIT_MOST);
        (*full - now).saturating_sub(EVERY * AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_without_end_waits_and_nobody_else_does() {
        let (asking, now) = (Asking::default(), Instant::now());
        let (flood, other) = (Owner::from("flood"), Owner::from("other"));
        let waits: Vec<Duration> = (0..1000).map(|_| asking.wait(&flood, now)).collect();
        assert_eq!(waits.iter().filter(|wait| wait.is_zero()).count(), AT_ONCE as usize);
        assert_eq!(waits[59], EVERY * (60 - AT_ONCE));
        assert_eq!(waits[999], WAIT_MOST);
        assert_eq!(asking.wait(&other, now), Duration::ZERO);
        // A node that asks at the usual rate never waits.
        let asks = (0..100).map(|second| asking.wait(&other, now + Duration::from_secs(second)));
        assert_eq!(asks.max(), Some(Duration::ZERO));
        for node in 0..5000 {
            asking.wait(&node.to_string().into(), now + Duration::from_secs(60 * node));
        }
        assert!(asking.0.lock().unwrap().len() <= REMEMBERED);
    }
}
