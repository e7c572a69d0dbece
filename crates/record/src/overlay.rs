//! The paths that nodes of an overlay chose.

use serde::{Deserialize, Serialize};

/// What a node chose for streams that leave the overlay at another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// The node that chose.
    pub node: String,
    /// The node at which the streams leave the overlay.
    pub exit: String,
    /// How many streams took each path, the most first.
    pub streams: Vec<StreamsOnPath>,
    /// Each change of the path in use, the first choice among them, ordered by time. Of a real node the last 64.
    pub changes: Vec<PathChange>,
}

/// The streams of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamsOnPath {
    /// All of its nodes, from the one that chose to the one at which the streams leave.
    pub path: Vec<String>,
    /// How many were sent over it, those among them that tried it.
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
