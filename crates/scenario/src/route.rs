//! Shortest paths over the links of a scenario.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
    let numbered =
        |link: &Link| Some([scenario.nodes.get_index_of(&link.ends[0])?, scenario.nodes.get_index_of(&link.ends[1])?]);
    let ends: Vec<[usize; 2]> = scenario.links.values().map(numbered).collect::<Option<_>>()?;
    let mut best: Vec<Option<(u64, usize)>> = vec![None; scenario.nodes.len()];
    // By which link, and from which of its ends.
    let mut came: Vec<Option<(usize, usize)>> = vec![None; scenario.nodes.len()];
    best[start] = Some((0, 0));
    let mut open = BinaryHeap::from([Reverse(((0u64, 0usize), start))]);
    while let Some(Reverse((cost, node))) = open.pop() {
        if best[node].is_some_and(|known| cost > known) {
            continue;
        }
        if node == goal {
            break;
        }
        if node != start && !scenario.nodes[node].forwards_packets() {
            continue;
        }
        for (at, of_link) in ends.iter().enumerate() {
            let Some(end) = of_link.iter().position(|end| *end == node) else { continue };
            let next = of_link[1 - end];
            let next_cost = (cost.0 + scenario.links[at].from_end(end).delay.0, cost.1 + 1);
            if best[next].is_none_or(|known| next_cost < known) {
                best[next] = Some(next_cost);
                came[next] = Some((at, end));
                open.push(Reverse((next_cost, next)));
            }
        }
    }
    let mut hops = Vec::new();
    let mut node = goal;
    while node != start {
        let (at, end) = came[node]?;
        let (name, link) = scenario.links.get_index(at)?;
        hops.push(Hop { name, link, from: &link.ends[end], to: &link.ends[1 - end] });
        node = ends[at][end];
    }
    hops.reverse();
    Some(hops)
}
