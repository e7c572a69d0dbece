//! Shortest paths over the links of a scenario.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::{Direction, Link, Scenario};

/// One link of a path, in the direction in which it is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop<'a> {
    /// The link's name.
    pub name: &'a str,
    /// The link.
    pub link: &'a Link,
    /// The node it is entered from.
    pub from: &'a str,
    /// The node it leads to.
    pub to: &'a str,
}

impl<'a> Hop<'a> {
    /// The direction of the link.
    pub fn direction(&self) -> &'a Direction {
        self.link.from_end(usize::from(self.link.ends[0] != self.from))
    }
}

/// Dijkstra's algorithm over (delay, hops). Ties fall to the link that stands first in the file, so that the lab and
/// the simulator take the same way.
pub(crate) fn path<'a>(scenario: &'a Scenario, from: &str, to: &str) -> Option<Vec<Hop<'a>>> {
    let start = scenario.nodes.get_index_of(from)?;
    let goal = scenario.nodes.get_index_of(to)?;
    let mut best: BTreeMap<usize, (u64, usize)> = BTreeMap::from([(start, (0, 0))]);
    let mut came: BTreeMap<usize, Hop<'a>> = BTreeMap::new();
    let mut open = BinaryHeap::from([Reverse(((0u64, 0usize), start))]);
    while let Some(Reverse((cost, node))) = open.pop() {
        if cost > best[&node] {
            continue;
        }
        if node == goal {
            break;
        }
        let (name, described) = scenario.nodes.get_index(node)?;
        if node != start && !described.forwards_packets() {
            continue;
        }
        for (link_name, link) in &scenario.links {
            let Some(end) = link.ends.iter().position(|end| end == name) else { continue };
            let far = &link.ends[1 - end];
            let next = scenario.nodes.get_index_of(far)?;
            let next_cost = (cost.0 + link.from_end(end).delay.0, cost.1 + 1);
            if best.get(&next).is_none_or(|&known| next_cost < known) {
                best.insert(next, next_cost);
                came.insert(next, Hop { name: link_name, link, from: &link.ends[end], to: far });
                open.push(Reverse((next_cost, next)));
            }
        }
    }
    let mut hops = Vec::new();
    let mut node = goal;
    while node != start {
        let hop = came.get(&node)?;
        hops.push(*hop);
        node = scenario.nodes.get_index_of(hop.from)?;
    }
    hops.reverse();
    Some(hops)
}
