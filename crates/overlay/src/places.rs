//! Where streams go: the nodes at which they leave the overlay, which path is in use to each, and which nodes are asked for
//! that.
//!
//! This module decides which paths a new stream tries, in which order, and how long a path is left alone after a stream
//! could not be opened on it. It also decides which direction of the streams to an exit counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ekiden_units::{BitRate, Time};

use crate::asked::{ASKED_IN_USE, ASKED_OTHERS, Asked};
use crate::choice::{Choice, Why};
use crate::delivery::Verdict;
use crate::judged::Taken;
use crate::known::Known;
use crate::path::{Candidate, DataDirection, Path, Wanted, candidates};
use crate::trust::Trust;

/// How long a path is left alone after a stream could not be opened on it.
const SHUNNED: Time = Time::secs(30);
/// The maximum number of paths that are tried for a stream ...
pub const TRIED: usize = 4;
/// ... and behind these the maximum number of paths that are left alone after a failure: one may work again.
const SPARE: usize = 2;
/// How long nodes are asked for a path after a stream was opened.
const WANTED: Time = Time::secs(60);
/// How long the nodes of a path that a stream has tried count as in use. Nodes with an unknown or brief round trip to its
/// exit or to this node, and nodes that could not be reached, are asked at the same interval.
const LEARNED: Time = Time::secs(20);
/// How long the values of candidates hold before they are looked up anew.
const FRESH: Time = Time::secs(1);
/// For each exit, the maximum number of paths whose streams are counted, and of changes that are remembered.
const REMEMBERED: usize = 64;
/// One in this many streams over nodes that have long been seen to deliver is asked about at its end.
const SAMPLED: f64 = 8.0;
/// The maximum number of nodes in one question to which paths are wanted.
pub const WANTED_MOST: usize = 32;

/// What is asked of other nodes.
#[derive(Debug, Default, PartialEq)]
pub struct Questions {
    /// The nodes that are asked.
    pub to: Vec<String>,
    /// The nodes to which paths are wanted, at most [`WANTED_MOST`]: a node that is asked finds out about its own legs to
    /// them.
    pub wanted: Vec<String>,
}

/// The paths to try for a new stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The one that was chosen first, never none.
    pub paths: Vec<Taken>,
    /// Whether the first one is this stream's to try. If not, another stream tries it, and all others are being tried or
    /// fail as well.
    pub is_own: bool,
    /// Why it was chosen; `None` if nothing is known of any path.
    pub why: Option<Why>,
    /// The path that was in use before.
    pub before: Option<Path>,
}

/// All places. A `Route` says which streams share a place: those of each `Route` have one of their own at each exit.
#[derive(Debug, Clone)]
pub struct Places<Route> {
    places: BTreeMap<(String, Route), ExitPaths>,
    shunned: BTreeMap<Path, Time>,
    trust: Trust,
    /// When something last came on paths to exits that cannot be asked what they have sent.
    came: BTreeMap<Path, Time>,
    asked: Asked,
    /// Bytes by exit, towards it and from it.
    carried: BTreeMap<String, (u64, u64)>,
    random: u64,
}

/// An exit, for the streams of one route.
#[derive(Debug, Clone, Default)]
pub struct ExitPaths {
    /// The path in use.
    pub choice: Choice,
    /// The candidates when the last stream was opened.
    pub candidates: Vec<Candidate>,
    /// Streams that were opened.
    pub streams: u64,
    /// For how many streams each path was chosen, those that tried it included; for 64 paths at most.
    pub taken: BTreeMap<Path, u64>,
    /// The last 64 paths that came into use, when and why.
    pub changes: VecDeque<(Time, Path, Why)>,
    /// When candidates were last looked up.
    looked: Option<Time>,
    /// When a stream last wanted a path.
    wanted: Time,
    /// The nodes that may be in between.
    relays: Vec<String>,
}

/// The candidates for a stream, and the one that was chosen.
struct Chosen {
    usable: Vec<Candidate>,
    chosen: Option<(Candidate, Why)>,
    /// What the direct path gives at least.
    direct: BitRate,
    /// The path that was in use before.
    before: Option<Path>,
}

impl<Route: Ord + Clone> Places<Route> {
    /// None yet. Nodes whose seeds differ draw differently.
    pub fn new(seed: u64) -> Self {
        let (places, shunned, carried) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (trust, came, asked) = (Trust::default(), BTreeMap::new(), Asked::default());
        Self { places, shunned, trust, came, asked, carried, random: seed | 1 }
    }

    /// Keeps what leads to these nodes.
    pub fn retain(&mut self, is_member: impl Fn(&str) -> bool) {
        self.places.retain(|(exit, _), _| is_member(exit));
        self.places.values_mut().for_each(|place| place.relays.retain(|relay| is_member(relay)));
        self.carried.retain(|exit, _| is_member(exit));
        self.asked.retain(&is_member);
        self.trust.retain(&is_member);
        self.shunned.retain(|path, _| path.0.iter().all(|name| is_member(name)));
        self.came.retain(|path, _| path.0.iter().all(|name| is_member(name)));
    }

    /// All of them, each with its exit.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Route, &ExitPaths)> {
        self.places.iter().map(|((exit, route), place)| (exit.as_str(), route, place))
    }

    /// Bytes of streams to and from an exit.
    pub fn carried(&mut self, exit: &str, up: u64, down: u64) {
        if !self.carried.contains_key(exit) {
            self.carried.insert(exit.to_owned(), (0, 0));
        }
        let Some((all_up, all_down)) = self.carried.get_mut(exit) else { return };
        (*all_up, *all_down) = (all_up.saturating_add(up), all_down.saturating_add(down));
        // Old bytes count less.
        if all_up.saturating_add(*all_down) > 1 << 30 {
            (*all_up, *all_down) = (*all_up / 2, *all_down / 2);
        }
    }

    /// Which way most bytes go.
    pub fn direction(&self, exit: &str) -> DataDirection {
        match self.carried.get(exit) {
            Some((up, down)) if up > down => DataDirection::Up,
            _ => DataDirection::Down,
        }
    }

    /// A stream could not be opened on this path. Its nodes are asked soon which of them failed.
    pub fn failed(&mut self, path: &Path, now: Time) {
        self.asked.doubt(path);
        self.shunned.insert(path.clone(), now);
        self.places.values_mut().for_each(|place| place.looked = None);
    }

    /// Takes what a stream that began at `begun` says about the nodes in between of its path. Returns whether they are set
    /// aside from now on, and were not before.
    pub fn judge(&mut self, path: &Path, verdict: Verdict, begun: Time, now: Time) -> bool {
        match verdict {
            Verdict::HeldBack => self.trust.held_back(path, now),
            Verdict::BrokenOff => self.trust.broke_off(path, now),
            // A silence is the path's fault if data from the same exit comes on other paths meanwhile.
            Verdict::Silent => self.comes_elsewhere(path, begun) && self.trust.held_back(path, now),
            // Many destinations end without an answer: no node is set aside for it. But for a while the next streams take
            // another path.
            Verdict::Hollow => {
                self.failed(path, now);
                false
            }
            Verdict::Arrived | Verdict::Delivered | Verdict::Came => {
                if verdict == Verdict::Came {
                    self.came.retain(|_, at| now.since(*at) < WANTED);
                    self.came.insert(path.clone(), now);
                }
                self.trust.delivered(path, begun, verdict == Verdict::Arrived);
                false
            }
        }
    }

    /// Whether something has come from the same exit since then, over other nodes.
    fn comes_elsewhere(&self, path: &Path, since: Time) -> bool {
        let relays = path.relays();
        let is_other = |other: &Path| {
            other.0.last() == path.0.last() && !other.relays().iter().any(|relay| relays.contains(relay))
        };
        self.came.iter().any(|(other, at)| *at >= since && is_other(other))
    }

    /// For how long a node is still set aside, because it held streams to some exit back.
    pub fn aside(&self, node: &str, now: Time) -> Option<Time> {
        Some(self.trust.aside_somewhere(node, now)?.since(now))
    }

    /// Whether the nodes in between of this path have not been seen to deliver yet.
    pub fn is_on_trial(&self, path: &Path) -> bool {
        self.trust.is_on_trial(path)
    }

    /// Whether a new stream may go on this path: its nodes are known to deliver, or no other stream tries them now.
    pub fn is_free(&self, path: &Path, now: Time) -> bool {
        self.trust.may_take(path, now)
    }

    /// Since when other streams have been trying this path, if it has not been seen to deliver yet.
    pub fn tried_since(&self, path: &Path) -> Option<Time> {
        self.trust.tried_since(path)
    }

    /// A stream tries this path, the first of its own or a later one.
    pub fn tries(&mut self, path: &Path, now: Time) {
        self.trust.takes(path, now);
    }

    /// Whether the exit is to be asked about a stream on this path that has ended: about every one until many have arrived,
    /// then about one in `SAMPLED`, which nobody can predict.
    pub fn is_asked_of(&mut self, path: &Path) -> bool {
        !self.trust.is_proven(path) || self.draw() < 1.0 / SAMPLED
    }

    /// The paths to try for a new stream. This fills in [`Wanted::current`] itself.
    pub fn place(&mut self, known: &Known, route: &Route, wanted: &Wanted<'_>, now: Time) -> Placed {
        let Chosen { usable, chosen, direct, before } = self.choose(known, route, wanted, now);
        let taken = |path: &Path, sure: BitRate, rtt: Time| {
            let (path, exit) = (path.clone(), wanted.exit.to_owned());
            Taken { path, exit, sure, direct, rtt, class: wanted.class }
        };
        let of = |of: &Candidate| taken(&of.path, of.sure, of.rtt);
        // While one stream tries nodes that have not been seen to deliver, other streams take tested nodes, or nodes that no
        // stream tries.
        let is_free = |of: &&Candidate| self.trust.may_take(&of.path, now);
        let is_tried = chosen.as_ref().is_some_and(|(of, _)| !is_free(&of));
        let other = usable.iter().find(is_free).filter(|_| is_tried);
        let first = other.or(chosen.as_ref().map(|(of, _)| of));
        let mut paths: Vec<Taken> = first.map(of).into_iter().collect();
        let others = usable.iter().filter(|of| first.is_none_or(|first| first.path != of.path));
        paths.extend(others.take(TRIED - 1).map(of));
        // If nothing is known, or all has failed: the nodes that must be passed, and the exit itself.
        let least = Path(wanted.required.iter().chain([&wanted.exit]).map(|node| (*node).into()).collect());
        if !paths.iter().any(|taken| taken.path == least) {
            paths.push(taken(&least, if wanted.required.is_empty() { direct } else { BitRate(0) }, Time(0)));
        }
        let mut spare = self.spare(known, wanted, &paths, now);
        let mut unknown = std::iter::once(&least).chain(&spare);
        let free =
            unknown.find(|path| self.may_lead(known, path, now)).filter(|_| is_tried && other.is_none()).cloned();
        if let Some(free) = &free {
            paths.retain(|taken| taken.path != *free);
            paths.insert(0, taken(free, BitRate(0), Time(0)));
            spare.retain(|path| path != free);
        }
        paths.extend(spare.iter().take(SPARE).map(|path| taken(path, BitRate(0), Time(0))));
        let is_elsewhere = other.is_some() || free.is_some();
        let why = chosen.map(|(_, why)| if is_elsewhere { Why::Kept } else { why });
        let is_own = self.trust.may_take(&paths[0].path, now);
        if why.is_some() {
            self.takes((wanted.exit, route), &paths[0].path, now);
        }
        Placed { paths, is_own, why, before }
    }

    /// Chooses among the candidates that are not left alone.
    fn choose(&mut self, known: &Known, route: &Route, wanted: &Wanted<'_>, now: Time) -> Chosen {
        self.shunned.retain(|_, since| now.since(*since) < SHUNNED);
        let drawn = [self.draw(), self.draw()];
        let Self { places, shunned, trust, .. } = self;
        let place = places.entry((wanted.exit.to_owned(), route.clone())).or_default();
        place.wanted = now;
        place.streams += 1;
        let relays = if wanted.relays_most > 0 { wanted.relays } else { &[] };
        if place.relays != *relays {
            place.relays = relays.iter().map(|relay| (*relay).to_owned()).collect();
        }
        let before = place.choice.current().map(|(path, ..)| path.clone());
        let wanted = Wanted { current: before.as_ref(), ..*wanted };
        if place.looked.is_none_or(|looked| now.since(looked) >= FRESH) {
            place.candidates = candidates(known, &wanted, now);
            place.looked = Some(now);
        }
        let direct = place.candidates.iter().find(|of| of.path.relays().is_empty());
        let direct = direct.map_or(BitRate(0), |direct| direct.sure);
        let is_left = |path: &Path| shunned.contains_key(path) || trust.aside(path, now).is_some();
        let usable: Vec<Candidate> = place.candidates.iter().filter(|of| !is_left(&of.path)).cloned().collect();
        let chosen = place.choice.choose(&usable, &wanted, now, drawn).map(|(of, why)| (of.clone(), why));
        if let Some((of, why)) = &chosen
            && why.is_change()
        {
            if place.changes.len() == REMEMBERED {
                place.changes.pop_front();
            }
            place.changes.push_back((now, of.path.clone(), *why));
        }
        Chosen { usable, chosen, direct, before }
    }

    /// A stream goes on this path.
    fn takes(&mut self, (exit, route): (&str, &Route), path: &Path, now: Time) {
        self.trust.takes(path, now);
        let Some(place) = self.places.get_mut(&(exit.to_owned(), route.clone())) else { return };
        if place.taken.contains_key(path) || place.taken.len() < REMEMBERED {
            *place.taken.entry(path.clone()).or_default() += 1;
        }
    }

    /// Whether a path of which nothing is known may be taken now: it has not failed, and no other stream tries it.
    fn may_lead(&self, known: &Known, path: &Path, now: Time) -> bool {
        let is_left = self.shunned.contains_key(path) || self.trust.aside(path, now).is_some();
        !is_left && self.trust.may_take(path, now) && !known.fails_on(&path.0, now)
    }

    /// The paths over one node in between that are not among `paths`: the node or its legs have failed, or nothing is known
    /// of them. Those that failed the longest ago come first.
    fn spare(&self, known: &Known, wanted: &Wanted<'_>, paths: &[Taken], now: Time) -> Vec<Path> {
        if wanted.relays_most == 0 || wanted.required.len() > 1 {
            return Vec::new();
        }
        let may = |relay: &&&str| {
            let is_other = **relay != wanted.exit && **relay != known.name();
            is_other && wanted.required.first().is_none_or(|required| required == *relay)
        };
        let path = |relay: &&str| Path(vec![(*relay).to_owned(), wanted.exit.to_owned()]);
        let is_new = |path: &Path| !paths.iter().any(|taken| taken.path == *path);
        let mut spare: Vec<Path> = wanted.relays.iter().filter(may).map(path).filter(is_new).collect();
        spare.sort_by_cached_key(|path| {
            let failed = path.relays().first().and_then(|relay| known.failed_at(relay));
            (self.trust.aside(path, now), self.shunned.get(path).copied().max(failed))
        });
        spare
    }

    /// Others want paths to these nodes.
    pub fn asked_for<'a>(&mut self, wanted: impl Iterator<Item = &'a String>, now: Time) {
        self.asked.want(wanted, now);
    }

    /// The nodes to ask now, and the nodes to which paths are wanted. A node that has not placed a stream for a while asks
    /// nothing for itself.
    pub fn questions(&mut self, known: &Known, now: Time) -> Questions {
        let Self { places, asked, .. } = self;
        let (mut in_use, mut others, mut soon) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        // Most routes have the same nodes to relay.
        let mut last = None;
        for ((exit, _), place) in places.iter().filter(|(_, place)| now.since(place.wanted) < WANTED) {
            in_use.insert(exit.as_str());
            let current = place.choice.current().map(|(path, ..)| path);
            // The result of a stream's attempt is wanted soon.
            let tried = place.choice.tried().filter(|(_, at)| now.since(*at) < LEARNED).map(|(path, _)| path);
            in_use.extend(current.into_iter().chain(tried).flat_map(|path| &path.0).map(String::as_str));
            if last != Some(&place.relays) {
                last = Some(&place.relays);
                others.extend(place.relays.iter().map(|relay| (relay.as_str(), ASKED_OTHERS)));
            }
            if now.since(place.wanted) < LEARNED {
                let is_unknown = |relay: &&String| {
                    known.leg(relay, exit, now).is_none_or(|leg| leg.is_brief)
                        || known.is_brief(relay, now)
                        || known.is_shunned(relay, now)
                };
                let unknown = place.relays.iter().filter(is_unknown);
                soon.extend(unknown.map(|relay| (relay.as_str(), ASKED_IN_USE)));
            }
        }
        others.extend(soon);
        let mut wanted: Vec<String> = in_use
            .iter()
            .chain(others.keys().filter(|name| !in_use.contains(**name)))
            .map(|name| (*name).into())
            .collect();
        let to = asked.due(known, in_use, others, now);
        while wanted.len() > WANTED_MOST {
            let at = (self.draw() * wanted.len() as f64) as usize;
            wanted.swap_remove(at);
        }
        Questions { to, wanted }
    }

    /// A number between 0 and 1 (xorshift64*).
    fn draw(&mut self) -> f64 {
        let mut x = self.random.max(1);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
