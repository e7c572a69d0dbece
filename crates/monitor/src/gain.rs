//! What a way through nodes gives beside the direct one.

use std::collections::BTreeMap;

use crate::hours::Quartiles;
use crate::measurement::Measurement;

/// For each target that goes through a SOCKS5 listener: its throughput over that of the same server measured directly, in the same
/// direction and the same round. Targets without such a counterpart are left out.
pub fn gains(measurements: &[Measurement]) -> Vec<(String, Quartiles)> {
    let rate = |row: &Measurement| Some(row.result.as_ref().ok()?.received_bit_s as f64).filter(|rate| *rate > 0.0);
    let key = |row: &Measurement| (row.round_unix_ms, row.server.clone(), row.direction.clone());
    let direct: BTreeMap<_, f64> =
        measurements.iter().filter(|row| row.via.is_none()).filter_map(|row| Some((key(row), rate(row)?))).collect();
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in measurements.iter().filter(|row| row.via.is_some()) {
        if let (Some(rate), Some(direct)) = (rate(row), direct.get(&key(row))) {
            ratios.entry(&row.target).or_default().push(rate / direct);
        }
    }
    ratios.into_iter().filter_map(|(target, ratios)| Some((target.to_owned(), Quartiles::of(ratios)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Failure, Measured};

    #[test]
    fn rates_of_one_round_are_compared() {
        let row = |round: u64, target: &str, via: Option<&str>, direction: &str, rate: u64| Measurement {
            round_unix_ms: round,
            started_unix_ms: round,
            target: target.into(),
            server: "s".into(),
            via: via.map(str::to_owned),
            direction: direction.into(),
            result: match rate {
                0 => Err(Failure("x".into())),
                received_bit_s => Ok(Measured { received_bit_s, ..Measured::default() }),
            },
        };
        let via = Some("127.0.0.1:1080");
        let rows = [
            row(1, "direct", None, "receive", 10),
            row(1, "overlay", via, "receive", 30),
            row(2, "overlay", via, "receive", 20),
            row(2, "direct", None, "receive", 20),
            // One of the two failed; and there is no other way in this direction.
            row(3, "direct", None, "receive", 0),
            row(3, "overlay", via, "receive", 90),
            row(1, "up", via, "send", 90),
        ];
        let [(target, gain)] = &gains(&rows)[..] else { panic!() };
        assert_eq!((target.as_str(), gain.count, gain.median), ("overlay", 2, 2.0));
    }
}
