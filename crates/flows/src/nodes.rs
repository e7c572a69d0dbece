//! The nodes of an overlay: what each asks the others, and where it sends its streams.

use std::collections::BTreeSet;

use ekiden_overlay::choice::Why;
use ekiden_overlay::delivery::Verdict;
use ekiden_overlay::judged::Taken;
use ekiden_overlay::known::Known;
use ekiden_overlay::leg::Look;
use ekiden_overlay::load::Load;
use ekiden_overlay::path::{Class, DataDirection, Path, Wanted};
use ekiden_overlay::places::Places;
use ekiden_overlay::told::Told;
use ekiden_units::Time;
use ekiden_units::random::derive;

use crate::outcome::Change;
use crate::random::Random;
use crate::rules::{ANSWERS_WITHIN, NAME_BYTES, OVERHEAD_BYTES, QUESTION_BYTES};
use crate::sites::Sites;
use crate::traffic::Offered;
use crate::world::World;

/// What a liar says that it sends, in bit/s.
const LIE: u64 = 1_000_000_000_000;

/// All nodes of a run.
pub struct Nodes<'a> {
    sites: &'a Sites,
    names: Vec<&'a str>,
    nodes: Vec<Node>,
    random: Random,
    /// What each node tells this second of all its legs, and how long that is.
    told: Vec<Option<(Told, f64)>>,
}

struct Node {
    known: Known,
    /// A place for each exit, class and direction.
    places: Places<(Class, DataDirection)>,
    load: Load,
    /// Questions that are not answered: when that is noticed, and of which node.
    silent: Vec<(Time, usize)>,
    control_bytes: f64,
}

/// Where a stream is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPath {
    /// The nodes from the one where it is opened to its exit.
    pub path: Vec<usize>,
    /// Why that path.
    pub why: Option<Why>,
    /// What it was believed to give, where the nodes have chosen it.
    pub taken: Option<Taken>,
}

impl<'a> Nodes<'a> {
    /// Nodes that know nothing yet.
    pub fn new(sites: &'a Sites) -> Self {
        let names: Vec<&str> = sites.sites.iter().map(|site| site.name.as_str()).collect();
        let node = |(number, name): (usize, &&str)| Node {
            known: Known::of_node(name),
            places: Places::new(derive(sites.seed, "places", number as u64)),
            load: Load::default(),
            silent: Vec::new(),
            control_bytes: 0.0,
        };
        let nodes = names.iter().enumerate().map(node).collect();
        let random = Random::new(sites.seed, "nodes", 0);
        Self { sites, nodes, random, told: vec![None; names.len()], names }
    }

    /// Asks what is due.
    pub fn ask_what_is_due(&mut self, world: &World, now: Time) {
        self.told.fill(None);
        for near in 0..self.nodes.len() {
            let node = &mut self.nodes[near];
            let is_over = |(at, _): &(Time, usize)| *at <= now;
            let silent: Vec<usize> = node.silent.iter().filter(|of| is_over(of)).map(|(_, other)| *other).collect();
            node.silent.retain(|of| !is_over(of));
            silent.into_iter().for_each(|other| node.known.fail(self.names[other], now));
            let questions = node.places.questions(&node.known, now);
            for other in questions.to.iter().filter_map(|name| self.sites.index(name)) {
                self.ask(near, other, &questions.wanted, world, now);
            }
        }
    }

    /// One node asks another for its record, and sees how far they are apart.
    fn ask(&mut self, near: usize, other: usize, wanted: &[String], world: &World, now: Time) {
        let question = QUESTION_BYTES + OVERHEAD_BYTES + NAME_BYTES * wanted.len() as f64;
        self.nodes[near].control_bytes += question;
        if world.is_cut(near, other) || world.is_cut(other, near) {
            self.nodes[near].silent.push((now + ANSWERS_WITHIN, other));
            return;
        }
        let is_other = |name: &&String| **name != self.names[other];
        self.nodes[other].places.asked_for(wanted.iter().filter(is_other), now);
        let rtt_s = world.rtt_s(near, other) * self.random.noise(self.sites.noise.as_f64());
        let look = Look { span_s: 1.0, rtt_s: Some(rtt_s), ..Look::default() };
        self.nodes[near].known.see(self.names[other], &look, now);
        let (told, bytes) = self.told[other].get_or_insert_with(|| {
            let mut told = self.nodes[other].known.tell(self.nodes[other].load.mean(), now);
            if self.sites.sites[other].lies.is_some() {
                told.legs.values_mut().for_each(|leg| (leg.rate_bit_s, leg.carried_bit_s) = (Some(LIE), LIE));
                told.load = 0.0;
            }
            let bytes = serde_json::to_vec(&told).map_or(0, |json| json.len());
            (told, bytes as f64)
        });
        let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
        let is_told = |to: &str| to == self.names[near] || wanted.contains(to);
        let legs: Vec<_> = told.legs.iter().filter(|(to, _)| is_told(to)).map(|(to, leg)| (to.clone(), *leg)).collect();
        // Legs are about as long as each other.
        let answer = *bytes * (legs.len() + 1) as f64 / (told.legs.len() + 1) as f64 + OVERHEAD_BYTES;
        let told = Told { node: told.node.clone(), legs: legs.into_iter().collect(), ..*told };
        self.nodes[near].known.hear(told, now);
        self.nodes[near].control_bytes += answer;
        self.nodes[other].control_bytes += question + answer;
    }

    /// The paths of a new stream, to be tried one after the other; and whether another path is in use by that.
    pub fn place(&mut self, offered: &Offered, now: Time) -> (Vec<StreamPath>, Option<Change>) {
        let node = &mut self.nodes[offered.near];
        let wanted = Wanted {
            exit: self.names[offered.far],
            relays: &self.names,
            required: &[],
            relays_most: 2,
            size: None,
            class: offered.class,
            direction: offered.direction,
            current: None,
            prices: None,
        };
        let placed = node.places.place(&node.known, &(offered.class, offered.direction), &wanted, now);
        let change = placed.why.filter(|why| why.is_change()).map(|why| Change {
            at_s: now.as_secs(),
            near: self.names[offered.near].into(),
            far: self.names[offered.far].into(),
            class: offered.class,
            direction: offered.direction,
            from: placed.before.map(|path| path.0),
            to: placed.paths[0].path.0.clone(),
            why,
        });
        let place = |(rank, taken): (usize, Taken)| {
            let hops = taken.path.0.iter().filter_map(|name| self.sites.index(name));
            let path = [offered.near].into_iter().chain(hops).collect();
            StreamPath { path, why: placed.why.filter(|_| rank == 0), taken: Some(taken) }
        };
        (placed.paths.into_iter().enumerate().map(place).collect(), change)
    }

    /// A stream could not be opened on this path, for this leg of it.
    pub fn open_failed(&mut self, near: usize, path: &Path, leg: (usize, usize), now: Time) {
        self.nodes[near].places.failed(path, now);
        self.fail(leg.0, leg.1, now);
    }

    /// A stream was opened. Nodes here deliver what they take, if slowly.
    pub fn opened(&mut self, near: usize, path: &Path, now: Time) {
        self.nodes[near].places.judge(path, Verdict::Arrived, now, now);
    }

    /// Whether it is known that a path cannot be opened now.
    pub fn fails_on(&self, near: usize, place: &StreamPath, now: Time) -> bool {
        place.taken.as_ref().is_some_and(|taken| self.nodes[near].known.fails_on(&taken.path.0, now))
    }

    /// How much a node relays, as a part of what it may.
    pub fn relays(&mut self, site: usize, part: f64, now: Time) {
        self.nodes[site].load.see(part, now);
    }

    /// A node's connections have shown something of a leg.
    pub fn see(&mut self, from: usize, to: usize, look: &Look, now: Time) {
        let noise = self.sites.noise.as_f64();
        let [rates, rtts] = [self.random.noise(noise), self.random.noise(noise)];
        let look = Look {
            rtt_s: look.rtt_s.map(|rtt_s| rtt_s * rtts),
            rate_bit_s: look.rate_bit_s.map(|rate| rate * rates),
            together_bit_s: look.together_bit_s * rates,
            carried_bit_s: look.carried_bit_s * rates,
            ..*look
        };
        self.nodes[from].known.see(self.names[to], &look, now);
    }

    /// A node finds that nothing succeeds on a leg.
    pub fn fail(&mut self, from: usize, to: usize, now: Time) {
        self.nodes[from].known.fail(self.names[to], now);
        self.told[from] = None;
    }

    /// This part came of what the nodes in between were believed to give a stream.
    pub fn judge(&mut self, near: usize, taken: &Taken, part: f64, now: Time) {
        if self.sites.judge {
            self.nodes[near].known.judge(taken.path.relays(), part, now);
        }
    }

    /// What each node has sent and received of questions and answers, in bytes.
    pub fn control_bytes(&self) -> Vec<f64> {
        self.nodes.iter().map(|node| node.control_bytes).collect()
    }

    /// On how many paths in use each leg is, by its number, in the direction of most bytes.
    pub fn in_use(&self, world: &World) -> Vec<usize> {
        let mut counts = vec![0; world.sites * world.sites];
        for (near, node) in self.nodes.iter().enumerate() {
            for (_, (_, direction), place) in node.places.iter() {
                let Some((path, ..)) = place.choice.current() else { continue };
                let hops = path.0.iter().filter_map(|name| self.sites.index(name));
                let mut hops: Vec<usize> = [near].into_iter().chain(hops).collect();
                if *direction == DataDirection::Down {
                    hops.reverse();
                }
                hops.windows(2).for_each(|leg| counts[world.number(leg[0], leg[1])] += 1);
            }
        }
        counts
    }

    /// How often paths in use have changed, of all nodes and exits; and for how many of these there is one.
    pub fn changes(&self) -> (u64, usize) {
        let places = || self.nodes.iter().flat_map(|node| node.places.iter());
        (places().map(|(.., place)| place.choice.changes()).sum(), places().count())
    }
}
