//! The offered load: the same streams for every policy.

use ekiden_overlay::path::{Class, DataDirection};
use ekiden_units::Time;

use crate::random::Random;
use crate::sites::Sites;

/// A stream that a site's program opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offered {
    /// Where it is opened.
    pub near: usize,
    /// Where it leaves the overlay.
    pub far: usize,
    /// What counts for it.
    pub class: Class,
    /// Which way its bytes go.
    pub direction: DataDirection,
    /// How many these are.
    pub bytes: f64,
}

/// The streams of one second.
pub fn of_second(sites: &Sites, second: u64) -> Vec<Offered> {
    let traffic = &sites.traffic;
    let n = sites.sites.len();
    let mut random = Random::new(sites.seed, "traffic", second);
    let mut all = Vec::new();
    for near in 0..n {
        for _ in 0..random.poisson(traffic.streams_s) {
            let far = (near + 1 + random.below(n - 1)) % n;
            let is_bulk = random.part() < traffic.bulk.as_f64();
            let is_up = random.part() < traffic.up.as_f64();
            let size = traffic.bulk_size.0 as f64 * (random.normal() * traffic.bulk_spread).exp();
            let (class, bytes) = match is_bulk {
                true => (Class::Bulk, size.min(traffic.bulk_most.0 as f64).max(1.0)),
                false => (Class::Interactive, traffic.answer_size.0 as f64),
            };
            let direction = if is_bulk && is_up { DataDirection::Up } else { DataDirection::Down };
            all.push(Offered { near, far, class, direction, bytes });
        }
    }
    all
}

/// The maximum rate of a stream of this age, in bit/s: slow start, which begins with ten segments and doubles them in each
/// round trip of the longest leg.
pub fn slow_start(age: Time, rtt_s: f64) -> f64 {
    let rounds = age.as_secs() / rtt_s;
    10.0 * 1_448.0 * 8.0 / rtt_s * rounds.min(40.0).exp2()
}
