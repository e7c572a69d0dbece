//! Sixteen sites, each with a node. What streams get over the paths that nodes choose, beside what they would get if all were known.

use std::collections::BTreeMap;

use ekiden_model::chain::{self, Control};
use ekiden_overlay::choice::{Choice, Why};
use ekiden_overlay::known::Known;
use ekiden_overlay::leg::Look;
use ekiden_overlay::path::{Class, Direction, Wanted, candidates};
use ekiden_units::{BitRate, Bytes, Time};

/// Latitude and longitude.
const CITIES: [(&str, f64, f64); 16] = [
    ("tokyo", 35.7, 139.7),
    ("naha", 26.2, 127.7),
    ("singapore", 1.3, 103.8),
    ("sydney", -33.9, 151.2),
    ("delhi", 28.6, 77.2),
    ("dubai", 25.2, 55.3),
    ("nairobi", -1.3, 36.8),
    ("johannesburg", -26.2, 28.0),
    ("frankfurt", 50.1, 8.7),
    ("london", 51.5, -0.1),
    ("madrid", 40.4, -3.7),
    ("newyork", 40.7, -74.0),
    ("chicago", 41.9, -87.6),
    ("losangeles", 34.1, -118.2),
    ("saopaulo", -23.5, -46.6),
    ("santiago", -33.4, -70.7),
];

struct Random(u64);

impl Random {
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        (least.ln() + self.part() * (most / least).ln()).exp()
    }

    fn below(&mut self, most: usize) -> usize {
        ((self.part() * most as f64) as usize).min(most - 1)
    }
}

/// The true legs between sites.
struct World {
    rtt_s: Vec<Vec<f64>>,
    rate: Vec<Vec<f64>>,
}

impl World {
    fn new(random: &mut Random) -> Self {
        let n = CITIES.len();
        let (mut rtt_s, mut rate) = (vec![vec![0.0; n]; n], vec![vec![0.0; n]; n]);
        for from in 0..n {
            for to in (0..n).filter(|to| *to != from) {
                let detour = 1.2 + random.part();
                let rtt = 2.0 * distance_km(CITIES[from], CITIES[to]) * detour / 200_000.0 + 0.002;
                let leg = chain::Leg {
                    rtt: Time((rtt * 1e9) as u64),
                    rate: BitRate(random.between(50e6, 1e9) as u64),
                    window: Bytes::mib(16),
                    segment: Bytes(1_448),
                    loss: random.between(1e-6, 3e-4),
                    control: Control::Cubic,
                };
                rtt_s[from][to] = rtt;
                rate[from][to] = leg.throughput().map_or(1.0, |(rate, _)| rate.0 as f64);
            }
        }
        Self { rtt_s, rate }
    }

    fn of(&self, path: &[usize]) -> f64 {
        path.windows(2).map(|leg| self.rate[leg[1]][leg[0]]).fold(f64::INFINITY, f64::min)
    }

    /// The best over at most two nodes in between.
    fn oracle(&self, from: usize, to: usize) -> f64 {
        let n = CITIES.len();
        let mut best = self.of(&[from, to]);
        for a in (0..n).filter(|a| *a != from && *a != to) {
            best = best.max(self.of(&[from, a, to]));
            for b in (0..n).filter(|b| ![from, to, a].contains(b)) {
                best = best.max(self.of(&[from, a, b, to]));
            }
        }
        best
    }
}

fn distance_km(a: (&str, f64, f64), b: (&str, f64, f64)) -> f64 {
    let [la, lo, lb, lp] = [a.1, a.2, b.1, b.2].map(f64::to_radians);
    let part = (la.sin() * lb.sin() + la.cos() * lb.cos() * (lo - lp).cos()).clamp(-1.0, 1.0);
    6_371.0 * part.acos()
}

fn index(name: &str) -> usize {
    CITIES.iter().position(|city| city.0 == name).unwrap()
}

/// What came out of an hour of many streams.
#[derive(Default)]
struct Outcome {
    /// The path's rate in use at the end, beside the best that there is.
    shares: Vec<f64>,
    /// The same beside the direct path's.
    gains: Vec<f64>,
    changes: u64,
    streams: u64,
    tried: u64,
}

fn hour(seed: u64, outcome: &mut Outcome) {
    let mut random = Random(seed);
    let world = World::new(&mut random);
    let n = CITIES.len();
    let mut known: Vec<Known> = CITIES.iter().map(|city| Known::of_node(city.0)).collect();
    let mut choices: BTreeMap<(usize, usize), Choice> = BTreeMap::new();
    let names: Vec<&str> = CITIES.iter().map(|city| city.0).collect();
    // Every second each node fetches for ten seconds from some other; what is known is told every ten seconds.
    for second in 0..3_600_u64 {
        let now = Time::secs(second);
        for near in 0..n {
            // Questions for what is known say the round trip.
            if second % 60 == 0 {
                for far in (0..n).filter(|far| *far != near) {
                    let rtt_s = Some(world.rtt_s[near][far] * (0.95 + 0.1 * random.part()));
                    known[near].see(CITIES[far].0, &Look { span_s: 1.0, rtt_s, ..Look::default() }, now);
                }
            }
            let far = random.below(n);
            if far == near {
                continue;
            }
            let (class, direction) = (Class::Bulk, Direction::Down);
            let choice = choices.entry((near, far)).or_default();
            let current = choice.current().map(|(path, ..)| path.clone());
            let (exit, current) = (CITIES[far].0, current.as_ref());
            let wanted = Wanted { exit, relays: &names, relays_most: 2, size: None, class, direction, current };
            let all = candidates(&known[near], &wanted, now);
            let drawn = [random.part(), random.part()];
            let Some((candidate, why)) = choice.choose(&all, &wanted, now, drawn) else { continue };
            outcome.streams += 1;
            outcome.tried += u64::from(why == Why::Tried);
            let mut path = vec![near];
            path.extend(candidate.path.0.iter().map(|name| index(name)));
            let came = world.of(&path);
            // The sender of the leg that limits the stream sees its rate, those of the others that it carries as much.
            for leg in path.windows(2) {
                let carried_bit_s = came * (0.9 + 0.2 * random.part());
                let rate_bit_s = (world.rate[leg[1]][leg[0]] <= came).then_some(carried_bit_s);
                let rtt_s = Some(world.rtt_s[leg[0]][leg[1]]);
                known[leg[1]].see(
                    CITIES[leg[0]].0,
                    &Look { span_s: 10.0, rtt_s, rate_bit_s, carried_bit_s, ..Look::default() },
                    now,
                );
            }
        }
        if second % 10 == 0 {
            let told: Vec<_> = known.iter().map(|known| known.tell(0.0, now)).collect();
            for (hearer, known) in known.iter_mut().enumerate() {
                told.iter()
                    .enumerate()
                    .filter(|(node, _)| *node != hearer)
                    .for_each(|(_, told)| known.hear(told.clone(), now));
            }
        }
    }
    for ((near, far), choice) in &choices {
        let Some((path, ..)) = choice.current() else { continue };
        let mut whole = vec![*near];
        whole.extend(path.0.iter().map(|name| index(name)));
        outcome.shares.push(world.of(&whole) / world.oracle(*near, *far));
        outcome.gains.push(world.of(&whole) / world.of(&[*near, *far]));
        outcome.changes += choice.changes();
    }
}

#[test]
fn paths_that_are_chosen_carry_nearly_what_the_best_would() {
    let mut outcome = Outcome::default();
    (1..=3).for_each(|seed| hour(seed, &mut outcome));
    let Outcome { mut shares, mut gains, changes, streams, tried } = outcome;
    shares.sort_by(f64::total_cmp);
    gains.sort_by(f64::total_cmp);
    let (median, gain) = (shares[shares.len() / 2], gains[gains.len() / 2]);
    println!(
        "{} pairs: median {median:.3} of the best, tenth {:.3}, worst {:.3}; gain median {gain:.2}, pairs that gain {:.2}; {changes} \
         changes, {tried} of {streams} streams tried",
        shares.len(),
        shares[shares.len() / 10],
        shares[0],
        gains.iter().filter(|gain| **gain > 1.1).count() as f64 / gains.len() as f64
    );
    assert!(median >= 0.95, "{median}");
    assert!(shares[0] >= 0.8, "{}", shares[0]);
}
