//! Which nodes in between have been seen to deliver, and which are set aside because they held streams back.

use std::collections::BTreeMap;

use ekiden_units::Time;

/// A node that has held a stream back is set aside for so long, and twice as long each further time ...
const ASIDE: Time = Time::secs(60);
/// ... up to this.
const ASIDE_MOST: Time = Time::secs(3_600);
/// One of these times is forgotten after each such time in which it holds nothing back.
const FORGOTTEN: Time = Time::secs(600);
/// Over a node of which it is not known that it delivers, one stream at a time goes, until that one has shown it, or for so long.
const TRIAL: Time = Time::secs(10);

/// What is known of nodes in between.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trust(BTreeMap<String, Node>);

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    delivers: bool,
    /// When a stream began to try it.
    trial: Option<Time>,
    /// When it last held a stream back, how often that counts, and whether it is still left alone for it.
    held: Option<(Time, u32)>,
    is_aside: bool,
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
}

impl Trust {
    pub fn retain(&mut self, is_member: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_member(name));
    }

    /// Streams over these nodes were held back. Returns whether one of them was not set aside for that before.
    pub fn held_back(&mut self, relays: &[String], now: Time) -> bool {
        let mut is_new = false;
        for relay in relays {
            let node = self.0.entry(relay.clone()).or_default();
            node.delivers = false;
            // Streams that were under way together are one time.
            if node.is_aside(now) {
                continue;
            }
            is_new = true;
            let forgotten = |at: Time| (now.since(at).0 / FORGOTTEN.0) as u32;
            let times = node.held.map_or(0, |(at, times)| times.saturating_sub(forgotten(at)));
            (node.held, node.is_aside, node.trial) = (Some((now, times + 1)), true, None);
        }
        is_new
    }

    /// A stream that began at `begun` was delivered over these nodes.
    pub fn delivered(&mut self, relays: &[String], begun: Time) {
        for relay in relays {
            let node = self.0.entry(relay.clone()).or_default();
            // What ran before says nothing of a node that has held back since.
            if node.held.is_none_or(|(at, _)| begun >= at) {
                (node.delivers, node.is_aside, node.trial) = (true, false, None);
            }
        }
    }

    /// Until when one of these nodes is set aside, if one is.
    pub fn aside(&self, relays: &[String], now: Time) -> Option<Time> {
        let nodes = relays.iter().filter_map(|relay| self.0.get(relay));
        nodes.filter_map(Node::until).filter(|until| now < *until).max()
    }

    /// Whether a new stream may go over these nodes, whether or not they are set aside: each is known to deliver, or no other stream
    /// tries it now.
    pub fn may_take(&self, relays: &[String], now: Time) -> bool {
        relays.iter().all(|relay| self.0.get(relay).is_none_or(|node| node.may_take(now)))
    }

    /// Whether it is still to be seen that one of these nodes delivers.
    pub fn is_on_trial(&self, relays: &[String]) -> bool {
        relays.iter().any(|relay| self.0.get(relay).is_none_or(|node| !node.delivers))
    }

    /// A stream goes over these nodes.
    pub fn takes(&mut self, relays: &[String], now: Time) {
        for relay in relays {
            let node = self.0.entry(relay.clone()).or_default();
            if !node.delivers && node.may_take(now) {
                node.trial = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(name: &str) -> Vec<String> {
        vec![name.to_owned()]
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
    fn one_stream_at_a_time_goes_where_it_is_not_known_that_it_arrives() {
        let (mut trust, delhi) = (Trust::default(), over("delhi"));
        assert!(trust.may_take(&delhi, Time::secs(0)));
        trust.takes(&delhi, Time::secs(0));
        assert!(!trust.may_take(&delhi, Time::secs(1)));
        trust.delivered(&delhi, Time::secs(0));
        assert!(trust.may_take(&delhi, Time::secs(1)));
        trust.takes(&delhi, Time::secs(1));
        assert!(trust.may_take(&delhi, Time::secs(1)));
        // A stream that said nothing does not close it for ever.
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
        trust.delivered(&delhi, Time::secs(9));
        assert!(trust.aside(&delhi, Time::secs(11)).is_some());
        trust.delivered(&delhi, Time::secs(10));
        assert_eq!(trust.aside(&delhi, Time::secs(11)), None);
        // What it did before is not forgotten for that.
        trust.held_back(&delhi, Time::secs(12));
        assert_eq!(trust.aside(&delhi, Time::secs(12)), Some(Time::secs(132)));
    }
}
