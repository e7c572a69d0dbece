//! The nodes of an overlay: what each asks the others, and where it sends its streams.

use std::collections::{BTreeMap, BTreeSet};

use ekiden_overlay::choice::{Choice, Why};
use ekiden_overlay::known::Known;
use ekiden_overlay::leg::Look;
use ekiden_overlay::path::{Class, Direction, Wanted, candidates};
use ekiden_overlay::told::Told;
use ekiden_units::Time;

use crate::random::Random;
use crate::rules::{ANSWERS_WITHIN, ASKS_OTHERS, ASKS_USED, ENOUGH, IN_USE, OVERHEAD_BYTES, QUESTION_BYTES};
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
    /// What each node tells this second, and how long that is.
    told: Vec<Option<(Told, f64)>>,
    /// How much of what it may relay each does, 0 to 1.
    pub load: Vec<f64>,
}

struct Node {
    known: Known,
    /// By the exit, and what counts; with when a stream was last placed there.
    choices: BTreeMap<(usize, Class, Direction), (Choice, Time)>,
    asked: Vec<Option<Time>>,
    /// Questions that are not answered: when that is noticed, and of which node.
    silent: Vec<(Time, usize)>,
    placed: Option<Time>,
    control_bytes: f64,
}

/// Where a stream is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The nodes from the one where it is opened to its exit.
    pub path: Vec<usize>,
    /// Why that path.
    pub why: Option<Why>,
    /// What it is believed to give at least, in bit/s; 0 if nothing is known.
    pub sure: f64,
}

impl<'a> Nodes<'a> {
    /// Nodes that know nothing yet.
    pub fn new(sites: &'a Sites) -> Self {
        let n = sites.sites.len();
        let node = |name: &&str| Node {
            known: Known::of_node(name),
            choices: BTreeMap::new(),
            asked: vec![None; n],
            silent: Vec::new(),
            placed: None,
            control_bytes: 0.0,
        };
        let names: Vec<&str> = sites.sites.iter().map(|site| site.name.as_str()).collect();
        let nodes = names.iter().map(node).collect();
        let random = Random::new(sites.seed, "nodes", 0);
        Self { sites, names, nodes, random, told: vec![None; n], load: vec![0.0; n] }
    }

    /// Asks what is due. Nodes that have had no stream to place for a while ask nothing.
    pub fn ask_what_is_due(&mut self, world: &World, now: Time) {
        self.told.fill(None);
        for near in 0..self.nodes.len() {
            let node = &mut self.nodes[near];
            let is_over = |(at, _): &(Time, usize)| *at <= now;
            let silent: Vec<usize> = node.silent.iter().filter(|of| is_over(of)).map(|(_, other)| *other).collect();
            node.silent.retain(|of| !is_over(of));
            silent.into_iter().for_each(|other| node.known.fail(self.names[other], now));
            if node.placed.is_none_or(|placed| now.since(placed) > IN_USE) {
                continue;
            }
            let used = self.used_by(near, now);
            for other in (0..self.nodes.len()).filter(|other| *other != near) {
                let every = if used.contains(&other) { ASKS_USED } else { ASKS_OTHERS };
                if self.nodes[near].asked[other].is_none_or(|asked| now >= asked + every) {
                    self.ask(near, other, world, now);
                }
            }
        }
    }

    /// The nodes that a node's paths in use run over.
    fn used_by(&self, near: usize, now: Time) -> BTreeSet<usize> {
        let choices = self.nodes[near].choices.iter();
        let in_use = choices.filter(|(_, (_, at))| now.since(*at) <= IN_USE);
        let nodes = in_use.flat_map(|((exit, ..), (choice, _))| {
            let relays = choice.current().map_or(&[][..], |(path, ..)| path.relays());
            relays.iter().filter_map(|name| self.sites.index(name)).chain([*exit])
        });
        nodes.collect()
    }

    /// One node asks another for its record. Both see how far they are apart.
    pub fn ask(&mut self, near: usize, other: usize, world: &World, now: Time) {
        let question = QUESTION_BYTES + OVERHEAD_BYTES;
        self.nodes[near].asked[other] = Some(now);
        self.nodes[near].control_bytes += question;
        if world.is_cut(near, other) || world.is_cut(other, near) {
            self.nodes[near].silent.push((now + ANSWERS_WITHIN, other));
            return;
        }
        for (from, to) in [(near, other), (other, near)] {
            let rtt_s = world.rtt_s(from, to) * self.random.noise(self.sites.noise.as_f64());
            let look = Look { span_s: 1.0, rtt_s: Some(rtt_s), ..Look::default() };
            self.nodes[from].known.see(self.names[to], &look, now);
        }
        let (told, bytes) = self.told[other].get_or_insert_with(|| {
            let mut told = self.nodes[other].known.tell(self.load[other], now);
            if self.sites.sites[other].lies.is_some() {
                told.legs.values_mut().for_each(|leg| (leg.rate_bit_s, leg.carried_bit_s) = (Some(LIE), LIE));
                told.load = 0.0;
            }
            let bytes = serde_json::to_vec(&told).map_or(0, |json| json.len());
            (told, bytes as f64)
        });
        let (told, answer) = (told.clone(), *bytes + OVERHEAD_BYTES);
        self.nodes[near].known.hear(told, now);
        self.nodes[near].control_bytes += answer;
        self.nodes[other].control_bytes += question + answer;
    }

    /// The path of a new stream.
    pub fn place(&mut self, offered: &Offered, now: Time) -> Place {
        let node = &mut self.nodes[offered.near];
        node.placed = Some(now);
        let (choice, at) = node.choices.entry((offered.far, offered.class, offered.direction)).or_default();
        *at = now;
        let current = choice.current().map(|(path, ..)| path.clone());
        let wanted = Wanted {
            exit: self.names[offered.far],
            relays: &self.names,
            relays_most: 2,
            size: None,
            class: offered.class,
            direction: offered.direction,
            current: current.as_ref(),
            prices: None,
        };
        let all = candidates(&node.known, &wanted, now);
        let drawn = [self.random.part(), self.random.part()];
        let Some((candidate, why)) = choice.choose(&all, &wanted, now, drawn) else {
            return Place { path: vec![offered.near, offered.far], why: None, sure: 0.0 };
        };
        let hops = candidate.path.0.iter().filter_map(|name| self.sites.index(name));
        let path = [offered.near].into_iter().chain(hops).collect();
        Place { path, why: Some(why), sure: candidate.sure.0 as f64 }
    }

    /// A node's connections have shown something of a leg.
    pub fn see(&mut self, from: usize, to: usize, look: &Look, now: Time) {
        let noise = self.sites.noise.as_f64();
        let [rates, rtts] = [self.random.noise(noise), self.random.noise(noise)];
        let look = Look {
            rtt_s: look.rtt_s.map(|rtt_s| rtt_s * rtts),
            rate_bit_s: look.rate_bit_s.map(|rate| rate * rates),
            carried_bit_s: look.carried_bit_s * rates,
            ..*look
        };
        self.nodes[from].known.see(self.names[to], &look, now);
    }

    /// A node finds that nothing comes about on a leg.
    pub fn fail(&mut self, from: usize, to: usize, now: Time) {
        self.nodes[from].known.fail(self.names[to], now);
        self.told[from] = None;
    }

    /// A stream over relays has got `rate`, where `place` was believed to give more or less.
    pub fn judge(&mut self, offered: &Offered, place: &Place, rate: f64, now: Time) {
        if !self.sites.judge || place.sure <= 0.0 || place.path.len() < 3 {
            return;
        }
        let node = &mut self.nodes[offered.near];
        let [near, far] = [offered.near, offered.far].map(|site| self.names[site]);
        let (from, to) = if offered.direction == Direction::Up { (near, far) } else { (far, near) };
        let direct = node.known.leg(from, to, now).map_or(0, |holds| holds.rate.unwrap_or(holds.carried).0);
        let part = rate / place.sure;
        if part >= ENOUGH || rate < ENOUGH * direct as f64 {
            let relays: Vec<String> =
                place.path[1..place.path.len() - 1].iter().map(|relay| self.names[*relay].to_owned()).collect();
            node.known.judge(&relays, part, now);
        }
    }

    /// What each node has sent and received of questions and answers, in bytes.
    pub fn control_bytes(&self) -> Vec<f64> {
        self.nodes.iter().map(|node| node.control_bytes).collect()
    }

    /// How often paths in use have changed, of all nodes and exits; and for how many of these there is one.
    pub fn changes(&self) -> (u64, usize) {
        let choices = || self.nodes.iter().flat_map(|node| node.choices.values());
        (choices().map(|(choice, _)| choice.changes()).sum(), choices().count())
    }
}
