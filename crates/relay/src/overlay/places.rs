//! Where streams go: the nodes at which they leave the overlay, which path is in use to each, and which nodes are asked for that.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_keys::random_secret;
use ekiden_overlay::choice::{Choice, Why};
use ekiden_overlay::known::Known;
use ekiden_overlay::path::{Candidate, Class, Direction, Path, Wanted, candidates};
use ekiden_relay_proto::leg::MAX_ASKED;
use ekiden_units::{BitRate, Time};

use crate::config::overlay::Overlay as Settings;
use crate::config::route::Auto;

/// A path on which a stream could not be opened is not taken again for so long.
const SHUNNED: Time = Time::secs(30);
/// How many paths are tried for a stream.
const TRIED: usize = 4;
/// Nodes are asked for streams that were opened so short a time ago.
const WANTED: Time = Time::secs(60);
/// The nodes on a path in use are asked so often, those of which it is not known how far they are from an exit too ...
const ASKED_IN_USE: Time = Time::secs(2);
/// ... and the others that may be on one.
const ASKED_OTHERS: Time = Time::secs(30);
/// The nodes of a path that a stream has tried count as in use for so long.
const LEARNED: Time = Time::secs(20);
/// Where others want paths to a node, it is asked if its round trip is not known, or was last seen so long ago.
const ASKED_FOR_OTHERS: Time = Time::secs(300);
/// How many of the others are asked at a time.
const OTHERS: usize = 4;
/// What candidates give is looked up anew after so long.
const FRESH: Time = Time::secs(1);

/// A path that a stream takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    pub path: Path,
    /// Where the stream leaves the overlay.
    pub exit: String,
    /// What it gives at least, as far as is known.
    pub sure: BitRate,
    /// What the direct path gives at least, as far as is known.
    pub direct: BitRate,
    /// What it was chosen for.
    pub class: Class,
}

/// What is asked of other nodes.
#[derive(Debug, Default, PartialEq)]
pub struct Questions {
    /// The nodes that are asked.
    pub to: Vec<String>,
    /// The nodes to which paths are wanted: whoever is asked finds out about its own legs to them.
    pub wanted: Vec<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Places {
    places: BTreeMap<(String, Auto), Place>,
    shunned: BTreeMap<Path, Time>,
    asked: BTreeMap<String, Time>,
    /// The nodes to which others want paths, and when they last said so.
    wanted_by_others: BTreeMap<String, Time>,
    /// Bytes by exit, towards it and from it.
    carried: BTreeMap<String, (u64, u64)>,
    random: u64,
}

/// An exit, for the streams of one route.
#[derive(Debug, Default)]
pub struct Place {
    pub choice: Choice,
    pub candidates: Vec<Candidate>,
    looked: Option<Time>,
    /// When a stream last wanted a path.
    pub wanted: Time,
    /// Streams that were opened.
    pub streams: u64,
}

impl Places {
    pub fn seeded() -> Self {
        // Without the kernel's chance nodes would draw alike, no more.
        let seed = random_secret()
            .map_or(1, |bytes| bytes.iter().fold(1, |seed: u64, byte| seed.rotate_left(8) ^ u64::from(*byte)));
        Self { random: seed | 1, ..Self::default() }
    }

    /// Keeps what leads to these exits.
    pub fn retain(&mut self, is_peer: impl Fn(&str) -> bool) {
        self.places.retain(|(exit, _), _| is_peer(exit));
        self.carried.retain(|exit, _| is_peer(exit));
        self.asked.retain(|name, _| is_peer(name));
        self.wanted_by_others.retain(|name, _| is_peer(name));
        self.shunned.retain(|path, _| path.0.iter().all(|name| is_peer(name)));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Auto, &Place)> {
        self.places.iter().map(|((exit, auto), place)| (exit.as_str(), auto, place))
    }

    /// Bytes of streams on this path.
    pub fn carried(&mut self, taken: &Taken, up: u64, down: u64) {
        let (all_up, all_down) = self.carried.entry(taken.exit.clone()).or_default();
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
    pub fn failed(&mut self, taken: &Taken, now: Time) {
        self.asked.retain(|name, _| !taken.path.0.contains(name));
        self.shunned.insert(taken.path.clone(), now);
        self.places.values_mut().for_each(|place| place.looked = None);
    }

    /// The paths to try for a new stream, the chosen one first, never none.
    pub fn paths(&mut self, known: &Known, settings: &Settings, auto: &Auto, exit: &str, now: Time) -> Vec<Arc<Taken>> {
        let direction = self.direction(exit);
        self.shunned.retain(|_, since| now.since(*since) < SHUNNED);
        let drawn = [self.draw(), self.draw()];
        let Self { places, shunned, .. } = self;
        let place = places.entry((exit.to_owned(), auto.clone())).or_default();
        place.wanted = now;
        place.streams += 1;
        let current = place.choice.current().map(|(path, ..)| path.clone());
        let relays = settings.relays(auto);
        let prices = settings.prices();
        let wanted = Wanted {
            exit,
            relays: &relays,
            relays_most: auto.most_relays,
            size: None,
            class: auto.class,
            direction,
            current: current.as_ref(),
            prices: (!prices.is_empty()).then_some(&prices),
        };
        if place.looked.is_none_or(|looked| now.since(looked) >= FRESH) {
            place.candidates = candidates(known, &wanted, now);
            place.looked = Some(now);
        }
        let direct = place.candidates.iter().find(|of| of.path.relays().is_empty());
        let direct_rate = direct.map_or(BitRate(0), |direct| direct.sure);
        let usable = |of: &&Candidate| !shunned.contains_key(&of.path);
        let usable: Vec<Candidate> = place.candidates.iter().filter(usable).cloned().collect();
        let chosen = place.choice.choose(&usable, &wanted, now, drawn);
        let taken = |path: Path, sure: BitRate| {
            Arc::new(Taken { path, exit: exit.into(), sure, direct: direct_rate, class: auto.class })
        };
        let mut paths = Vec::new();
        if let Some((chosen, why)) = chosen {
            match why {
                Why::Kept => {}
                Why::Tried => tracing::debug!("a stream to node {exit} tries {}", chosen.path),
                _ => tracing::info!("streams to node {exit} go over {}: {}", chosen.path, why.because()),
            }
            paths.push(taken(chosen.path.clone(), chosen.sure));
        }
        let others = usable.iter().filter(|of| chosen.is_none_or(|(chosen, _)| chosen.path != of.path));
        paths.extend(others.take(TRIED - 1).map(|of| taken(of.path.clone(), of.sure)));
        // Of what nothing is known, or all has failed: the node itself.
        let direct = Path(vec![exit.into()]);
        if !paths.iter().any(|taken| taken.path == direct) {
            paths.push(taken(direct, direct_rate));
        }
        paths
    }

    /// Others want paths to these nodes.
    pub fn asked_for<'a>(&mut self, wanted: impl Iterator<Item = &'a String>, now: Time) {
        self.wanted_by_others.extend(wanted.map(|name| (name.clone(), now)));
    }

    /// The nodes to ask now, and the nodes to which paths are wanted.
    pub fn questions(&mut self, known: &Known, settings: &Settings, now: Time) -> Questions {
        let (mut in_use, mut others) = (Vec::new(), Vec::new());
        for ((exit, auto), place) in self.places.iter().filter(|(_, place)| now.since(place.wanted) < WANTED) {
            in_use.push(exit.clone());
            in_use.extend(place.choice.current().into_iter().flat_map(|(path, ..)| path.0.clone()));
            // What a stream has tried is to be learned soon.
            let tried = place.choice.tried().filter(|(_, at)| now.since(*at) < LEARNED);
            in_use.extend(tried.into_iter().flat_map(|(path, _)| path.0.clone()));
            if auto.most_relays > 0 {
                let period = |relay: &str| match known.leg(relay, exit, now) {
                    Some(_) => ASKED_OTHERS,
                    None => ASKED_IN_USE,
                };
                others.extend(settings.relays(auto).into_iter().map(|relay| (relay.to_owned(), period(relay))));
            }
        }
        let mut wanted: Vec<String> = in_use.iter().chain(others.iter().map(|(name, _)| name)).cloned().collect();
        wanted.sort();
        wanted.dedup();
        while wanted.len() > MAX_ASKED {
            let at = (self.draw() * wanted.len() as f64) as usize;
            wanted.swap_remove(at);
        }
        self.wanted_by_others.retain(|_, at| now.since(*at) < WANTED);
        let unknown = |name: &&String| {
            let leg = known.leg(known.name(), name, now);
            leg.is_none_or(|leg| leg.age >= ASKED_FOR_OTHERS)
        };
        others.extend(self.wanted_by_others.keys().filter(unknown).map(|name| (name.clone(), ASKED_OTHERS)));
        let mut to = Vec::new();
        let mut ask = |name: String, period: Time| {
            let is_due = name != known.name() && self.asked.get(&name).is_none_or(|at| now.since(*at) >= period);
            if is_due {
                self.asked.insert(name.clone(), now);
                to.push(name);
            }
            is_due
        };
        for name in in_use {
            ask(name, ASKED_IN_USE);
        }
        let mut rest = OTHERS;
        for (name, period) in others {
            if rest > 0 && ask(name, period) {
                rest -= 1;
            }
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
