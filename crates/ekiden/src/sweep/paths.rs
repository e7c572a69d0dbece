//! The paths that nodes of an overlay chose in a single run.

use std::fmt::Write as _;

use ekiden_record::{Chosen, Record};

/// How many paths are shown of each pair of nodes.
const SHOWN: usize = 3;

/// A line for each node and exit.
pub fn paths(record: &Record) -> String {
    let mut text = String::new();
    for Chosen { node, exit, streams, changes } in &record.overlay {
        let of = streams.iter().take(SHOWN).map(|of| format!("{} over {}", of.streams, of.path.join(" → ")));
        let rest = streams.len().saturating_sub(SHOWN);
        let rest = (rest > 0).then(|| format!("{rest} more paths"));
        let all: Vec<String> = of.chain(rest).collect();
        let last = changes.last().map_or("no path known".into(), |change| {
            format!("the last one in use since {:.1} s: {}", change.at_us as f64 / 1e6, change.because)
        });
        let _ = writeln!(text, "streams from {node} to {exit}: {}; {last}", all.join(", "));
    }
    text
}
