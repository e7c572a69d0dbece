//! Of which builds other nodes are, as they have said.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ekiden_relay_proto::leg::About;

/// Nodes whose builds are known at most. Those that share a key call themselves as they like.
const KNOWN_MOST: usize = 1024;

/// Builds by what a node is known as: a peer's name, or the key of one that connects.
#[derive(Debug, Default)]
pub struct Builds(Mutex<HashMap<String, String>>);

impl Builds {
    /// A node has said this of itself.
    pub fn learn(&self, who: &str, about: &About) {
        let build = &about.build;
        if build.is_empty() {
            return;
        }
        let mut known = self.lock();
        let has_room = known.len() < KNOWN_MOST;
        match known.get_mut(who) {
            Some(before) => before.clone_from(build),
            None if has_room => drop(known.insert(who.to_owned(), build.clone())),
            None => {}
        }
    }

    /// What it has said; `None` if it has said nothing.
    pub fn of(&self, who: &str) -> Option<String> {
        self.lock().get(who).cloned()
    }

    /// For a line of the log about a node that says what this one does not know.
    pub fn beside_ours(&self, who: &str) -> String {
        let theirs = self.of(who).map_or_else(|| "another build".to_owned(), |build| format!("ekiden {build}"));
        format!("it is {theirs}, and this node ekiden {}", About::own().build)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
