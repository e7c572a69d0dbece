//! The true legs between sites: how far they are, and what they carry at some time.

use ekiden_model::chain::{self, Control, Limit};
use ekiden_units::random::derive;
use ekiden_units::{BitRate, Bytes, Time};

use crate::random::Random;
use crate::sites::Sites;

const EARTH_KM: f64 = 6_371.0;
/// Light in fiber.
const FIBER_KM_S: f64 = 200_000.0;
/// What the ends of a leg add to its round trip.
const ENDS_S: f64 = 0.002;
/// User data in a segment.
const SEGMENT: Bytes = Bytes(1_448);

/// A leg in one direction, as it is when no schedule makes it less.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// The base round trip, in seconds.
    pub rtt_s: f64,
    /// What its streams get together, in bit/s.
    pub rate: f64,
    /// What one stream gets at most, in bit/s.
    pub stream: f64,
    /// Whether that is because of the window: then a sender does not see a limit of the path.
    pub is_window: bool,
    /// The part of the segments that is lost.
    pub loss: f64,
}

/// All legs, and how much of each is left now.
#[derive(Debug, Clone)]
pub struct World {
    /// How many sites there are.
    pub sites: usize,
    legs: Vec<Leg>,
    /// What is left of each leg's rate, 0 to 1.
    left: Vec<f64>,
    outages: Vec<(Time, Time, f64, Vec<usize>)>,
    rush_hours: Vec<(f64, f64, f64, Vec<usize>)>,
    /// In hours: how far a site's sun is ahead of UTC's.
    ahead_h: Vec<f64>,
}

impl World {
    /// Draws all legs.
    pub fn new(sites: &Sites) -> Self {
        let n = sites.sites.len();
        let legs = (0..n * n).map(|leg| draw(sites, leg / n, leg % n)).collect();
        let between = |places: &[String; 2]| -> Vec<usize> {
            let is_between = |leg: &usize| {
                let [from, to] = [leg / n, leg % n];
                let runs = |a: usize, b: usize| sites.is_at(&places[0], a) && sites.is_at(&places[1], b);
                from != to && (runs(from, to) || runs(to, from))
            };
            (0..n * n).filter(is_between).collect()
        };
        let outages =
            sites.outages.iter().map(|outage| (outage.from, outage.to, outage.rate.as_f64(), between(&outage.between)));
        let rush_hours = sites.rush_hours.iter().enumerate().map(|(number, rush)| {
            let seed = derive(sites.seed, "rush hour", number as u64);
            let is_crowded = |leg: &usize| Random::new(seed, "leg", *leg as u64).part() < rush.part.as_f64();
            let legs = between(&rush.between).into_iter().filter(is_crowded).collect();
            (rush.from_hour, rush.to_hour, rush.rate.as_f64(), legs)
        });
        let ahead_h = sites.sites.iter().map(|site| site.longitude / 15.0).collect();
        let (outages, rush_hours) = (outages.collect(), rush_hours.collect());
        let mut world = Self { sites: n, legs, left: vec![1.0; n * n], outages, rush_hours, ahead_h };
        world.at(Time(0));
        world
    }

    /// Brings the schedules to a time.
    pub fn at(&mut self, now: Time) {
        self.left.fill(1.0);
        for (from, to, rate, legs) in &self.outages {
            if (*from..*to).contains(&now) {
                legs.iter().for_each(|leg| self.left[*leg] *= rate);
            }
        }
        let utc_h = now.as_secs() / 3_600.0;
        for (from, to, rate, legs) in &self.rush_hours {
            for leg in legs {
                let hour = (utc_h + self.ahead_h[leg / self.sites]).rem_euclid(24.0);
                let is_crowded = if from <= to { (*from..*to).contains(&hour) } else { hour >= *from || hour < *to };
                if is_crowded {
                    self.left[*leg] *= rate;
                }
            }
        }
    }

    /// The number of a leg, below the square of the number of sites.
    pub fn number(&self, from: usize, to: usize) -> usize {
        from * self.sites + to
    }

    /// A leg as it was drawn, whatever schedules make of it.
    pub fn drawn(&self, number: usize) -> Leg {
        self.legs[number]
    }

    /// What is left of a leg's rate now, 0 to 1.
    pub fn left(&self, number: usize) -> f64 {
        self.left[number]
    }

    /// A leg as it is now.
    pub fn leg(&self, number: usize) -> Leg {
        let (leg, left) = (self.legs[number], self.left[number]);
        Leg { rate: leg.rate * left, stream: leg.stream * left, is_window: leg.is_window && left >= 1.0, ..leg }
    }

    /// Whether nothing comes over a leg now.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.left[self.number(from, to)] <= 0.0
    }

    /// The round trip between two, in seconds.
    pub fn rtt_s(&self, a: usize, b: usize) -> f64 {
        self.legs[self.number(a, b)].rtt_s
    }
}

fn draw(sites: &Sites, from: usize, to: usize) -> Leg {
    let number = |a: usize, b: usize| (a * sites.sites.len() + b) as u64;
    let legs = &sites.legs;
    let pair = number(from.min(to), from.max(to));
    let detour = Random::new(sites.seed, "detour", pair).between(legs.detour);
    let rtt_s = 2.0 * distance_km(sites, from, to) * detour / FIBER_KM_S + ENDS_S;
    let mut random = Random::new(sites.seed, "leg", number(from, to));
    let mut rate = random.between(legs.rate.map(|rate| rate.0 as f64));
    let mut loss = random.between(legs.loss.map(|loss| loss.as_f64()));
    let much = random.between(legs.lossy_loss.map(|loss| loss.as_f64()));
    let part = random.between(legs.congested_rate.map(|part| part.as_f64()));
    if random.part() < legs.lossy.as_f64() {
        loss = much;
    }
    if random.part() < legs.congested.as_f64() {
        rate *= part;
    }
    let leg = chain::Leg {
        rtt: Time((rtt_s * 1e9) as u64),
        rate: BitRate(rate as u64),
        window: legs.window,
        segment: SEGMENT,
        loss,
        control: Control::Cubic,
    };
    let (stream, limit) = leg.throughput().unwrap_or((BitRate(1), Limit::Line));
    Leg { rtt_s, rate, stream: stream.0 as f64, is_window: limit == Limit::Window, loss }
}

/// Over the earth's surface.
fn distance_km(sites: &Sites, a: usize, b: usize) -> f64 {
    let place = |site: usize| (sites.sites[site].latitude.to_radians(), sites.sites[site].longitude.to_radians());
    let ((la, lo), (lb, lp)) = (place(a), place(b));
    EARTH_KM * (la.sin() * lb.sin() + la.cos() * lb.cos() * (lo - lp).cos()).clamp(-1.0, 1.0).acos()
}
