//! The sites as a scenario for the lab and for the simulator of packets: a node and a host at each, a link for each leg.

use std::fmt::Write as _;

use ekiden_units::{BitRate, Bytes, Fraction, Time};

use crate::random::Random;
use crate::sites::Sites;
use crate::world::World;

/// The link between a host and its node.
const NEAR: (BitRate, Time) = (BitRate::mbit(200), Time(200_000));
/// The least queue of a leg, in bytes. A longer one holds what the line carries in a round trip.
const QUEUE_LEAST: u64 = 64_000;
/// The number of files that a pair sends at once: with one, nodes would have few streams to place in a minute.
const PARALLEL: u32 = 2;
/// The maximum length of a site's name: a link has the names of both its sites, and a name of a scenario at most 32
/// characters.
const NAME_MOST: usize = 15;
/// The maximum number of sites: with a host at each, a scenario has no room for more.
const SITES_MOST: usize = 125;

/// The part of the sites that a scenario has, and the data that is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packets {
    /// The rate of legs that are faster.
    pub rate_most: BitRate,
    /// The number of pairs of sites between which files are sent, two at a time, one after another. The seed chooses the
    /// pairs.
    pub flows: usize,
    /// The size of a file.
    pub file: Bytes,
    /// The duration.
    pub duration: Time,
    /// Where in the sites' schedules the scenario begins: outages and rush hours become schedules of links, in whole
    /// seconds.
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
        let mut schedules = vec![Schedule::default(); names.len() * names.len()];
        let seconds = self.duration.0 / Time::secs(1).0 + 1;
        for second in 0..seconds {
            world.at(self.begin + Time::secs(second));
            schedules.iter_mut().enumerate().for_each(|(leg, schedule)| schedule.at(second, world.left(leg)));
        }
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
                let schedule = schedules[number].keys(seconds, rate_at);
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

/// The part of a leg that is left from each second on: an entry for each change, none while all of it is left.
#[derive(Debug, Clone, Default)]
struct Schedule(Vec<(u64, f64)>);

impl Schedule {
    /// To be called for each second in turn.
    fn at(&mut self, second: u64, left: f64) {
        if self.0.last().map_or(1.0, |(_, before)| *before) != left {
            self.0.push((second, left));
        }
    }

    /// As keys of a link. A leg that is cut at the `end`, in seconds, stays cut until then.
    fn keys(&self, end: u64, rate_at: impl Fn(f64) -> BitRate) -> String {
        let (mut rate, mut changes, mut outages) = (1.0, Vec::new(), Vec::new());
        for (number, (at, left)) in self.0.iter().enumerate() {
            if *left <= 0.0 {
                let lasts = self.0.get(number + 1).map_or(end, |(next, _)| *next) - at;
                outages.push(format!("{{ at = \"{at}s\", lasts = \"{lasts}s\" }}"));
            } else if *left != rate {
                changes.push(format!("{{ at = \"{at}s\", rate = \"{}\" }}", rate_at(*left)));
                rate = *left;
            }
        }
        let key = |name: &str, of: Vec<String>| match of.is_empty() {
            true => String::new(),
            false => format!(", {name} = [{}]", of.join(", ")),
        };
        key("changes", changes) + &key("outages", outages)
    }
}
