//! Which nodes in between have been seen to deliver, and which are set aside because they held streams back.
//!
//! The exit reports what a stream shows. So it holds only for the streams to that exit: an exit that lies takes no node from
//! others.
//!
//! This module decides for how long a node is set aside, and when one stream tries it again.

use std::collections::BTreeMap;

use ekiden_units::Time;

use crate::path::Path;

/// How long a node that has held a stream back is set aside. The time doubles with each further time ...
const ASIDE: Time = Time::secs(60);
/// ... up to this.
const ASIDE_MOST: Time = Time::secs(3_600);
/// One of these times is forgotten for each period of this length in which the node holds nothing back. If streams are
/// broken off, and the last time was at least this long ago, the node is not set aside: it may have been restarted.
const FORGOTTEN: Time = Time::secs(600);
/// Streams that are broken off within this time count as one event.
const TOGETHER: Time = Time::secs(2);
/// Only one stream at a time goes over a node that has not been seen to deliver, until that stream has shown that it does,
/// or for this time.
const TRIAL: Time = Time::secs(10);
/// When this many streams in a row have arrived over a node, only a sample of its streams is asked about.
const PROVEN: u32 = 256;

/// What is known of nodes in between: each by the exits of its streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trust(BTreeMap<String, BTreeMap<String, Node>>);

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    delivers: bool,
    /// How many streams have arrived since the last one that did not.
    arrived: u32,
    /// When a stream began to try it.
    trial: Option<Time>,
    /// When it last held a stream back, how often that counts, and whether it is still left alone for it.
    held: Option<(Time, u32)>,
    is_aside: bool,
    /// When streams over it were last broken off.
    broke: Option<Time>,
}

impl Node {
    /// Until when it is set aside.
    fn until(&self) -> Option<Time> {
        let (at, times) = self.held.filter(|_| self.is_aside)?;
        Some(at + Time((ASIDE.0 << (times - 1).min(16)).min(ASIDE_MOST.0)))
    }

    fn is_aside(&self, now: Time) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    fn may_take(&self, now: Time) -> bool {
        self.delivers || self.trial.is_none_or(|since| now.since(since) >= TRIAL)
    }

    /// A stream was held back. Returns whether it was not set aside for that before.
    fn held_back(&mut self, now: Time) -> bool {
        (self.delivers, self.arrived) = (false, 0);
        // Streams that were under way at the same time count once.
        if self.is_aside(now) {
            return false;
        }
        let forgotten = |at: Time| (now.since(at).0 / FORGOTTEN.0) as u32;
        let times = self.held.map_or(0, |(at, times)| times.saturating_sub(forgotten(at)));
        (self.held, self.is_aside, self.trial) = (Some((now, times + 1)), true, None);
        true
    }

    /// A stream was broken off. Returns whether it is set aside for that.
    fn broke_off(&mut self, now: Time) -> bool {
        let before = self.broke;
        if before.is_none_or(|at| now.since(at) >= TOGETHER) {
            self.broke = Some(now);
        }
        match before.map(|at| now.since(at)) {
            Some(since) if since < TOGETHER => false,
            Some(since) if since < FORGOTTEN => self.held_back(now),
            _ => {
                (self.delivers, self.arrived, self.trial) = (false, 0, Some(now));
                false
            }
        }
    }
}

impl Trust {
    pub fn retain(&mut self, is_member: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_member(name));
        self.0.values_mut().for_each(|exits| exits.retain(|name, _| is_member(name)));
    }

    /// Streams on this path were held back. Returns whether one of its nodes was not set aside for that before.
    pub fn held_back(&mut self, path: &Path, now: Time) -> bool {
        self.each(path, |node| node.held_back(now))
    }

    /// Streams on this path were broken off in between. That also happens to a healthy node, and is forgiven once. Returns
    /// whether one of its nodes is set aside from now on.
    pub fn broke_off(&mut self, path: &Path, now: Time) -> bool {
        self.each(path, |node| node.broke_off(now))
    }

    /// A stream that began at `begun` was delivered on this path; `has_arrived`: up to its end.
    pub fn delivered(&mut self, path: &Path, begun: Time, has_arrived: bool) {
        self.each(path, |node| {
            // A stream that began earlier says nothing about a node that has held back since.
            if node.held.is_none_or(|(at, _)| begun >= at) && node.broke.is_none_or(|at| begun >= at) {
                (node.delivers, node.is_aside, node.trial) = (true, false, None);
                node.arrived = node.arrived.saturating_add(u32::from(has_arrived));
            }
            false
        });
    }

    /// A stream goes on this path.
    pub fn takes(&mut self, path: &Path, now: Time) {
        self.each(path, |node| {
            if !node.delivers && node.may_take(now) {
                node.trial = Some(now);
            }
            false
        });
    }

    /// Until when one of the nodes in between is set aside, if one is.
    pub fn aside(&self, path: &Path, now: Time) -> Option<Time> {
        let exit = path.0.last()?;
        let until = |relay: &String| {
            let exits = self.0.get(relay)?;
            exits.get(exit).and_then(Node::until).max(everywhere(exits, now))
        };
        path.relays().iter().filter_map(until).filter(|until| now < *until).max()
    }

    /// Until when a node is set aside for streams to some exit.
    pub fn aside_somewhere(&self, relay: &str, now: Time) -> Option<Time> {
        self.0.get(relay)?.values().filter_map(Node::until).filter(|until| now < *until).max()
    }

    /// Whether a new stream may go on this path, whether or not its nodes are set aside: each is known to deliver, or no other stream tries
    /// it now.
    pub fn may_take(&self, path: &Path, now: Time) -> bool {
        self.all(path, |node| node.is_none_or(|node| node.may_take(now)))
    }

    /// Since when the node in between that has been tried longest has been tried, of those that have not been seen to
    /// deliver yet: the longer ago, the less hope there is.
    pub fn tried_since(&self, path: &Path) -> Option<Time> {
        let exit = path.0.last()?;
        let nodes = path.relays().iter().filter_map(|relay| self.0.get(relay)?.get(exit));
        nodes.filter(|node| !node.delivers).filter_map(|node| node.trial).min()
    }

    /// Whether one of the nodes in between has not been seen to deliver yet.
    pub fn is_on_trial(&self, path: &Path) -> bool {
        !self.all(path, |node| node.is_some_and(|node| node.delivers))
    }

    /// Whether enough streams have arrived over each of the nodes in between that only a sample of them is asked about.
    pub fn is_proven(&self, path: &Path) -> bool {
        self.all(path, |node| node.is_some_and(|node| node.delivers && node.arrived >= PROVEN))
    }

    fn all(&self, path: &Path, is: impl Fn(Option<&Node>) -> bool) -> bool {
        let Some(exit) = path.0.last() else { return true };
        path.relays().iter().all(|relay| is(self.0.get(relay).and_then(|exits| exits.get(exit))))
    }

    fn each(&mut self, path: &Path, mut at: impl FnMut(&mut Node) -> bool) -> bool {
        let Some(exit) = path.0.last() else { return false };
        let mut any = false;
        for relay in path.relays() {
            any |= at(self.0.entry(relay.clone()).or_default().entry(exit.clone()).or_default());
        }
        any
    }
}

/// Until when a node is set aside for the streams to all exits: as long as two of them say so.
fn everywhere(exits: &BTreeMap<String, Node>, now: Time) -> Option<Time> {
    let mut until: Vec<Time> = exits.values().filter_map(Node::until).filter(|until| now < *until).collect();
    until.sort_unstable();
    until.into_iter().rev().nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(name: &str) -> Path {
        to(name, "paris")
    }

    fn to(name: &str, exit: &str) -> Path {
        Path(vec![name.into(), exit.into()])
    }

    #[test]
    fn who_holds_back_is_left_for_longer_each_time() {
        let (mut trust, delhi) = (Trust::default(), over("delhi"));
        assert!(trust.held_back(&delhi, Time::secs(0)));
        // Another stream of that time.
        assert!(!trust.held_back(&delhi, Time::secs(5)));
        assert_eq!(trust.aside(&delhi, Time::secs(59)), Some(Time::secs(60)));
        assert_eq!(trust.aside(&delhi, Time::secs(60)), None);
        assert!(trust.held_back(&delhi, Time::secs(61)));
        assert_eq!(trust.aside(&delhi, Time::secs(62)), Some(Time::secs(181)));
        (0..20).for_each(|hour| _ = trust.held_back(&delhi, Time::secs(hour * 3_600 + 200)));
        let last = Time::secs(19 * 3_600 + 200);
        assert!(trust.aside(&delhi, last).is_some_and(|until| until <= last + ASIDE_MOST));
        let much_later = last + Time::secs(20 * 600);
        trust.held_back(&delhi, much_later);
        assert_eq!(trust.aside(&delhi, much_later), Some(much_later + ASIDE));
        assert_eq!(trust.aside(&over("cairo"), Time::secs(5)), None);
    }

    #[test]
    fn of_nodes_that_are_tried_the_one_tried_for_longest_is_known() {
        let mut trust = Trust::default();
        let both = Path(vec!["delhi".into(), "cairo".into(), "paris".into()]);
        trust.takes(&over("delhi"), Time::secs(1));
        trust.takes(&over("cairo"), Time::secs(2));
        assert_eq!(trust.tried_since(&both), Some(Time::secs(1)));
        trust.delivered(&over("delhi"), Time::secs(1), true);
        assert_eq!(trust.tried_since(&both), Some(Time::secs(2)));
        assert_eq!(trust.tried_since(&over("perth")), None);
    }

    #[test]
    fn one_exit_takes_a_node_from_its_own_streams_and_two_from_all() {
        let (mut trust, now) = (Trust::default(), Time::secs(5));
        let is_aside = |trust: &Trust, exit: &str| trust.aside(&to("delhi", exit), now).is_some();
        trust.delivered(&to("delhi", "perth"), Time::secs(0), true);
        trust.held_back(&to("delhi", "paris"), Time::secs(1));
        assert!(is_aside(&trust, "paris") && !is_aside(&trust, "perth") && !is_aside(&trust, "quito"));
        assert!(!trust.is_on_trial(&to("delhi", "perth")), "what perth has said holds");
        assert!(trust.is_on_trial(&to("delhi", "quito")), "and says nothing of quito");
        trust.held_back(&to("delhi", "lagos"), Time::secs(2));
        assert!(is_aside(&trust, "perth") && is_aside(&trust, "quito"));
        // As long as both say so.
        assert_eq!(trust.aside(&to("delhi", "perth"), Time::secs(60)), Some(Time::secs(61)));
        assert_eq!(trust.aside(&to("delhi", "perth"), Time::secs(61)), None);
        assert_eq!(trust.aside_somewhere("delhi", Time::secs(61)), Some(Time::secs(62)));
        trust.retain(|name| name != "lagos");
        assert!(!is_aside(&trust, "perth"));
    }

    #[test]
    fn one_stream_at_a_time_goes_where_it_is_not_known_that_it_arrives() {
        let (mut trust, delhi) = (Trust::default(), over("delhi"));
        assert!(trust.may_take(&delhi, Time::secs(0)));
        trust.takes(&delhi, Time::secs(0));
        assert!(!trust.may_take(&delhi, Time::secs(1)));
        trust.delivered(&delhi, Time::secs(0), false);
        assert!(trust.may_take(&delhi, Time::secs(1)));
        trust.takes(&delhi, Time::secs(1));
        assert!(trust.may_take(&delhi, Time::secs(1)));
        // A stream without a result does not block it for ever.
        let cairo = over("cairo");
        trust.takes(&cairo, Time::secs(0));
        assert!(trust.may_take(&cairo, TRIAL));
        trust.held_back(&delhi, Time::secs(20));
        trust.takes(&delhi, Time::secs(80));
        assert!(!trust.may_take(&delhi, Time::secs(81)));
    }

    #[test]
    fn a_stream_from_before_does_not_bring_a_node_back() {
        let (mut trust, delhi) = (Trust::default(), over("delhi"));
        trust.held_back(&delhi, Time::secs(10));
        trust.delivered(&delhi, Time::secs(9), true);
        assert!(trust.aside(&delhi, Time::secs(11)).is_some());
        trust.delivered(&delhi, Time::secs(10), true);
        assert_eq!(trust.aside(&delhi, Time::secs(11)), None);
        // What it did before is not forgotten for that.
        trust.held_back(&delhi, Time::secs(12));
        assert_eq!(trust.aside(&delhi, Time::secs(12)), Some(Time::secs(132)));
    }

    #[test]
    fn a_node_that_breaks_off_once_is_tried_again_and_one_that_goes_on_is_set_aside() {
        let (mut trust, delhi) = (Trust::default(), over("delhi"));
        trust.delivered(&delhi, Time::secs(0), true);
        // All its streams, as when it is started anew.
        assert_eq!([10, 10, 11].map(|second| trust.broke_off(&delhi, Time::secs(second))), [false; 3]);
        assert!(trust.is_on_trial(&delhi) && trust.aside(&delhi, Time::secs(11)).is_none());
        trust.delivered(&delhi, Time::secs(9), true);
        assert!(trust.is_on_trial(&delhi), "that one began before");
        trust.delivered(&delhi, Time::secs(12), true);
        assert!(trust.broke_off(&delhi, Time::secs(40)));
        assert!(trust.aside(&delhi, Time::secs(41)).is_some());
        assert!(!trust.broke_off(&delhi, Time::secs(40) + FORGOTTEN));
    }

    #[test]
    fn streams_are_asked_about_by_sample_only_after_many_have_arrived() {
        let (mut trust, delhi) = (Trust::default(), over("delhi"));
        for _ in 0..2 * PROVEN {
            trust.delivered(&delhi, Time::secs(5), false);
        }
        assert!(!trust.is_proven(&delhi));
        for _ in 0..PROVEN {
            assert!(!trust.is_proven(&delhi));
            trust.delivered(&delhi, Time::secs(5), true);
        }
        assert!(trust.is_proven(&delhi) && !trust.is_proven(&to("delhi", "quito")));
        trust.broke_off(&delhi, Time::secs(6));
        trust.delivered(&delhi, Time::secs(6), true);
        assert!(!trust.is_proven(&delhi));
    }
}
