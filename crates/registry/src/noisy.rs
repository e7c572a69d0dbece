//! Which nodes write their records without end. Meanwhile they are no members, so that no other node has work with each
//! record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The period over which records are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// The number of records within [`WINDOW`] from which on a node is noisy. A healthy node writes a few for each of its
/// leases.
const NOISY: u32 = 100;

/// What nodes have written lately.
pub struct Noisy {
    /// When the present count began.
    since: Instant,
    written: BTreeMap<String, u32>,
    noisy: BTreeSet<String>,
}

impl Noisy {
    /// No node has written anything.
    pub fn new(now: Instant) -> Self {
        Self { since: now, written: BTreeMap::new(), noisy: BTreeSet::new() }
    }

    /// A node has written a record.
    pub fn count(&mut self, node: &str) {
        let written = self.written.entry(node.to_owned()).or_default();
        *written += 1;
        if *written == NOISY {
            self.noisy.insert(node.to_owned());
        }
    }

    /// Those that are noisy, and why they are ignored.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, String)> {
        self.noisy.iter().map(|node| (node.as_str(), reason()))
    }

    /// Starts a new count when the period is over. Returns whether a node has become calm.
    pub fn look(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) < WINDOW {
            return false;
        }
        self.since = now;
        let before = self.noisy.len();
        let written = std::mem::take(&mut self.written);
        self.noisy.retain(|node| written.get(node).is_some_and(|count| *count >= NOISY));
        self.noisy.len() < before
    }

    /// When [`Noisy::look`] may find that a node has become calm.
    pub fn next_look(&self) -> Option<Instant> {
        (!self.noisy.is_empty()).then(|| self.since + WINDOW)
    }
}

fn reason() -> String {
    format!(
        "it writes its record again and again, {NOISY} times within {WINDOW:?} or more, until etcd has no space left: the operator can expel it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_noisy_until_it_has_been_calm_for_a_while() {
        let start = Instant::now();
        let mut noisy = Noisy::new(start);
        let write = |noisy: &mut Noisy, node: &str, times: u32| (0..times).for_each(|_| noisy.count(node));
        write(&mut noisy, "a", NOISY - 1);
        write(&mut noisy, "b", 3);
        assert_eq!(noisy.nodes().count(), 0);
        write(&mut noisy, "a", 1000);
        assert!(noisy.nodes().map(|(node, _)| node).eq(["a"]));
        assert_eq!(noisy.next_look(), Some(start + WINDOW));
        // It goes on, and then stops.
        assert!(!noisy.look(start + WINDOW / 2) && !noisy.look(start + WINDOW));
        write(&mut noisy, "a", NOISY);
        assert!(!noisy.look(start + 2 * WINDOW));
        assert!(noisy.look(start + 3 * WINDOW));
        assert_eq!((noisy.nodes().count(), noisy.next_look()), (0, None));
    }
}
