//! How others choose paths, on the same sites and the same streams; and the best possible choice.

use ekiden_units::Time;

use crate::random::Random;
use crate::world::World;

/// RON (Andersen, Balakrishnan, Kaashoek, Morris, SOSP 2001): the interval in seconds at which each node probes every other
/// with small packets ...
const RON_PROBES: u64 = 12;
/// ... the bytes of a probe, which takes three packets ...
const RON_PROBE_BYTES: f64 = 3.0 * 69.0;
/// ... the interval in seconds at which a node tells all others what it knows ...
const RON_TELLS_S: f64 = 14.0;
/// ... and the bytes that this takes: a fixed number, and a number for each node.
const RON_TOLD_BYTES: [f64; 2] = [60.0, 20.0];
/// The interval in seconds at which each leg is loaded, so that RON also knows rates ...
const RON_LOADS: u64 = 600;
/// ... and the duration of such a load in seconds, as CRONets measured with iperf.
const RON_LOAD_S: f64 = 5.0;

/// The best path in the direction of the data over at most two nodes in between, and the rate of one more stream on it.
pub fn best_rate(offers: &[f64], n: usize, from: usize, to: usize, relays_most: usize) -> (Vec<usize>, f64) {
    let mut best = (vec![from, to], offers[from * n + to]);
    if relays_most == 0 {
        return best;
    }
    for a in (0..n).filter(|a| *a != from && *a != to) {
        let near = offers[from * n + a];
        let one = near.min(offers[a * n + to]);
        if one > best.1 {
            best = (vec![from, a, to], one);
        }
        if near <= best.1 || relays_most == 1 {
            continue;
        }
        for b in (0..n).filter(|b| *b != from && *b != to && *b != a) {
            let two = near.min(offers[a * n + b]).min(offers[b * n + to]);
            if two > best.1 {
                best = (vec![from, a, b, to], two);
            }
        }
    }
    best
}

/// The path with the shortest round trip over at most two nodes in between, of legs that are not cut, and that round trip in seconds.
pub fn shortest_rtt(world: &World, from: usize, to: usize) -> (Vec<usize>, f64) {
    let n = world.sites;
    let rtt_s = |a: usize, b: usize| if world.is_cut(a, b) { f64::INFINITY } else { world.rtt_s(a, b) };
    let mut best = (vec![from, to], rtt_s(from, to));
    for a in (0..n).filter(|a| *a != from && *a != to) {
        let near = rtt_s(from, a);
        for b in (0..n).filter(|b| *b != from && *b != to) {
            let path = if a == b { vec![from, a, to] } else { vec![from, a, b, to] };
            let between = if a == b { 0.0 } else { rtt_s(a, b) };
            let whole = near + between + rtt_s(b, to);
            if whole < best.1 {
                best = (path, whole);
            }
        }
    }
    best
}

/// The knowledge of nodes that probe everything.
pub struct Ron {
    rates: Vec<f64>,
    is_up: Vec<bool>,
    random: Random,
    noise: f64,
    /// Bytes that each node has sent and received.
    pub bytes: Vec<f64>,
}

impl Ron {
    /// Before the first probe.
    pub fn new(seed: u64, noise: f64, n: usize) -> Self {
        let random = Random::new(seed, "ron", 0);
        Self { rates: vec![0.0; n * n], is_up: vec![true; n * n], random, noise, bytes: vec![0.0; n] }
    }

    /// Does the probes of this second; they follow one another through the period.
    pub fn probe(&mut self, offers: &[f64], now: Time) {
        let n = self.bytes.len();
        let second = now.0 / 1_000_000_000;
        let told = (RON_TOLD_BYTES[0] + RON_TOLD_BYTES[1] * n as f64) / RON_TELLS_S;
        // Sent to each other and received from each.
        self.bytes.iter_mut().for_each(|bytes| *bytes += 2.0 * told * (n - 1) as f64);
        for leg in (0..n * n).filter(|leg| leg / n != leg % n) {
            if (second + leg as u64).is_multiple_of(RON_PROBES) {
                self.is_up[leg] = offers[leg] > 0.0;
                self.count(leg, RON_PROBE_BYTES);
            }
            // The legs of one node are not loaded at the same time.
            let turn = (leg % n * n + leg / n) as u64 * 7;
            if second == 0 || (second + turn).is_multiple_of(RON_LOADS) {
                self.rates[leg] = offers[leg] * self.random.noise(self.noise);
                self.count(leg, offers[leg] / 8.0 * RON_LOAD_S);
            }
        }
    }

    /// Counts bytes on a leg: one node sends them, and the other receives them.
    fn count(&mut self, leg: usize, bytes: f64) {
        let n = self.bytes.len();
        self.bytes[leg / n] += bytes;
        self.bytes[leg % n] += bytes;
    }

    /// The best path in the direction of the data by the probed rates, over at most one node in between.
    pub fn best(&self, from: usize, to: usize) -> Vec<usize> {
        let known: Vec<f64> =
            self.rates.iter().zip(&self.is_up).map(|(rate, is_up)| if *is_up { *rate } else { 0.0 }).collect();
        best_rate(&known, self.bytes.len(), from, to, 1).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_best_of_all_paths() {
        let n = 4;
        let mut random = Random::new(1, "test", 0);
        for _ in 0..200 {
            let offers: Vec<f64> = (0..n * n).map(|_| random.part()).collect();
            let of = |path: &[usize]| path.windows(2).map(|leg| offers[leg[0] * n + leg[1]]).fold(1.0, f64::min);
            let all = [&[0, 3][..], &[0, 1, 3], &[0, 2, 3], &[0, 1, 2, 3], &[0, 2, 1, 3]];
            let most = |relays: usize| {
                all.iter().filter(|path| path.len() <= relays + 2).map(|path| of(path)).fold(0.0, f64::max)
            };
            for relays in 0..=2 {
                let (path, rate) = best_rate(&offers, n, 0, 3, relays);
                assert_eq!((rate, of(&path)), (most(relays), most(relays)));
            }
        }
    }
}
