//! Paths to a node: which are considered, and what each would give.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use ekiden_units::{BitRate, Bytes, Time};
use serde::Serialize;

use crate::known::Known;
use crate::leg::{CARRIED_PART, Holds};

/// The number of paths over one node in between that are considered further, and of those over two: few relays are enough
/// (CRONets).
const BEST: usize = 4;
/// The number of first nodes over which paths over two nodes are searched.
const FIRSTS: usize = 16;
/// The load from which on a node gets no further streams.
const LOAD_MOST: f64 = 0.9;
/// What a node in between adds to the round trip.
const HOP: Time = Time(200_000);
/// The time in seconds in which the hoped rate of a leg of known rate doubles, until the leg is tried again ...
const HOPE_DOUBLES_S: f64 = 3_600.0;
/// ... and the time in which it doubles up to the most that the leg has carried, as far as that is sure to come again.
const CARRIED_DOUBLES_S: f64 = 900.0;
/// The assumed size of a bulk transfer of unknown length: large enough that the rate decides, and the round trip only
/// between equal rates.
const LONG: Bytes = Bytes::mib(1024);

/// A chain of nodes; the last is where the stream leaves the overlay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<String>);

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A high rate: the rate counts.
    #[default]
    Bulk,
    /// A short time to answer: the round trip counts.
    Interactive,
}

impl Class {
    /// The word for it in configurations and what nodes tell.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Interactive => "interactive",
        }
    }
}

/// Which way most of a stream's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataDirection {
    /// From the destination to the client.
    #[default]
    Down,
    /// From the client to the destination.
    Up,
}

/// A path, and what it would give.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The path.
    pub path: Path,
    /// Its legs, from this node on, in the direction of most bytes.
    pub legs: Vec<Holds>,
    /// What a stream gets at least, as far as that is known of every leg: the least of their rates, or of what they have
    /// carried. 0 if it is not known of every leg.
    pub sure: BitRate,
    /// The same, but legs of unknown rate count as good as the better ones, and an old rate counts for more the older it is.
    pub hoped: BitRate,
    /// The sum of its round trips.
    pub rtt: Time,
}

/// What paths are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Where the stream leaves the overlay.
    pub exit: &'a str,
    /// The nodes that may be in between.
    pub relays: &'a [&'a str],
    /// Those of them that must be, whatever their load.
    pub required: &'a [&'a str],
    /// How many may: 0 to 2.
    pub relays_most: usize,
    /// The size of the transfer, if it is known.
    pub size: Option<Bytes>,
    /// What counts.
    pub class: Class,
    /// Which way.
    pub direction: DataDirection,
    /// The path in use, which is always considered.
    pub current: Option<&'a Path>,
    /// The price of sending through a node, where there is one.
    pub prices: Option<&'a BTreeMap<String, f64>>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" → "))
    }
}

impl Path {
    /// The nodes between this one and the last.
    pub fn relays(&self) -> &[String] {
        self.0.split_last().map_or(&[], |(_, relays)| relays)
    }
}

impl Candidate {
    /// Whether the least rate of a stream is known.
    pub fn is_known(&self) -> bool {
        self.sure.0 > 0
    }

    /// How long a transfer is expected to take: a round trip until it is open and its first byte arrives, and its bytes at
    /// its rate. If its length is unknown, the class decides what counts: the rate, and the round trip between equal rates;
    /// or the round trip. `None` if the time depends on a rate that is not known.
    pub fn takes(&self, size: Option<Bytes>, class: Class) -> Option<Time> {
        let size = size.unwrap_or(match class {
            Class::Bulk => LONG,
            Class::Interactive => Bytes(0),
        });
        match size {
            Bytes(0) => Some(self.rtt),
            _ if !self.is_known() => None,
            size => Some(self.rtt + self.sure.time_for(size)),
        }
    }
}

/// The paths from this node that are worth considering: first those whose time is known, the fastest first, then the
/// nearest. Those over one node in between are all compared; those over two, over the best first nodes.
pub fn candidates(known: &Known, wanted: &Wanted<'_>, now: Time) -> Vec<Candidate> {
    let hope = known.hope(now);
    let leg = |near: &str, far: &str| match wanted.direction {
        DataDirection::Down => known.leg(far, near, now),
        DataDirection::Up => known.leg(near, far, now),
    };
    let hop = |near: &str, far: &str| {
        let holds = leg(near, far)?;
        let sure = holds.rate.unwrap_or(holds.carried);
        // A node that has not given the hoped rate gets a lower hope the next time.
        let sender = if wanted.direction == DataDirection::Down { far } else { near };
        let guess = hope * known.credit(sender, now) / holds.rtt.as_secs().max(1e-4);
        Some(Hop { holds, sure, hoped: hoped(&holds, guess) })
    };
    let (own, exit) = (known.name(), wanted.exit);
    let has_required =
        |of: &Candidate| wanted.required.iter().all(|node| of.path.relays().iter().any(|relay| relay == node));
    let direct = hop(own, exit).map(|direct| candidate(&[exit], &[direct]));
    let mut all: Vec<_> = direct.into_iter().filter(has_required).collect();
    // Streams that use a node may stay until it is full, so that they do not go to and fro.
    let is_there = |node: &str| wanted.current.is_some_and(|path| path.relays().iter().any(|relay| relay == node));
    let most = |node: &str| if is_there(node) { 1.0 } else { LOAD_MOST };
    let has_room = |node: &str| wanted.required.contains(&node) || known.load(node) < most(node);
    let may = |node: &&str| *node != exit && *node != own && has_room(node);
    let relays: Vec<&str> = wanted.relays.iter().copied().filter(may).collect();
    let mut firsts: Vec<(&str, Hop)> = match wanted.relays_most {
        0 => Vec::new(),
        _ => relays.iter().filter_map(|relay| Some((*relay, hop(own, relay)?))).collect(),
    };
    let one = firsts.iter().filter_map(|(relay, first)| Some(candidate(&[relay, exit], &[*first, hop(relay, exit)?])));
    all.extend(best(one.filter(has_required).collect(), wanted));
    if wanted.relays_most > 1 {
        firsts.sort_by_key(|(relay, hop)| (!wanted.required.contains(relay), Reverse(hop.hoped), hop.holds.rtt));
        firsts.truncate(FIRSTS);
        let lasts: Vec<(&str, Hop)> = relays.iter().filter_map(|relay| Some((*relay, hop(relay, exit)?))).collect();
        let two = firsts.iter().flat_map(|(first, near)| {
            let others = lasts.iter().filter(move |(second, _)| second != first);
            others.filter_map(|(second, far)| {
                Some(candidate(&[first, second, exit], &[*near, hop(first, second)?, *far]))
            })
        });
        all.extend(best(two.filter(has_required).collect(), wanted));
    }
    sort(&mut all, wanted);
    all
}

/// What is known of one leg of a path.
#[derive(Debug, Clone, Copy)]
struct Hop {
    holds: Holds,
    sure: BitRate,
    hoped: BitRate,
}

/// What a leg may give, if a leg of which nothing is known is assumed to give `guess`, in bit/s. An old rate may have become
/// better: other streams or a rush hour may have lowered it. The hope is greater if the leg carried more at another time.
fn hoped(holds: &Holds, guess: f64) -> BitRate {
    let carried = holds.carried.0 as f64;
    let hoped = holds.rate.map_or(guess.max(carried), |rate| {
        let rate = rate.0 as f64;
        let aged = |doubles_s: f64| rate * (holds.age.as_secs() / doubles_s).exp2();
        rate.max(aged(HOPE_DOUBLES_S).min(guess)).max(aged(CARRIED_DOUBLES_S).min(carried * CARRIED_PART))
    });
    BitRate(hoped as u64)
}

fn candidate(nodes: &[&str], hops: &[Hop]) -> Candidate {
    let least = |rate: fn(&Hop) -> BitRate| hops.iter().map(rate).min().unwrap_or(BitRate(0));
    let between = HOP.0.saturating_mul(hops.len().saturating_sub(1) as u64);
    Candidate {
        path: Path(nodes.iter().map(|node| (*node).into()).collect()),
        legs: hops.iter().map(|hop| hop.holds).collect(),
        sure: least(|hop| hop.sure),
        hoped: least(|hop| hop.hoped),
        rtt: hops.iter().fold(Time(between), |sum, hop| sum + hop.holds.rtt),
    }
}

/// The best known paths, the best hoped ones, and the one in use.
fn best(mut all: Vec<Candidate>, wanted: &Wanted<'_>) -> Vec<Candidate> {
    sort(&mut all, wanted);
    let mut rest = all.split_off(all.len().min(BEST));
    rest.sort_by_key(|of| Reverse(of.hoped));
    let stay = |(rank, of): &(usize, Candidate)| *rank < BEST || wanted.current == Some(&of.path);
    all.extend(rest.into_iter().enumerate().filter(stay).map(|(_, of)| of));
    all
}

/// The fastest first; of equals those with fewer nodes.
fn sort(all: &mut [Candidate], wanted: &Wanted<'_>) {
    all.sort_by(|a, b| {
        let [first, second] = [a, b].map(|of| {
            let takes = of.takes(wanted.size, wanted.class);
            (takes.is_none(), takes.unwrap_or(of.rtt), of.path.0.len())
        });
        first.cmp(&second).then_with(|| a.path.cmp(&b.path))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::Look;

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

    fn hear(known: &mut Known, node: &str, legs: &[(&str, f64, f64)]) {
        let mut other = Known::of_node(node);
        legs.iter().for_each(|(to, mbit, rtt_s)| other.see(to, &look(*mbit, *rtt_s), Time(0)));
        known.hear(other.tell(0.0, Time(0)), Time(0));
    }

    fn to_paris(known: &Known, direction: DataDirection, class: Class) -> Vec<Candidate> {
        let relays = ["paris", "delhi", "perth", "cairo"];
        candidates(
            known,
            &Wanted {
                exit: "paris",
                relays: &relays,
                required: &[],
                relays_most: 2,
                size: None,
                class,
                direction,
                current: None,
                prices: None,
            },
            Time(0),
        )
    }

    fn best_of(known: &Known, direction: DataDirection) -> String {
        to_paris(known, direction, Class::Bulk).first().map_or(String::new(), |of| of.path.to_string())
    }

    #[test]
    fn a_detour_is_taken_where_it_carries_more_in_the_direction_that_counts() {
        let mut known = Known::of_node("tokyo");
        for other in ["paris", "delhi", "perth"] {
            known.see(other, &look(10.0, 0.1), Time(0));
        }
        hear(&mut known, "paris", &[("tokyo", 5.0, 0.25), ("delhi", 40.0, 0.1)]);
        assert_eq!(best_of(&known, DataDirection::Down), "paris");
        hear(&mut known, "delhi", &[("tokyo", 30.0, 0.1)]);
        assert_eq!(best_of(&known, DataDirection::Down), "delhi → paris");
        assert_eq!(best_of(&known, DataDirection::Up), "paris");
        hear(&mut known, "paris", &[("tokyo", 5.0, 0.25), ("delhi", 40.0, 0.1), ("perth", 90.0, 0.1)]);
        hear(&mut known, "perth", &[("tokyo", 2.0, 0.1), ("delhi", 90.0, 0.1)]);
        hear(&mut known, "delhi", &[("tokyo", 80.0, 0.1)]);
        assert_eq!(best_of(&known, DataDirection::Down), "delhi → perth → paris");
        // For interactive streams the distance counts.
        assert_eq!(to_paris(&known, DataDirection::Down, Class::Interactive)[0].path.to_string(), "delhi → paris");
    }

    #[test]
    fn every_path_has_the_nodes_that_are_required() {
        let mut known = Known::of_node("tokyo");
        for other in ["paris", "delhi", "perth"] {
            known.see(other, &look(10.0, 0.1), Time(0));
        }
        hear(&mut known, "delhi", &[("paris", 1.0, 0.1), ("perth", 1.0, 0.1)]);
        hear(&mut known, "perth", &[("paris", 9.0, 0.1), ("delhi", 9.0, 0.1)]);
        let relays = ["paris", "delhi", "perth", "cairo"];
        let paths = |known: &Known, relays_most: usize, required: &[&str]| {
            let (size, class, current, prices) = (None, Class::Bulk, None, None);
            let (exit, direction, relays) = ("paris", DataDirection::Up, &relays[..]);
            let wanted = Wanted { exit, relays, required, relays_most, size, class, direction, current, prices };
            let all = candidates(known, &wanted, Time(0));
            all.iter().map(|of| of.path.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&known, 2, &[]).len(), 5);
        let over_delhi = ["delhi → paris", "delhi → perth → paris", "perth → delhi → paris"];
        assert_eq!(paths(&known, 2, &["delhi"]), over_delhi);
        assert_eq!(paths(&known, 2, &["perth", "delhi"]), over_delhi[1..]);
        assert_eq!(paths(&known, 1, &["delhi"]), ["delhi → paris"]);
        assert_eq!(paths(&known, 0, &["delhi"]), [""; 0]);
        assert_eq!(paths(&known, 2, &["cairo"]), [""; 0]);
        // A node that relays all that it may is on the way nevertheless.
        let mut full = Known::of_node("delhi");
        full.see("paris", &look(1.0, 0.1), Time(0));
        known.hear(full.tell(1.0, Time(0)), Time(0));
        assert_eq!(paths(&known, 1, &["delhi"]), ["delhi → paris"]);
    }

    #[test]
    fn what_a_leg_has_carried_is_sure_and_what_is_not_known_is_hoped() {
        let mut known = Known::of_node("tokyo");
        hear(&mut known, "paris", &[("tokyo", 8.0, 0.1)]);
        known.see("delhi", &Look { rtt_s: Some(0.05), carried_bit_s: 3e6, ..Look::default() }, Time(0));
        hear(&mut known, "delhi", &[("paris", 1.0, 0.05)]);
        let all = to_paris(&known, DataDirection::Up, Class::Bulk);
        let over = all.iter().find(|of| of.path.relays() == ["delhi"]).unwrap();
        assert_eq!((over.sure, over.hoped), (BitRate::mbit(1), BitRate::mbit(1)));
        let direct = all.iter().find(|of| of.path.relays().is_empty()).unwrap();
        // A mebibyte in 100 ms.
        assert_eq!((direct.sure, direct.hoped), (BitRate(0), BitRate(83_886_080)));
        assert_eq!(direct.takes(None, Class::Bulk), None);
        assert_eq!(direct.takes(None, Class::Interactive), Some(direct.rtt));
    }

    #[test]
    fn what_was_seen_long_ago_is_hoped_to_be_better_by_now() {
        let mut known = Known::of_node("tokyo");
        known.see("delhi", &look(200.0, 0.1), Time(0));
        known.see("paris", &look(20.0, 0.1), Time(0));
        let mut hoped = |hours: u64| {
            let now = Time::secs(hours * 3_600);
            known.see("paris", &Look { rtt_s: Some(0.1), ..Look::default() }, now);
            known.see("delhi", &look(200.0, 0.1), now);
            let wanted = Wanted {
                exit: "paris",
                relays: &[],
                required: &[],
                relays_most: 0,
                size: None,
                class: Class::Bulk,
                direction: DataDirection::Up,
                current: None,
                prices: None,
            };
            let all = candidates(&known, &wanted, now);
            (all[0].sure, all[0].hoped)
        };
        let mbit = BitRate::mbit;
        assert_eq!([0, 2, 4].map(&mut hoped), [(mbit(20), mbit(20)), (mbit(20), mbit(80)), (mbit(20), mbit(200))]);
    }

    #[test]
    fn a_leg_that_has_carried_more_than_it_gives_is_hoped_to_do_so_again() {
        let of = |minutes: u64| {
            let rate = Some(BitRate::mbit(10));
            let age = Time::secs(minutes * 60);
            let holds = Holds { rtt: Time::ms(100), rate, carried: BitRate::mbit(50), loss: 0.0, age, is_brief: false };
            hoped(&holds, 0.0).as_mbit()
        };
        assert_eq!([0, 15, 30, 60].map(of), [10.0, 20.0, 40.0, 40.0]);
    }

    #[test]
    fn a_node_with_all_that_it_may_relay_gets_no_more() {
        let mut known = Known::of_node("tokyo");
        known.see("delhi", &look(50.0, 0.1), Time(0));
        let mut other = Known::of_node("delhi");
        other.see("paris", &look(50.0, 0.1), Time(0));
        known.hear(other.tell(0.95, Time(0)), Time(0));
        assert_eq!(to_paris(&known, DataDirection::Up, Class::Bulk), []);
        // Streams that use it may stay until it is full.
        let path = Path(vec!["delhi".into(), "paris".into()]);
        let wanted = Wanted {
            exit: "paris",
            relays: &["delhi"],
            required: &[],
            relays_most: 1,
            size: None,
            class: Class::Bulk,
            direction: DataDirection::Up,
            current: Some(&path),
            prices: None,
        };
        assert_eq!(candidates(&known, &wanted, Time(0)).len(), 1);
        known.hear(other.tell(1.0, Time(0)), Time(0));
        assert_eq!(candidates(&known, &wanted, Time(0)).len(), 0);
        known.hear(other.tell(0.5, Time(0)), Time(0));
        assert_eq!(to_paris(&known, DataDirection::Up, Class::Bulk).len(), 1);
    }
}
