//! Which nodes are asked what they know, and at which intervals.

use std::collections::{BTreeMap, BTreeSet};

use ekiden_units::Time;

use crate::known::Known;
use crate::path::Path;

/// The interval at which the nodes on a path in use are asked ...
pub(crate) const ASKED_IN_USE: Time = Time::secs(2);
/// ... and that of the other nodes that may be on one.
pub(crate) const ASKED_OTHERS: Time = Time::secs(30);
/// How long another node's wish for paths to a node holds.
const WANTED: Time = Time::secs(60);
/// A node to which others want paths is asked if its round trip is not known, or was last seen at least this long ago; one
/// whose round trip is brief as often as those in use.
const ASKED_FOR_OTHERS: Time = Time::secs(300);
/// How many of the nodes that are on no path in use are asked at a time.
const OTHERS: usize = 4;

/// When nodes were asked, and what they want themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    asked: BTreeMap<String, Time>,
    /// The nodes to which others want paths, and when they last said so.
    wanted_by_others: BTreeMap<String, Time>,
}

impl Asked {
    pub fn retain(&mut self, is_member: impl Fn(&str) -> bool) {
        self.asked.retain(|name, _| is_member(name));
        self.wanted_by_others.retain(|name, _| is_member(name));
    }

    /// The nodes of this path are asked soon.
    pub fn doubt(&mut self, path: &Path) {
        self.asked.retain(|name, _| !path.0.contains(name));
    }

    /// Others want paths to these nodes.
    pub fn want<'a>(&mut self, wanted: impl Iterator<Item = &'a String>, now: Time) {
        self.wanted_by_others.extend(wanted.map(|name| (name.clone(), now)));
    }

    /// The nodes to ask now: those in use, and the others, each group at its interval.
    pub fn due(
        &mut self,
        known: &Known,
        in_use: BTreeSet<&str>,
        others: BTreeMap<&str, Time>,
        now: Time,
    ) -> Vec<String> {
        let Self { asked, wanted_by_others } = self;
        wanted_by_others.retain(|_, at| now.since(*at) < WANTED);
        let mut others: BTreeMap<&str, Time> = others;
        for name in wanted_by_others.keys() {
            let leg = known.leg(known.name(), name, now);
            if known.is_brief(name, now) {
                others.insert(name, ASKED_IN_USE);
            } else if leg.is_none_or(|leg| leg.age >= ASKED_FOR_OTHERS) {
                others.entry(name).or_insert(ASKED_OTHERS);
            }
        }
        others.retain(|name, _| !in_use.contains(name));
        let is_due = |name: &str, period: Time| {
            name != known.name() && asked.get(name).is_none_or(|at| now.since(*at) >= period)
        };
        let mut to: Vec<String> =
            in_use.into_iter().filter(|name| is_due(name, ASKED_IN_USE)).map(String::from).collect();
        // Those first that were asked the longest ago: no node waits for ever behind others that know nothing.
        let due = others.into_iter().filter(|(name, period)| is_due(name, *period));
        let mut due: Vec<_> = due.map(|(name, _)| (asked.get(name).copied(), name)).collect();
        due.sort();
        to.extend(due.into_iter().take(OTHERS).map(|(_, name)| name.to_owned()));
        self.asked.extend(to.iter().map(|name| (name.clone(), now)));
        to
    }
}
