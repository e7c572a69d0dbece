//! The sites as a scenario for the lab and for the simulator of packets: a node and a host at each, a link for each leg.

use std::fmt::Write as _;

use ekiden_units::{BitRate, Bytes, Fraction, Time};

use crate::random::Random;
use crate::sites::Sites;
use crate::world::World;

/// Between a host and its node.
const NEAR: (BitRate, Time) = (BitRate::mbit(200), Time(200_000));
/// A leg's queue holds what the line carries in a round trip, and so much at least.
const QUEUE_LEAST: u64 = 64_000;
/// Files that a pair sends at once: with one, nodes would have few streams to place in a minute.
const PARALLEL: u32 = 2;
/// A link is called after both its sites, and no name of a scenario has more than 32 characters.
const NAME_MOST: usize = 15;
/// With a host at each, no more nodes than a scenario has.
const SITES_MOST: usize = 125;

/// What of the sites a scenario has, and what is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packets {
    /// Legs that are faster get this.
    pub rate_most: BitRate,
    /// Between how many pairs of sites files are sent, two at a time, one after another. Which, by the seed.
    pub flows: usize,
    /// How large they are.
    pub file: Bytes,
    /// For how long.
    pub duration: Time,
    /// Where in the sites' schedules that is: outages and rush hours become schedules of links, in whole seconds.
    pub begin: Time,
}

impl Packets {
    /// The scenario's text.
    ///
    /// # Errors
    /// Why a scenario cannot have these sites: one line.
    pub fn scenario(&self, sites: &Sites) -> Result<String, String> {
        let names: Vec<&str> = sites.sites.iter().map(|site| site.name.as_str()).collect();
        let is_usable = |name: &&&str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=NAME_MOST).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-')
        };
        if names.len() > SITES_MOST {
            return Err(format!(
                "site: a scenario has room for {SITES_MOST} sites with a node and a host each, and here are {}",
                names.len()
            ));
        }
        if let Some(wrong) = names.iter().find(|name| !is_usable(name)) {
            return Err(format!(
                "site: {wrong:?} cannot name a node of a scenario: 1 to {NAME_MOST} letters, digits, '-' and '_'"
            ));
        }
        let pairs = names.len() * (names.len() - 1);
        if !(1..=pairs).contains(&self.flows) {
            return Err(format!("--flows: these sites make 1 to {pairs} pairs, not {}", self.flows));
        }
        let mut text =
            format!("name = \"sites-{}\"\nseed = {}\n\n[tcp]\ncongestion = \"cubic\"\n", names.len(), sites.seed);
        for name in &names {
            let _ = write!(text, "\n[node.{name}]\nkind = \"proxy\"\nforwards = false\n[node.at-{name}]\n");
            let (rate, delay) = NEAR;
            let _ = write!(
                text,
                "[link.{name}]\nends = [\"at-{name}\", \"{name}\"]\nrate = \"{rate}\"\ndelay = \"{delay}\"\n"
            );
        }
        self.links(sites, &names, &mut text);
        for (from, to) in self.pairs(sites) {
            let [from, to] = [from, to].map(|site| names[site]);
            let _ = write!(
                text,
                "\n[flow.{from}-{to}]\nfrom = \"at-{from}\"\nto = \"at-{to}\"\nvia = [\"{from}\", \"auto\", \"{to}\"]\n\
                 duration = \"{}\"\nfile = \"{}\"\nparallel = {PARALLEL}\n",
                self.duration, self.file
            );
        }
        Ok(text)
    }

    fn links(&self, sites: &Sites, names: &[&str], text: &mut String) {
        let mut world = World::new(sites);
        // What is left of each leg, second by second.
        let lefts: Vec<Vec<f64>> = (0..=self.duration.0 / Time::secs(1).0)
            .map(|second| {
                world.at(self.begin + Time::secs(second));
                (0..names.len() * names.len()).map(|leg| world.left(leg)).collect()
            })
            .collect();
        for (a, b) in (0..names.len()).flat_map(|b| (0..b).map(move |a| (a, b))) {
            // Half of the round trip, in tenths of a millisecond.
            let delay = Time((world.rtt_s(a, b) * 5e3).round() as u64 * 100_000);
            let _ =
                write!(text, "\n[link.{0}-{1}]\nends = [\"{0}\", \"{1}\"]\ndelay = \"{delay}\"\n", names[a], names[b]);
            for (key, from, to) in [("forth", a, b), ("back", b, a)] {
                let number = world.number(from, to);
                let leg = world.drawn(number);
                // In steps of 10 kbit/s, of a kilobyte and of 1 ppm.
                let most = (leg.rate as u64).min(self.rate_most.0) as f64;
                let rate_at = |left: f64| BitRate(((most * left) as u64 / 10_000).max(1) * 10_000);
                let rate = rate_at(1.0);
                let queue = Bytes(((rate.0 as f64 / 8.0 * leg.rtt_s) as u64).max(QUEUE_LEAST) / 1_000 * 1_000);
                let loss = Fraction((leg.loss * 1e6).round() as u64 * 1_000);
                let schedule = schedule(lefts.iter().map(|left| left[number]), rate_at);
                let _ =
                    writeln!(text, "{key} = {{ rate = \"{rate}\", queue = \"{queue}\", loss = \"{loss}\"{schedule} }}");
            }
        }
    }

    /// Different ones, by the seed.
    fn pairs(&self, sites: &Sites) -> Vec<(usize, usize)> {
        let n = sites.sites.len();
        let mut all: Vec<_> = (0..n * n).map(|leg| (leg / n, leg % n)).filter(|(from, to)| from != to).collect();
        let mut random = Random::new(sites.seed, "pairs", 0);
        (0..self.flows.min(all.len())).map(|_| all.swap_remove(random.below(all.len()))).collect()
    }
}

/// The keys of a link of which so much is `left` in each second.
fn schedule(left: impl Iterator<Item = f64>, rate_at: impl Fn(f64) -> BitRate) -> String {
    let (mut before, mut cut, mut changes, mut outages) = (1.0, None, Vec::new(), Vec::new());
    let mut end = 0;
    for (second, left) in left.enumerate() {
        end = second + 1;
        match (left > 0.0, cut) {
            (false, None) => cut = Some(second),
            (true, Some(since)) => {
                outages.push((since, second - since));
                cut = None;
            }
            _ => {}
        }
        if left > 0.0 && left != before {
            changes.push(format!("{{ at = \"{second}s\", rate = \"{}\" }}", rate_at(left)));
            before = left;
        }
    }
    outages.extend(cut.map(|since| (since, end - since)));
    let outages = outages.iter().map(|(at, lasts)| format!("{{ at = \"{at}s\", lasts = \"{lasts}s\" }}")).collect();
    let key = |name: &str, of: Vec<String>| match of.is_empty() {
        true => String::new(),
        false => format!(", {name} = [{}]", of.join(", ")),
    };
    key("changes", changes) + &key("outages", outages)
}
