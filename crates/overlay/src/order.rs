//! In which order the exits near a destination are tried: by how near they are, but those that have led nowhere a short while ago come last.
//!
//! An exit says nothing also where its destination does not answer. So one that says nothing comes last for that destination, and for all
//! only if it has said nothing to several and has answered nothing since.

use std::collections::BTreeMap;

use ekiden_units::Time;

/// An exit that has led nowhere comes last for so long. Then one stream tries it.
const LAST: Time = Time::secs(30);
/// An exit that has said nothing to so many destinations, and has answered nothing since, is left for all.
const SILENT_FOR_ALL: usize = 3;
/// So many destinations are remembered of each exit.
const DESTINATIONS_MOST: usize = 64;

/// What streams have seen of exits that others can stand in for.
#[derive(Debug, Default)]
pub struct Order(BTreeMap<String, Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Since when it comes last for all destinations.
    left: Option<Time>,
    /// When it last answered a stream.
    answered: Option<Time>,
    /// The destinations of which it has said nothing, and since when it comes last for each.
    silent: BTreeMap<String, Time>,
}

impl Order {
    /// No path has led to an exit.
    pub fn lost(&mut self, exit: &str, now: Time) {
        self.0.entry(exit.to_owned()).or_default().left = Some(now);
    }

    /// An exit has said nothing of a stream to `destination`, which another exit has reached meanwhile. It was asked for that at `asked`.
    pub fn silent(&mut self, exit: &str, destination: &str, asked: Time, now: Time) {
        let seen = self.0.entry(exit.to_owned()).or_default();
        seen.silent.insert(destination.to_owned(), now);
        if seen.silent.len() > DESTINATIONS_MOST
            && let Some(oldest) = seen.silent.iter().min_by_key(|(_, at)| **at).map(|(to, _)| to.clone())
        {
            seen.silent.remove(&oldest);
        }
        let answered = seen.answered;
        let counts = |at: &&Time| now.since(**at) < LAST && answered.is_none_or(|answered| **at > answered);
        let is_mute = answered.is_none_or(|answered| asked > answered);
        if is_mute && seen.silent.values().filter(counts).count() >= SILENT_FOR_ALL {
            seen.left = Some(now);
        }
    }

    /// An exit has answered a stream to `destination`: it has opened it, or has said why not.
    pub fn answered(&mut self, exit: &str, destination: &str, now: Time) {
        let seen = self.0.entry(exit.to_owned()).or_default();
        seen.silent.remove(destination);
        (seen.left, seen.answered) = (None, Some(now));
    }

    /// Puts those that have led nowhere, or not to `destination`, behind the others. Once in a while a stream has the old order.
    pub fn sort(&mut self, exits: &mut [&str], destination: &str, now: Time) {
        if exits.len() < 2 {
            return;
        }
        exits.sort_by_cached_key(|exit| {
            let Some(seen) = self.0.get_mut(*exit) else { return false };
            // Whoever comes while this stream tries it goes elsewhere.
            let is_last = |at: &mut Time| {
                let is_last = now.since(*at) < LAST;
                if !is_last {
                    *at = now;
                }
                is_last
            };
            let for_all = seen.left.as_mut().is_some_and(is_last);
            let for_this = seen.silent.get_mut(destination).is_some_and(is_last);
            for_all || for_this
        });
    }

    /// Forgets the exits for which this does not hold.
    pub fn retain(&mut self, holds: impl Fn(&str) -> bool) {
        self.0.retain(|exit, _| holds(exit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: &mut Order, destination: &str, now: u64) -> String {
        let mut exits = ["a", "b"];
        order.sort(&mut exits, destination, Time::secs(now));
        exits.concat()
    }

    #[test]
    fn an_exit_that_is_lost_comes_last_until_one_stream_has_tried_it() {
        let mut order = Order::default();
        assert_eq!(sorted(&mut order, "x", 0), "ab");
        order.lost("a", Time::secs(1));
        assert_eq!(sorted(&mut order, "x", 30), "ba");
        assert_eq!(sorted(&mut order, "x", 31), "ab");
        // It is tried just now.
        assert_eq!(sorted(&mut order, "y", 31), "ba");
        order.answered("a", "x", Time::secs(32));
        assert_eq!(sorted(&mut order, "y", 32), "ab");
        order.lost("a", Time::secs(40));
        order.retain(|exit| exit != "a");
        assert_eq!(sorted(&mut order, "y", 41), "ab");
    }

    #[test]
    fn an_exit_that_says_nothing_of_one_destination_comes_last_for_that_one_alone() {
        let mut order = Order::default();
        order.silent("a", "x", Time::secs(1), Time::secs(3));
        assert_eq!(sorted(&mut order, "x", 3), "ba");
        assert_eq!(sorted(&mut order, "y", 3), "ab");
        assert_eq!(sorted(&mut order, "x", 33), "ab");
        order.answered("a", "x", Time::secs(34));
        assert_eq!(sorted(&mut order, "x", 34), "ab");
    }

    #[test]
    fn an_exit_that_says_nothing_at_all_comes_last_for_all() {
        let mut order = Order::default();
        let silent = |order: &mut Order, destinations: &[&str], asked| {
            destinations.iter().for_each(|to| order.silent("a", to, Time::secs(asked), Time::secs(asked + 2)));
        };
        silent(&mut order, &["x", "y"], 1);
        assert_eq!(sorted(&mut order, "w", 4), "ab");
        silent(&mut order, &["z"], 2);
        assert_eq!(sorted(&mut order, "w", 4), "ba");

        // One that answers others is well.
        let mut order = Order::default();
        silent(&mut order, &["x", "y"], 1);
        order.answered("a", "v", Time::secs(5));
        silent(&mut order, &["z", "u"], 6);
        assert_eq!(sorted(&mut order, "w", 8), "ab");
        // It has answered after it was asked for this one.
        order.answered("a", "v", Time::secs(9));
        silent(&mut order, &["x", "y", "t"], 8);
        assert_eq!(sorted(&mut order, "w", 10), "ab");
        silent(&mut order, &["x", "y", "t"], 10);
        assert_eq!(sorted(&mut order, "w", 12), "ba");
    }

    #[test]
    fn destinations_are_remembered_within_bounds() {
        let mut order = Order::default();
        for number in 0..2 * DESTINATIONS_MOST as u64 {
            order.silent("a", &number.to_string(), Time::secs(number), Time::secs(number));
        }
        assert_eq!(order.0["a"].silent.len(), DESTINATIONS_MOST);
    }
}
