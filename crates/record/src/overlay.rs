//! The paths that nodes of an overlay chose.

use serde::{Deserialize, Serialize};

/// What a node chose for streams that leave the overlay at another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// The node that chose.
    pub node: String,
    /// The node at which the streams leave the overlay.
    pub exit: String,
    /// How many streams each path was chosen for, the most first; of 64 paths at most.
    pub streams: Vec<StreamsOnPath>,
    /// Each change of the path in use, the first choice among them, ordered by time; the last 64.
    pub changes: Vec<PathChange>,
}

/// The streams of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamsOnPath {
    /// All of its nodes, from the one that chose to the one at which the streams leave.
    pub path: Vec<String>,
    /// For how many it was chosen, those that tried it among them.
    pub streams: u64,
}

/// A path that came into use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathChange {
    /// Since the start of the run.
    pub at_us: u64,
    /// All of its nodes.
    pub path: Vec<String>,
    /// Why: the end of a sentence that begins with "because".
    pub because: String,
}

impl Chosen {
    /// With the paths in any order.
    pub fn new(node: &str, exit: &str, mut streams: Vec<StreamsOnPath>, changes: Vec<PathChange>) -> Self {
        streams.sort_by(|a, b| b.streams.cmp(&a.streams).then_with(|| a.path.cmp(&b.path)));
        Self { node: node.into(), exit: exit.into(), streams, changes }
    }
}
