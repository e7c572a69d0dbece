//! Where proxies could be: chains to try, and the buffers that their proxies need.

use ekiden_units::Bytes;

use crate::forecast::Hop;
use crate::given::longest_s;
use crate::{Direction, Estimate, Path, Site};

/// The most proxies of a chain that is tried.
const PROXIES_MOST: usize = 4;
/// Chains of sites that are looked at closely.
const CHAINS_MOST: usize = 60;
/// A proxy beside a host has no more than this round trip to it, in seconds, and no more than a tenth of the path's.
const BESIDE_S: f64 = 0.001;
/// Linux's default limits of buffers allow for about this.
pub const BUFFER_LEAST: Bytes = Bytes::mib(4);
/// Buffers are rounded up to a multiple of this.
const BUFFER_STEP: u64 = 1 << 20;
/// What a host's window carries in a round trip, as a part of it: measured (docs/guide/lab.md, buffers).
const OF_BOTH: f64 = 0.95;
const OF_RECEIVER: f64 = 0.97;
const OF_SENDER: f64 = 1.04;
/// What of a send buffer is not used where acknowledgements come evenly over the whole round trip: a program that found it full is woken when
/// a third is free. Measured at 50 ms with 64 and 256 KiB (docs/measurements/plan.md).
const OF_SLEEP: f64 = 0.22;

/// A place in a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxySite {
    /// The node's name.
    pub name: String,
    /// The number of the site, if it is one.
    pub site: Option<usize>,
}

/// A chain that could be.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// What it is, in a few words.
    pub name: String,
    /// The proxies, from the client to the server.
    pub places: Vec<ProxySite>,
    /// The round trip of each leg in the same order, as a part of the path's, or in seconds between sites.
    pub rtts_s: Vec<Estimate>,
    /// What is lost on each leg, where that is known.
    pub losses: Vec<Option<f64>>,
    /// The rate of each leg, in bit/s.
    pub rates_bit_s: Vec<Estimate>,
}

/// Every chain that is worth a closer look.
pub fn candidates(path: &Path) -> Vec<Candidate> {
    if path.sites.is_empty() { anywhere(path) } else { of_sites(path) }
}

/// At even splits, and beside the hosts.
fn anywhere(path: &Path) -> Vec<Candidate> {
    let rtt = path.rtt_s.value;
    let beside = (BESIDE_S / rtt).min(0.1);
    let even = |proxies: usize| vec![1.0 / (proxies + 1) as f64; proxies + 1];
    let rest = 1.0 - 2.0 * beside;
    let splits = [
        ("1 proxy in the middle", even(1)),
        ("2 proxies at thirds", even(2)),
        ("2 proxies beside the hosts", vec![beside, rest, beside]),
        ("3 proxies at quarters", even(3)),
        ("3 proxies: beside the hosts and in the middle", vec![beside, rest / 2.0, rest / 2.0, beside]),
        ("4 proxies at fifths", even(4)),
    ];
    let candidate = |(name, parts): (&str, Vec<f64>)| Candidate {
        name: name.into(),
        places: (1..parts.len()).map(|number| ProxySite { name: format!("proxy-{number}"), site: None }).collect(),
        rtts_s: parts.iter().map(|&part| path.rtt_s.times(part)).collect(),
        losses: vec![None; parts.len()],
        rates_bit_s: vec![path.rate_bit_s; parts.len()],
    };
    splits.into_iter().map(candidate).collect()
}

/// Sequences of sites whose round trips are all known, those with the shortest longest leg first.
fn of_sites(path: &Path) -> Vec<Candidate> {
    let mut chains: Vec<Vec<usize>> = vec![Vec::new()];
    let mut done = 0;
    while done < chains.len() {
        let chain = chains[done].clone();
        done += 1;
        if chain.len() == PROXIES_MOST {
            continue;
        }
        for next in 0..path.sites.len() {
            let is_reached =
                chain.last().is_none_or(|&last| path.between_s(&path.sites[last], &path.sites[next]).is_some());
            if is_reached && !chain.contains(&next) {
                chains.push([&chain[..], &[next]].concat());
            }
        }
    }
    let mut candidates: Vec<Candidate> =
        chains.iter().filter(|chain| !chain.is_empty()).map(|chain| of_chain(path, chain)).collect();
    let longest = longest_s(path.rtt_s.value);
    candidates.retain(|candidate| candidate.rtts_s.iter().map(|rtt| rtt.value).sum::<f64>() <= longest);
    let longest_leg = |candidate: &Candidate| candidate.rtts_s.iter().map(|rtt| rtt.value).fold(0.0, f64::max);
    candidates.sort_by(|one, other| longest_leg(one).total_cmp(&longest_leg(other)));
    candidates.truncate(CHAINS_MOST);
    candidates.sort_by_key(|candidate| candidate.places.len());
    candidates
}

fn of_chain(path: &Path, chain: &[usize]) -> Candidate {
    let sites: Vec<&Site> = chain.iter().map(|&number| &path.sites[number]).collect();
    let (first, last) = (sites[0], sites[sites.len() - 1]);
    let between = sites.windows(2).map(|pair| path.between_s(pair[0], pair[1]).unwrap_or_default());
    let rtts = std::iter::once(first.client_rtt_s).chain(between).chain([last.server_rtt_s]);
    let mut losses = vec![None; sites.len() + 1];
    losses[0] = first.client_loss;
    losses[sites.len()] = last.server_loss;
    let capped = |site: Option<&&Site>| site.and_then(|site| site.rate).map_or(f64::INFINITY, |rate| rate.0 as f64);
    let rates = (0..=sites.len()).map(|leg| {
        let cap = capped(leg.checked_sub(1).and_then(|before| sites.get(before))).min(capped(sites.get(leg)));
        let Estimate { value, low, high } = path.rate_bit_s;
        Estimate { value: value.min(cap), low: low.min(cap), high: high.min(cap) }
    });
    let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
    Candidate {
        name: names.join(" – "),
        places: chain
            .iter()
            .map(|&number| ProxySite { name: path.sites[number].name.clone(), site: Some(number) })
            .collect(),
        rtts_s: rtts.map(|rtt| Estimate::exact(rtt.max(1e-5))).collect(),
        losses,
        rates_bit_s: rates.collect(),
    }
}

impl Candidate {
    /// Its legs from the client to the server, with the path's loss spread by round trips over those whose own is not known.
    pub fn hops(&self, path: &Path) -> Vec<Hop> {
        let unknown: f64 =
            self.rtts_s.iter().zip(&self.losses).filter(|(_, loss)| loss.is_none()).map(|(rtt, _)| rtt.value).sum();
        let share = |rtt: f64, whole: f64| if unknown > 0.0 { 1.0 - (1.0 - whole).powf(rtt / unknown) } else { 0.0 };
        let known: f64 = self.losses.iter().flatten().map(|loss| 1.0 - loss).product();
        // What the path loses beyond the legs of which it is known.
        let beyond = |whole: f64| (1.0 - (1.0 - whole) / known).clamp(0.0, 1.0);
        (0..self.rtts_s.len())
            .map(|leg| {
                let rtt = self.rtts_s[leg].value;
                let loss = match self.losses[leg] {
                    Some(loss) => Estimate::exact(loss),
                    None => {
                        let Estimate { value, low, high } = path.loss;
                        let [low, value, high] = [low, value, high].map(|whole| share(rtt, beyond(whole)));
                        Estimate { value, low, high }
                    }
                };
                self.hop(path, leg, loss)
            })
            .collect()
    }

    /// The leg on which a policer is assumed, as nobody knows where it is: the longest.
    pub fn policed_leg(&self) -> usize {
        let longest = self.rtts_s.iter().map(|rtt| rtt.value).fold(0.0, f64::max);
        self.rtts_s.iter().position(|rtt| rtt.value == longest).unwrap_or_default()
    }

    /// The same with the policer on another leg, one way for each.
    pub fn policed_elsewhere(&self, path: &Path) -> Vec<Vec<Hop>> {
        let hops = self.hops(path);
        let on = |at: usize| {
            let policer = |leg: usize| path.policer.filter(|_| leg == at);
            hops.iter().enumerate().map(|(leg, hop)| Hop { policer: policer(leg), ..*hop }).collect()
        };
        let others = (0..hops.len()).filter(|&leg| leg != self.policed_leg());
        if path.policer.is_some() { others.map(on).collect() } else { Vec::new() }
    }

    /// The same with all of the loss, whose place is not known, on one leg; one way for each leg of which nothing is known.
    pub fn elsewhere(&self, path: &Path) -> Vec<Vec<Hop>> {
        let unknown: Vec<usize> = (0..self.losses.len()).filter(|&leg| self.losses[leg].is_none()).collect();
        if path.loss.value == 0.0 || unknown.len() < 2 || self.losses.iter().any(Option::is_some) {
            return Vec::new();
        }
        let on = |at: usize| {
            let loss = |leg: usize| if leg == at { path.loss } else { Estimate::exact(0.0) };
            (0..self.rtts_s.len()).map(|leg| self.hop(path, leg, loss(leg))).collect()
        };
        unknown.into_iter().map(on).collect()
    }

    /// The number of the leg on which the host sends, and of that on which the other receives.
    pub fn host_legs(&self, path: &Path) -> (usize, usize) {
        let last = self.rtts_s.len() - 1;
        match path.direction {
            Direction::Forth => (0, last),
            Direction::Back => (last, 0),
        }
    }

    fn hop(&self, path: &Path, leg: usize, loss: Estimate) -> Hop {
        let (sends, receives) = self.host_legs(path);
        let (of_sender, of_receiver) = windows(path);
        let buffer = buffer(path, &self.rtts_s[leg], &self.rates_bit_s[leg]).0 as f64;
        let mut window = buffer;
        if leg == sends {
            let awake = awake(of_sender, &self.rtts_s[leg], &self.rates_bit_s[leg]);
            window = window.min(OF_SENDER * of_sender.0 as f64 * awake);
        }
        if leg == receives {
            window = window.min(OF_RECEIVER * of_receiver.0 as f64);
        }
        Hop {
            rtt_s: self.rtts_s[leg],
            rate_bit_s: self.rates_bit_s[leg],
            buffer_bytes: path.buffer_bytes,
            loss,
            policer: path.policer.filter(|_| leg == self.policed_leg()),
            mtu: path.mtu,
            window,
            control: path.congestion,
            connections: path.streams,
        }
    }
}

/// The buffer that a leg wants at both of its ends: twice what is under way when it is full, one for what is on its way, one for what waits
/// until a hole is repaired; and at least what Linux gives anyway.
pub fn buffer(path: &Path, rtt_s: &Estimate, rate_bit_s: &Estimate) -> Bytes {
    let bdp = rate_bit_s.high * rtt_s.high / 8.0;
    let queue = path.buffer_bytes.high.min(4.0 * bdp);
    let wanted = (2.0 * (bdp + queue)) as u64;
    Bytes(wanted.max(BUFFER_LEAST.0).div_ceil(BUFFER_STEP).saturating_mul(BUFFER_STEP))
}

/// The direct connection, as a chain of one.
pub fn direct(path: &Path, window: Option<Bytes>) -> Hop {
    let (sender, receiver) = windows(path);
    let awake = awake(sender, &path.rtt_s, &path.rate_bit_s);
    let (sender, receiver) = (sender.0 as f64, receiver.0 as f64);
    let used = if sender < 0.9 * receiver {
        OF_SENDER * sender * awake
    } else if receiver < 0.9 * sender {
        OF_RECEIVER * receiver
    } else {
        OF_BOTH * sender.min(receiver) * awake
    };
    Hop {
        rtt_s: path.rtt_s,
        rate_bit_s: path.rate_bit_s,
        buffer_bytes: path.buffer_bytes,
        loss: path.loss,
        policer: path.policer,
        mtu: path.mtu,
        window: window.map_or(used, |window| window.0 as f64),
        control: path.congestion,
        connections: path.streams,
    }
}

/// The part of its send buffer that a program keeps full, by how much of a round trip the buffer takes on the line.
fn awake(buffer: Bytes, rtt_s: &Estimate, rate_bit_s: &Estimate) -> f64 {
    let on_line_s = buffer.0 as f64 * 8.0 / rate_bit_s.value;
    1.0 - OF_SLEEP * (on_line_s / rtt_s.value).min(1.0)
}

/// Of the host that sends, and of that which receives.
fn windows(path: &Path) -> (Bytes, Bytes) {
    match path.direction {
        Direction::Forth => (path.client_window, path.server_window),
        Direction::Back => (path.server_window, path.client_window),
    }
}
