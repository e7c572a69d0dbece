//! Sites for tests, from the project's own files.

use std::path::Path;

use ekiden_flows::Sites;
use ekiden_units::{Bytes, Fraction, Time};

/// A file of the project's.
pub fn file(name: &str) -> Sites {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name);
    Sites::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// The first of sixteen sites, whose programs send one bulk transfer after the other.
pub fn busy(sites: usize, streams_s: f64, seconds: u64) -> Sites {
    let mut all = file("sites-16.toml");
    // Every third, so that they stand all over the earth.
    all.sites = (0..sites).map(|number| all.sites[number * 3 % 16].clone()).collect();
    (all.duration, all.warm_up) = (Time::secs(seconds), Time::secs(seconds / 2));
    (all.traffic.streams_s, all.traffic.bulk) = (streams_s, Fraction::ONE);
    (all.traffic.bulk_size, all.traffic.bulk_spread) = (Bytes(10_000_000), 1.0);
    all
}
