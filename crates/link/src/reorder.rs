//! Packets that come out late, so that later ones overtake them.

use std::collections::VecDeque;

use ekiden_units::Fraction;

use ekiden_units::random::{self, Random};

use crate::Direction;

/// Chooses them, each independently.
#[derive(Debug, Clone)]
pub(crate) struct Reorder {
    part: Fraction,
    by_ns: u64,
    random: Random,
}

impl Reorder {
    /// That of a direction, if it has any.
    pub fn new(direction: &Direction, seed: u64) -> Option<Self> {
        let by_ns = direction.reorder_by?.0;
        let random = Random::new(random::derive(seed, "reorder", 0));
        (direction.reorder.0 > 0).then_some(Self { part: direction.reorder, by_ns, random })
    }

    /// When the next packet comes out, which would at `in_order_ns`.
    pub fn delay(&mut self, in_order_ns: u64) -> u64 {
        match self.random.is_below(self.part) {
            true => in_order_ns.saturating_add(self.by_ns),
            false => in_order_ns,
        }
    }
}

/// Puts a packet among those that are under way, behind all that are due when it is or earlier.
#[inline]
pub fn put<P>(under_way: &mut VecDeque<(u64, P)>, due_ns: u64, packet: P) {
    // All but the reordered ones go to the end.
    if under_way.back().is_none_or(|(last_ns, _)| *last_ns <= due_ns) {
        return under_way.push_back((due_ns, packet));
    }
    let later = under_way.iter().rev().take_while(|(other_ns, _)| *other_ns > due_ns).count();
    under_way.insert(under_way.len() - later, (due_ns, packet));
}
