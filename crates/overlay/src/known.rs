//! What a node knows of all legs: of its own by its own connections, of those of others by what they tell.
//!
//! A node's credit is how far it is believed: streams that got less than was told lower it, and time raises it.

use std::collections::BTreeMap;

use ekiden_units::{BitRate, Bytes, Time};

use crate::leg::{Holds, Leg, Look, RATE_HOLDS, RTT_HOLDS, SHUNNED};
use crate::told::{LEGS_MOST, TOLD_FORMAT, Told, ToldLeg};

/// The time in seconds in which the credit of a node that told too much doubles, so that it is tried again.
const CREDIT_DOUBLES_S: f64 = 600.0;
/// The window that is assumed for a leg without losses between today's hosts: it carries this many bytes in a round trip.
const HOPED_WINDOW: Bytes = Bytes::mib(1);
/// The least part of its credit that a node in between keeps when one stream got less: another node may have been the cause.
const CREDIT_FALLS: f64 = 0.2;
/// A stream that gets at least the part `SHARED` lowers the credit only to `CREDIT_SAGS` of what it was: other streams
/// beside it may leave it no more, and then the node has told the truth.
const SHARED: f64 = 0.25;
const CREDIT_SAGS: f64 = 0.9;
/// The maximum factor by which one stream that got more raises the credit.
const CREDIT_RISES: f64 = 2.0;
/// A stream that gets this part of the believed rate counts as having got it. One that gets less than this part of what the
/// direct path is known to give should have taken the direct path.
pub(crate) const ENOUGH: f64 = 0.8;
/// The least credit: with it, the greatest rate that can be told counts as nothing.
const CREDIT_LEAST: f64 = 1e-9;

/// The round trip of a leg of which none is known: the longest that can be told, so that no path over it seems short.
pub const RTT_UNKNOWN: Time = Time::secs(60);

/// A leg of which nothing is known.
const NOTHING: Holds =
    Holds { rtt: RTT_UNKNOWN, rate: None, carried: BitRate(0), loss: 0.0, age: Time(0), is_brief: false };

/// What is known of all legs.
#[derive(Debug, Clone, Default)]
pub struct Known {
    name: String,
    own: BTreeMap<String, Leg>,
    told: BTreeMap<String, Heard>,
    credit: BTreeMap<String, (f64, Time)>,
}

/// What a node has told, each leg when it last did.
#[derive(Debug, Clone, Default)]
struct Heard {
    load: f64,
    at: Time,
    legs: BTreeMap<String, (ToldLeg, Time)>,
}

/// What one end of a leg says of it.
#[derive(Default)]
struct Said {
    /// That nothing succeeds on it.
    has_failed: bool,
    holds: Option<Holds>,
}

impl Known {
    /// Of the node of this name.
    pub fn of_node(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// This node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes what connections to a node have shown.
    pub fn see(&mut self, to: &str, look: &Look, now: Time) {
        self.own.entry(to.into()).or_default().see(look, now);
    }

    /// A connection to a node failed to open, or broke, or nothing moves on it.
    pub fn fail(&mut self, to: &str, now: Time) {
        self.own.entry(to.into()).or_default().fail(now);
    }

    /// Takes what another node tells. What it told before of legs that it does not name now still holds.
    pub fn hear(&mut self, told: Told, now: Time) {
        let heard = self.told.entry(told.node).or_default();
        (heard.load, heard.at) = (told.load, now);
        // A node that always names other legs is stored with no more than this.
        if heard.legs.len() > LEGS_MOST {
            heard.legs.clear();
        }
        heard.legs.extend(told.legs.into_iter().map(|(to, leg)| (to, (leg, now))));
        heard.legs.retain(|_, (leg, at)| leg.holds(now.since(*at)).age <= RATE_HOLDS);
    }

    /// Whether this node's leg to another has failed a short while ago, and nothing has succeeded on it since.
    pub fn is_shunned(&self, to: &str, now: Time) -> bool {
        self.own.get(to).is_some_and(|leg| leg.is_shunned(now))
    }

    /// When this node's leg to another last failed, if nothing has succeeded on it since.
    pub fn failed_at(&self, to: &str) -> Option<Time> {
        self.own.get(to)?.failed_at()
    }

    /// Whether this node has seen its round trip to another so briefly that it may be shorter.
    pub fn is_brief(&self, to: &str, now: Time) -> bool {
        self.own.get(to).and_then(|leg| leg.holds(now)).is_some_and(|holds| holds.is_brief)
    }

    /// How long ago a node has told something.
    pub fn heard_ago(&self, node: &str, now: Time) -> Option<Time> {
        Some(now.since(self.told.get(node)?.at))
    }

    /// A stream over `relays` got this part of what they were believed to give, which may be more than 1. A node that tells
    /// more than comes is believed less, in all that it tells, until the believed rate is the real one: it cannot attract
    /// streams for long by what it says. A node that gives more than is believed regains credit.
    pub fn judge(&mut self, relays: &[String], part: f64, now: Time) {
        let part = if part.is_finite() { part.clamp(CREDIT_FALLS, CREDIT_RISES) } else { return };
        let part = match part {
            part if part >= ENOUGH => part.max(1.0),
            part if part >= SHARED => CREDIT_SAGS,
            part => part,
        };
        for relay in relays {
            let credit = (self.credit(relay, now) * part).clamp(CREDIT_LEAST, 1.0);
            self.credit.insert(relay.clone(), (credit, now));
        }
    }

    /// How much of what a node tells of its rates is believed, 0 to 1.
    pub fn credit(&self, node: &str, now: Time) -> f64 {
        let grown = |(credit, at): &(f64, Time)| credit * (now.since(*at).as_secs() / CREDIT_DOUBLES_S).exp2();
        self.credit.get(node).map_or(1.0, |entry| grown(entry).min(1.0))
    }

    /// Keeps these nodes alone.
    pub fn retain(&mut self, is_member: impl Fn(&str) -> bool) {
        self.own.retain(|name, _| is_member(name));
        self.told.retain(|name, _| is_member(name));
        self.credit.retain(|name, _| is_member(name));
    }

    /// The leg between two nodes, as `from` sends: what the sender knows of its rate. Its round trip is the longer of what
    /// both say, so that neither can seem nearer than it is. `None` if one of them says that the leg has failed, or no round
    /// trip is known.
    pub fn leg(&self, from: &str, to: &str, now: Time) -> Option<Holds> {
        let there = self.says(from, to, now);
        let back = self.says(to, from, now);
        if there.has_failed || back.has_failed {
            return None;
        }
        let (there, back) = (there.holds, back.holds);
        let longer = there.iter().chain(&back).map(|holds| (holds.rtt, holds.is_brief)).max_by_key(|(rtt, _)| *rtt);
        let (rtt, is_brief) = longer?;
        let of = |holds: Holds| Holds { rtt, is_brief, ..holds };
        there.map(of).or_else(|| back.map(|back| Holds { rate: None, carried: BitRate(0), ..of(back) }))
    }

    /// What one end says of a leg.
    fn says(&self, from: &str, to: &str, now: Time) -> Said {
        if from == self.name {
            let own = |leg: &Leg| Said { has_failed: leg.is_shunned(now), holds: leg.holds(now) };
            return self.own.get(to).map_or(Said::default(), own);
        }
        let Some((leg, at)) = self.told.get(from).and_then(|heard| heard.legs.get(to)) else { return Said::default() };
        let since = now.since(*at);
        let holds = leg.holds(since);
        let credit = self.credit(from, now);
        let believed = |rate: BitRate| BitRate((rate.0 as f64 * credit) as u64);
        // The age is that of the rate, where one is told; the round trip was fresh when it was told.
        let rate = holds.rate.filter(|_| holds.age <= RATE_HOLDS).map(|rate| BitRate(believed(rate).0.max(1)));
        let holds = Holds { rate, carried: believed(holds.carried), ..holds };
        Said { has_failed: leg.failed && since < SHUNNED, holds: (since <= RTT_HOLDS).then_some(holds) }
    }

    /// Whether `from` says that nothing succeeds on its leg to the other.
    pub fn has_failed(&self, from: &str, to: &str, now: Time) -> bool {
        self.says(from, to, now).has_failed
    }

    /// Whether nothing succeeds on the leg to a node, and no other node is known to have a leg to it.
    pub fn is_cut_off(&self, node: &str, now: Time) -> bool {
        self.has_failed(&self.name, node, now) && !self.told.keys().any(|other| self.leg(other, node, now).is_some())
    }

    /// Whether a leg of the path over these nodes is known to fail now.
    pub fn fails_on(&self, path: &[String], now: Time) -> bool {
        let nodes = || std::iter::once(self.name.as_str()).chain(path.iter().map(String::as_str));
        nodes().zip(nodes().skip(1)).any(|(a, b)| self.has_failed(a, b, now) || self.has_failed(b, a, now))
    }

    /// What a stream may get in a round trip of a leg of which no more is known, in bit: as much as on the best known leg,
    /// and at least a mebibyte.
    pub fn hope(&self, now: Time) -> f64 {
        let own = self.own.values().filter_map(|leg| Some((leg.holds(now)?, 1.0)));
        let told = self.told.iter().flat_map(|(node, heard)| {
            let credit = self.credit(node, now);
            heard.legs.values().map(move |(leg, at)| (leg.holds(now.since(*at)), credit))
        });
        let windows = own.chain(told).filter_map(|(leg, credit)| Some(leg.rate?.0 as f64 * leg.rtt.as_secs() * credit));
        windows.fold(HOPED_WINDOW.0 as f64 * 8.0, f64::max)
    }

    /// The part of its relaying capacity that a node uses, 0 to 1.
    pub fn load(&self, node: &str) -> f64 {
        self.told.get(node).map_or(0.0, |heard| heard.load)
    }

    /// What this node tells the others: its legs, those first of which something was seen most recently.
    pub fn tell(&self, load: f64, now: Time) -> Told {
        self.tell_of(load, |_| true, now)
    }

    /// The answer to a node that asks: this node's legs to that node, and to those to which that node wants paths.
    pub fn answer(&self, asker: &str, wanted: &[String], load: f64, now: Time) -> Told {
        self.tell_of(load, |to| to == asker || wanted.iter().any(|name| name == to), now)
    }

    fn tell_of(&self, load: f64, is_told: impl Fn(&str) -> bool, now: Time) -> Told {
        // A failed leg is told although nothing about it holds any more: others may believe what was told before.
        let leg = |(to, leg): (&String, &Leg)| {
            let failed = leg.is_shunned(now);
            let holds = leg.holds(now).or_else(|| failed.then_some(NOTHING))?;
            Some((to.clone(), holds, failed))
        };
        let mut legs: Vec<_> = self.own.iter().filter(|(to, _)| is_told(to)).filter_map(leg).collect();
        legs.sort_by_key(|(_, holds, _)| holds.age);
        let legs =
            legs.into_iter().take(LEGS_MOST).map(|(to, holds, failed)| (to, ToldLeg::new(holds, failed))).collect();
        Told { told_format: TOLD_FORMAT, node: self.name.clone(), load: load.clamp(0.0, 1.0), legs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(mbit: f64, rtt_s: f64) -> Look {
        Look {
            span_s: 10.0,
            rtt_s: Some(rtt_s),
            rate_bit_s: Some(mbit * 1e6),
            together_bit_s: mbit * 1e6,
            carried_bit_s: mbit * 1e6,
            sent: 1_000,
            resent: 0,
        }
    }

    fn told(node: &str, to: &str, mbit: u64, rtt_ms: u64) -> Told {
        let mut known = Known::of_node(node);
        known.see(to, &look(mbit as f64, rtt_ms as f64 / 1e3), Time(0));
        known.tell(0.0, Time(0))
    }

    #[test]
    fn the_sender_says_what_a_leg_carries_and_both_how_far_it_is() {
        let mut known = Known::of_node("perth");
        known.see("delhi", &look(50.0, 0.1), Time::secs(1));
        // Delhi sends less to Perth than Perth to Delhi.
        known.hear(told("delhi", "perth", 20, 90), Time::secs(1));
        let rate = |from: &str, to: &str| known.leg(from, to, Time::secs(1)).unwrap();
        assert_eq!(rate("perth", "delhi").rate, Some(BitRate::mbit(50)));
        assert_eq!(rate("delhi", "perth").rate, Some(BitRate::mbit(20)));
        assert_eq!(rate("delhi", "perth").rtt, Time::ms(100));
        assert_eq!(known.leg("delhi", "paris", Time::secs(1)), None);
    }

    #[test]
    fn who_tells_more_than_comes_is_believed_less_for_a_while() {
        let mut known = Known::of_node("perth");
        known.hear(told("delhi", "perth", 900, 100), Time::secs(1));
        let rate = |known: &Known, second: u64| {
            known.leg("delhi", "perth", Time::secs(second)).unwrap().rate.unwrap().as_mbit()
        };
        assert_eq!(rate(&known, 1), 900.0);
        (0..10).for_each(|_| known.judge(&["delhi".into()], 0.02, Time::secs(1)));
        assert!(rate(&known, 1) < 50.0, "{}", rate(&known, 1));
        assert!((1.9..2.1).contains(&(rate(&known, 601) / rate(&known, 1))));
        // Two streams beside it do not make it a liar.
        let mut shared = known.clone();
        shared.judge(&["lima".into()], 0.3, Time::secs(1));
        assert_eq!(shared.credit("lima", Time::secs(1)), 0.9);
        // A rate that is no more than the believed one says nothing about the rest.
        let before = rate(&known, 2);
        known.judge(&["delhi".into()], 0.9, Time::secs(2));
        assert_eq!(rate(&known, 2), before);
        (0..30).for_each(|_| known.judge(&["delhi".into()], 3.0, Time::secs(2)));
        assert_eq!(rate(&known, 2), 900.0);
        known.judge(&["delhi".into()], f64::NAN, Time::secs(2));
        assert_eq!(rate(&known, 2), 900.0);
    }

    #[test]
    fn the_most_that_can_be_told_is_soon_worth_little_more_than_what_comes() {
        let mut known = Known::of_node("perth");
        known.hear(told("delhi", "perth", 1_000_000, 100), Time::secs(1));
        // The other leg of the path carries 100 Mbit/s, and 1 comes.
        for _ in 0..10 {
            let rate = known.leg("delhi", "perth", Time::secs(1)).unwrap().rate.unwrap().as_mbit();
            known.judge(&["delhi".into()], 1.0 / rate.min(100.0), Time::secs(1));
        }
        let rate = known.leg("delhi", "perth", Time::secs(1)).unwrap().rate.unwrap().as_mbit();
        assert!((0.8..4.1).contains(&rate), "{rate}");
    }

    #[test]
    fn a_leg_that_one_end_says_has_failed_is_none_until_that_is_old() {
        let mut known = Known::of_node("perth");
        known.hear(told("delhi", "paris", 40, 100), Time::secs(1));
        let mut failing = told("paris", "delhi", 40, 100);
        failing.legs.get_mut("delhi").unwrap().failed = true;
        known.hear(failing, Time::secs(1));
        assert_eq!(known.leg("delhi", "paris", Time::secs(2)), None);
        let path = |nodes: &[&str]| nodes.iter().map(|node| String::from(*node)).collect::<Vec<_>>();
        assert!(known.fails_on(&path(&["delhi", "paris"]), Time::secs(2)));
        assert!(known.fails_on(&path(&["paris", "delhi", "lima"]), Time::secs(2)));
        assert!(!known.fails_on(&path(&["delhi", "lima", "paris"]), Time::secs(2)));
        assert!(known.leg("delhi", "paris", Time::secs(1) + SHUNNED).is_some());
    }

    #[test]
    fn a_node_is_cut_off_where_nobody_is_known_who_reaches_it() {
        let mut known = Known::of_node("perth");
        assert!(!known.is_cut_off("paris", Time::secs(1)));
        known.fail("paris", Time::secs(1));
        assert!(known.is_cut_off("paris", Time::secs(1)));
        known.hear(told("delhi", "paris", 40, 100), Time::secs(1));
        assert!(!known.is_cut_off("paris", Time::secs(1)));
    }

    #[test]
    fn that_a_leg_has_failed_is_told_after_what_held_of_it_is_old() {
        let mut known = Known::of_node("perth");
        let mut other = Known::of_node("delhi");
        other.see("paris", &look(40.0, 0.1), Time(0));
        known.hear(other.tell(0.0, Time(0)), Time(0));
        let later = RTT_HOLDS + Time::secs(1);
        other.fail("paris", later);
        known.hear(other.tell(0.0, later), later);
        assert_eq!(known.leg("delhi", "paris", later), None);
    }

    #[test]
    fn a_rate_that_is_told_holds_as_long_as_one_that_was_seen() {
        let mut other = Known::of_node("delhi");
        other.see("paris", &look(40.0, 0.1), Time(0));
        let mut known = Known::of_node("perth");
        // The round trip is seen again and again, the rate but once.
        let mut rate = |at: Time| {
            other.see("paris", &Look { rtt_s: Some(0.1), ..Look::default() }, at);
            known.hear(other.tell(0.0, at), at);
            known.leg("delhi", "paris", at).unwrap().rate
        };
        assert_eq!(rate(RTT_HOLDS + Time::secs(60)), Some(BitRate::mbit(40)));
        assert_eq!(rate(RATE_HOLDS), Some(BitRate::mbit(40)));
        assert_eq!(rate(RATE_HOLDS + Time::secs(2)), None);
    }

    #[test]
    fn what_is_told_grows_old() {
        let mut known = Known::of_node("perth");
        known.hear(told("delhi", "paris", 40, 100), Time::secs(1));
        assert!(known.leg("delhi", "paris", RTT_HOLDS).is_some());
        assert!(known.leg("delhi", "paris", RTT_HOLDS + Time::secs(2)).is_none());
        known.hear(told("delhi", "perth", 40, 100), Time::secs(5));
        assert!(known.leg("delhi", "paris", RTT_HOLDS).is_some(), "what is not told anew goes on");
    }
}
