//! What the running nodes of an overlay have chosen.

use ekiden_net::clock::monotonic_ns;
use ekiden_record::{Chosen, PathChange, StreamsOnPath};
use serde::Deserialize;

use crate::{Error, Lab};

impl Lab {
    /// Which paths the nodes of the overlay have chosen for streams, and when, counted from `origin_us` of the monotonic clock.
    pub(crate) fn chosen_paths(&self, origin_us: u64) -> Result<Vec<Chosen>, Error> {
        let mut all = Vec::new();
        for node in self.scenario.members() {
            let status: ChoiceStatus = self.ask(node, "overlay", &["--node", node])?;
            let now_us = (monotonic_ns() / 1_000).saturating_sub(origin_us);
            all.extend(status.exits.into_iter().map(|exit| exit.chosen(node, now_us)));
        }
        Ok(all)
    }
}

/// What `ekiden overlay status --json` says, as far as the lab needs it.
#[derive(Deserialize)]
struct ChoiceStatus {
    exits: Vec<Exit>,
}

#[derive(Deserialize)]
struct Exit {
    exit: String,
    taken: Vec<Taken>,
    history: Vec<Change>,
}

#[derive(Deserialize)]
struct Taken {
    path: Vec<String>,
    streams: u64,
}

#[derive(Deserialize)]
struct Change {
    ago_s: f64,
    path: Vec<String>,
    why: String,
}

impl Exit {
    /// `now_us` is when the node said it.
    fn chosen(self, node: &str, now_us: u64) -> Chosen {
        let whole = |behind: Vec<String>| [vec![node.to_owned()], behind].concat();
        let taken = self.taken.into_iter().map(|of| StreamsOnPath { path: whole(of.path), streams: of.streams });
        let change = |of: Change| PathChange {
            at_us: now_us.saturating_sub((of.ago_s * 1e6) as u64),
            path: whole(of.path),
            because: of.why,
        };
        Chosen::new(node, &self.exit, taken.collect(), self.history.into_iter().map(change).collect())
    }
}
