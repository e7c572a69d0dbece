//! In which order the exits near a destination are tried: by how near they are, but those that failed a short while ago come
//! last.
//!
//! An exit also gives no answer if its destination does not answer. So an exit without an answer comes last for that
//! destination only.

use std::collections::BTreeMap;

use ekiden_units::Time;

/// How long an exit that failed comes last. Then one stream tries it.
const LAST: Time = Time::secs(30);
/// The maximum number of destinations remembered for each exit.
const DESTINATIONS_MOST: usize = 256;

/// What streams have seen of exits that others can stand in for.
#[derive(Debug, Default)]
pub struct Order(BTreeMap<String, SeenNumbers>);

#[derive(Debug, Default)]
struct SeenNumbers {
    /// Since when it comes last for all destinations: no path led to it.
    lost: Option<Time>,
    /// The destinations for which it gave no answer, and since when it comes last for each.
    silent: BTreeMap<String, Time>,
}

impl SeenNumbers {
    /// Since when it comes last for a destination.
    fn since(&mut self, destination: &str) -> impl Iterator<Item = &mut Time> {
        self.lost.iter_mut().chain(self.silent.get_mut(destination))
    }
}

impl Order {
    /// No path has led to an exit.
    pub fn lost(&mut self, exit: &str, now: Time) {
        self.0.entry(exit.to_owned()).or_default().lost = Some(now);
    }

    /// An exit has not answered for a stream to `destination`, and another exit has opened it meanwhile.
    pub fn silent(&mut self, exit: &str, destination: &str, now: Time) {
        let silent = &mut self.0.entry(exit.to_owned()).or_default().silent;
        silent.insert(destination.to_owned(), now);
        if silent.len() > DESTINATIONS_MOST
            && let Some(oldest) = silent.iter().min_by_key(|(_, at)| **at).map(|(to, _)| to.clone())
        {
            silent.remove(&oldest);
        }
    }

    /// An exit has opened a stream to `destination`.
    pub fn opened(&mut self, exit: &str, destination: &str) {
        if let Some(seen) = self.0.get_mut(exit) {
            seen.silent.remove(destination);
            seen.lost = None;
        }
    }

    /// An exit has answered a question: a path leads to it.
    pub fn found(&mut self, exit: &str) {
        if let Some(seen) = self.0.get_mut(exit) {
            seen.lost = None;
        }
    }

    /// Puts the exits that cannot be reached, or gave no answer for `destination`, behind the others. Once in a while a
    /// stream begins with one of them.
    pub fn sort(&mut self, exits: &mut [&str], destination: &str, now: Time) {
        if exits.len() < 2 {
            return;
        }
        let mut is_last = |exit: &str| {
            self.0.get_mut(exit).is_some_and(|seen| seen.since(destination).any(|at| now.since(*at) < LAST))
        };
        exits.sort_by_cached_key(|exit| is_last(exit));
        // While this stream tries it, other streams go elsewhere.
        if !is_last(exits[0])
            && let Some(seen) = self.0.get_mut(exits[0])
        {
            seen.since(destination).for_each(|at| *at = now);
        }
    }

    /// The exits that come last now: for which destination, or for all, and since when.
    pub fn last(&self, now: Time) -> impl Iterator<Item = (&str, Option<&str>, Time)> {
        let all = self.0.iter().flat_map(|(exit, seen)| {
            let silent = seen.silent.iter().map(|(to, at)| (Some(to.as_str()), *at));
            let lost = seen.lost.map(|at| (None, at));
            lost.into_iter().chain(silent).map(move |(to, at)| (exit.as_str(), to, at))
        });
        all.filter(move |(.., at)| now.since(*at) < LAST)
    }

    /// Forgets the exits for which `holds` is false.
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
        order.opened("a", "x");
        assert_eq!(sorted(&mut order, "y", 32), "ab");
        order.lost("a", Time::secs(33));
        assert_eq!(sorted(&mut order, "y", 34), "ba");
        order.found("a");
        assert_eq!(sorted(&mut order, "y", 35), "ab");
        order.lost("a", Time::secs(40));
        order.retain(|exit| exit != "a");
        assert_eq!(sorted(&mut order, "y", 41), "ab");
    }

    #[test]
    fn an_exit_that_says_nothing_of_a_destination_comes_last_for_that_one_alone() {
        let mut order = Order::default();
        for to in ["v", "w", "x"] {
            order.silent("a", to, Time::secs(3));
        }
        assert_eq!(sorted(&mut order, "x", 3), "ba");
        assert_eq!(sorted(&mut order, "y", 3), "ab");
        assert_eq!(sorted(&mut order, "x", 33), "ab");
        assert_eq!(sorted(&mut order, "x", 34), "ba", "it is tried just now");
        order.opened("a", "x");
        assert_eq!(sorted(&mut order, "x", 34), "ab");
        assert_eq!(sorted(&mut order, "w", 32), "ba");
    }

    #[test]
    fn an_exit_that_comes_last_for_two_reasons_is_tried_when_both_are_over() {
        let mut order = Order::default();
        order.lost("a", Time::secs(1));
        order.silent("a", "x", Time::secs(10));
        let first = (2..100).find(|second| sorted(&mut order, "x", *second) == "ab");
        assert_eq!(first, Some(40));
        let all = [("a", None, Time::secs(40)), ("a", Some("x"), Time::secs(40))];
        assert!(order.last(Time::secs(69)).eq(all) && order.last(Time::secs(70)).eq([]));
        order.opened("a", "x");
        assert_eq!(sorted(&mut order, "x", 41), "ab");
    }

    #[test]
    fn an_exit_that_no_stream_begins_with_is_not_put_last_anew() {
        let mut order = Order::default();
        order.silent("b", "x", Time::secs(1));
        for second in 31..60 {
            assert_eq!(sorted(&mut order, "x", second), "ab");
        }
        assert_eq!(order.last(Time::secs(31)).count(), 0);
    }

    #[test]
    fn destinations_are_remembered_within_bounds() {
        let mut order = Order::default();
        for number in 0..2 * DESTINATIONS_MOST as u64 {
            order.silent("a", &number.to_string(), Time::secs(number));
        }
        assert_eq!(order.0["a"].silent.len(), DESTINATIONS_MOST);
        order.opened("nobody", "x");
        assert_eq!(order.0.len(), 1);
    }
}
