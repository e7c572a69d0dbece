//! Where streams go: the nodes at which they leave the overlay, which path is in use to each, and which nodes are asked for that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ekiden_units::{BitRate, Time};

use crate::asked::{ASKED_IN_USE, ASKED_OTHERS, Asked};
use crate::choice::{Choice, Why};
use crate::judged::Taken;
use crate::known::Known;
use crate::path::{Candidate, Direction, Path, Wanted, candidates};

/// A path on which a stream could not be opened is not taken again for so long.
const SHUNNED: Time = Time::secs(30);
/// How many paths are tried for a stream.
const TRIED: usize = 4;
/// Nodes are asked for streams that were opened so short a time ago.
const WANTED: Time = Time::secs(60);
/// The nodes of a path that a stream has tried count as in use for so long, and those of which it is not known how far they are from its exit
/// are asked as often.
const LEARNED: Time = Time::secs(20);
/// What candidates give is looked up anew after so long.
const FRESH: Time = Time::secs(1);
/// Of so many paths to an exit the streams are counted, and so many changes are remembered.
const REMEMBERED: usize = 64;
/// To how many nodes paths are wanted in one question.
pub const WANTED_MOST: usize = 32;

/// What is asked of other nodes.
#[derive(Debug, Default, PartialEq)]
pub struct Questions {
    /// The nodes that are asked.
    pub to: Vec<String>,
    /// The nodes to which paths are wanted, at most [`WANTED_MOST`]: whoever is asked finds out about its own legs to them.
    pub wanted: Vec<String>,
}

/// The paths to try for a new stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The one that was chosen first, never none.
    pub paths: Vec<Taken>,
    /// Why it was chosen; `None` if nothing is known of any path.
    pub why: Option<Why>,
    /// The path that was in use before.
    pub before: Option<Path>,
}

/// All places. Streams of each `Route`, which is what tells streams apart that are placed by themselves, have one of their own at each exit.
#[derive(Debug, Clone)]
pub struct Places<Route> {
    places: BTreeMap<(String, Route), Place>,
    shunned: BTreeMap<Path, Time>,
    asked: Asked,
    /// Bytes by exit, towards it and from it.
    carried: BTreeMap<String, (u64, u64)>,
    random: u64,
}

/// An exit, for the streams of one route.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The path in use.
    pub choice: Choice,
    /// What there was to choose from when the last stream was opened.
    pub candidates: Vec<Candidate>,
    /// Streams that were opened.
    pub streams: u64,
    /// For how many streams each path was chosen, those that tried it among them; of 64 paths at most.
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

impl<Route: Ord + Clone> Places<Route> {
    /// None yet. Nodes whose seeds differ draw differently.
    pub fn new(seed: u64) -> Self {
        let (places, shunned, carried) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { places, shunned, asked: Asked::default(), carried, random: seed | 1 }
    }

    /// Keeps what leads to these nodes.
    pub fn retain(&mut self, is_member: impl Fn(&str) -> bool) {
        self.places.retain(|(exit, _), _| is_member(exit));
        self.places.values_mut().for_each(|place| place.relays.retain(|relay| is_member(relay)));
        self.carried.retain(|exit, _| is_member(exit));
        self.asked.retain(&is_member);
        self.shunned.retain(|path, _| path.0.iter().all(|name| is_member(name)));
    }

    /// All of them, each with its exit.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Route, &Place)> {
        self.places.iter().map(|((exit, route), place)| (exit.as_str(), route, place))
    }

    /// Bytes of streams to and from an exit.
    pub fn carried(&mut self, exit: &str, up: u64, down: u64) {
        if !self.carried.contains_key(exit) {
            self.carried.insert(exit.to_owned(), (0, 0));
        }
        let Some((all_up, all_down)) = self.carried.get_mut(exit) else { return };
        (*all_up, *all_down) = (all_up.saturating_add(up), all_down.saturating_add(down));
        // What was long ago counts less.
        if all_up.saturating_add(*all_down) > 1 << 30 {
            (*all_up, *all_down) = (*all_up / 2, *all_down / 2);
        }
    }

    /// Which way most bytes go.
    pub fn direction(&self, exit: &str) -> Direction {
        match self.carried.get(exit) {
            Some((up, down)) if up > down => Direction::Up,
            _ => Direction::Down,
        }
    }

    /// A stream could not be opened on this path. Its nodes are asked soon which of them failed.
    pub fn failed(&mut self, path: &Path, now: Time) {
        self.asked.doubt(path);
        self.shunned.insert(path.clone(), now);
        self.places.values_mut().for_each(|place| place.looked = None);
    }

    /// The paths to try for a new stream. [`Wanted::current`] is this one's to know.
    pub fn place(&mut self, known: &Known, route: &Route, wanted: &Wanted<'_>, now: Time) -> Placed {
        self.shunned.retain(|_, since| now.since(*since) < SHUNNED);
        let drawn = [self.draw(), self.draw()];
        let Self { places, shunned, .. } = self;
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
        let direct_rate = direct.map_or(BitRate(0), |direct| direct.sure);
        let usable = |of: &&Candidate| !shunned.contains_key(&of.path);
        let usable: Vec<Candidate> = place.candidates.iter().filter(usable).cloned().collect();
        let chosen = place.choice.choose(&usable, &wanted, now, drawn);
        if let Some((of, why)) = chosen {
            let (is_known, is_room) = (place.taken.contains_key(&of.path), place.taken.len() < REMEMBERED);
            if is_known || is_room {
                *place.taken.entry(of.path.clone()).or_default() += 1;
            }
            if !matches!(why, Why::Kept | Why::Tried) {
                if place.changes.len() == REMEMBERED {
                    place.changes.pop_front();
                }
                place.changes.push_back((now, of.path.clone(), why));
            }
        }
        let taken = |path: &Path, sure: BitRate, rtt: Time| {
            let (path, exit) = (path.clone(), wanted.exit.to_owned());
            Taken { path, exit, sure, direct: direct_rate, rtt, class: wanted.class }
        };
        let of = |of: &Candidate| taken(&of.path, of.sure, of.rtt);
        let mut paths: Vec<Taken> = chosen.iter().map(|(chosen, _)| of(chosen)).collect();
        let others = usable.iter().filter(|of| chosen.is_none_or(|(chosen, _)| chosen.path != of.path));
        paths.extend(others.take(TRIED - 1).map(of));
        // Of what nothing is known, or all has failed: the nodes that must be passed, and the node itself.
        let least = Path(wanted.required.iter().chain([&wanted.exit]).map(|node| (*node).into()).collect());
        if !paths.iter().any(|taken| taken.path == least) {
            paths.push(taken(&least, if wanted.required.is_empty() { direct_rate } else { BitRate(0) }, Time(0)));
        }
        Placed { paths, why: chosen.map(|(_, why)| why), before }
    }

    /// Others want paths to these nodes.
    pub fn asked_for<'a>(&mut self, wanted: impl Iterator<Item = &'a String>, now: Time) {
        self.asked.want(wanted, now);
    }

    /// The nodes to ask now, and the nodes to which paths are wanted. Whoever has had no stream to place for a while asks nothing for itself.
    pub fn questions(&mut self, known: &Known, now: Time) -> Questions {
        let Self { places, asked, .. } = self;
        let (mut in_use, mut others, mut soon) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        // Most routes have the same nodes to relay.
        let mut last = None;
        for ((exit, _), place) in places.iter().filter(|(_, place)| now.since(place.wanted) < WANTED) {
            in_use.insert(exit.as_str());
            let current = place.choice.current().map(|(path, ..)| path);
            // What a stream has tried is to be learned soon.
            let tried = place.choice.tried().filter(|(_, at)| now.since(*at) < LEARNED).map(|(path, _)| path);
            in_use.extend(current.into_iter().chain(tried).flat_map(|path| &path.0).map(String::as_str));
            if last != Some(&place.relays) {
                last = Some(&place.relays);
                others.extend(place.relays.iter().map(|relay| (relay.as_str(), ASKED_OTHERS)));
            }
            if now.since(place.wanted) < LEARNED {
                let unknown = place.relays.iter().filter(|relay| known.leg(relay, exit, now).is_none());
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
mod tests {
    use super::*;
    use crate::leg::Look;
    use crate::path::Class;

    const RELAYS: [&str; 3] = ["cairo", "delhi", "paris"];

    fn wanted() -> Wanted<'static> {
        Wanted {
            exit: "paris",
            relays: &RELAYS,
            required: &[],
            relays_most: 1,
            size: None,
            class: Class::Bulk,
            direction: Direction::Up,
            current: None,
            prices: None,
        }
    }

    fn look(mbit: f64) -> Look {
        Look {
            span_s: 10.0,
            rtt_s: Some(0.1),
            rate_bit_s: Some(mbit * 1e6),
            together_bit_s: mbit * 1e6,
            carried_bit_s: mbit * 1e6,
            sent: 0,
            resent: 0,
        }
    }

    /// Perth has 10 Mbit/s to Paris, and 50 over Delhi.
    fn known() -> Known {
        let mut known = Known::of_node("perth");
        known.see("paris", &look(10.0), Time(0));
        known.see("delhi", &look(50.0), Time(0));
        let mut delhi = Known::of_node("delhi");
        delhi.see("paris", &look(50.0), Time(0));
        known.hear(delhi.tell(0.0, Time(0)), Time(0));
        known
    }

    fn paths(places: &mut Places<()>, known: &Known, second: u64) -> Vec<String> {
        let placed = places.place(known, &(), &wanted(), Time::secs(second));
        placed.paths.iter().map(|taken| taken.path.to_string()).collect()
    }

    #[test]
    fn a_path_that_failed_is_left_for_half_a_minute_and_its_nodes_are_asked() {
        let (known, mut places) = (known(), Places::new(1));
        assert_eq!(paths(&mut places, &known, 0), ["delhi → paris", "paris"]);
        assert_eq!(places.questions(&known, Time::secs(0)).to, ["delhi", "paris", "cairo"]);
        assert_eq!(places.questions(&known, Time::secs(1)).to, [""; 0]);
        places.failed(&Path(vec!["delhi".into(), "paris".into()]), Time::secs(1));
        assert_eq!(places.questions(&known, Time::secs(1)).to, ["delhi", "paris"]);
        assert_eq!(paths(&mut places, &known, 1), ["paris"]);
        assert_eq!(paths(&mut places, &known, 30), ["paris"]);
        assert_eq!(paths(&mut places, &known, 31), ["delhi → paris", "paris"]);
    }

    #[test]
    fn where_nothing_is_known_the_node_itself_is_tried() {
        let (known, mut places) = (Known::of_node("perth"), Places::new(1));
        assert_eq!(paths(&mut places, &known, 0), ["paris"]);
        // A node that does not say how far it is from the exit is asked as often as the exit; only a few are at a time.
        assert_eq!(places.questions(&known, Time::secs(0)).to, ["paris", "cairo", "delhi"]);
        assert_eq!(places.questions(&known, Time::secs(2)).to, ["paris", "cairo", "delhi"]);
        assert_eq!(places.questions(&known, Time::secs(22)).to, ["paris"]);
        // Without a stream nothing is asked, but what others want to know.
        assert_eq!(places.questions(&known, Time::secs(100)), Questions::default());
        places.asked_for([String::from("cairo")].iter(), Time::secs(101));
        let wished = Questions { to: vec!["cairo".into()], wanted: Vec::new() };
        assert_eq!(places.questions(&known, Time::secs(101)), wished);
    }

    #[test]
    fn of_many_nodes_those_are_asked_first_that_were_asked_the_longest_ago() {
        let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
        let relays: Vec<&str> = names.iter().map(String::as_str).collect();
        let (known, mut places) = (Known::of_node("perth"), Places::new(1));
        let mut asked = Vec::new();
        for second in 0..15 {
            places.place(&known, &(), &Wanted { relays: &relays, ..wanted() }, Time::secs(second));
            let questions = places.questions(&known, Time::secs(second));
            assert_eq!(questions.wanted.len(), WANTED_MOST);
            asked.extend(questions.to.into_iter().filter(|name| name != "paris"));
        }
        asked.sort();
        asked.dedup();
        assert_eq!(asked, names);
    }

    #[test]
    fn most_bytes_say_which_way_counts_and_old_ones_say_little() {
        let mut places = Places::<()>::new(1);
        assert_eq!(places.direction("paris"), Direction::Down);
        places.carried("paris", 1 << 31, 1 << 20);
        assert_eq!(places.direction("paris"), Direction::Up);
        (0..4).for_each(|_| places.carried("paris", 0, 1 << 30));
        assert_eq!(places.direction("paris"), Direction::Down);
    }
}
