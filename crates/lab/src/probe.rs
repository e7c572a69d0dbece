//! Round-trip times of paths, by echo requests that the far kernel answers.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use ekiden_net::ping::{PACKET_BYTES, Pinger};
use ekiden_record::PathDelay;
use ekiden_scenario::{Direction, Scenario};
use ekiden_units::{Bytes, quantile};

use crate::error::building;
use crate::{Error, Lab};

/// An answer later than this is a lost one.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Between an answer and the next probe, so that probes never queue behind each other.
const PAUSE: Duration = Duration::from_millis(2);

/// The legs of all flows: between neighbours of their chains of proxies. Each once, in order.
pub(crate) fn legs(scenario: &Scenario) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut legs = Vec::new();
    for flow in scenario.flows.values() {
        let stations: Vec<_> = [&flow.from].into_iter().chain(&flow.via).chain([&flow.to]).collect();
        for pair in stations.windows(2) {
            let leg = (pair[0].clone(), pair[1].clone());
            if leg.0 != leg.1 && seen.insert(leg.clone()) {
                legs.push(leg);
            }
        }
    }
    legs
}

/// A pinger from one node to another.
pub(crate) fn pinger(lab: &Lab, from: &str, to: &str) -> Result<Pinger, Error> {
    let address = lab.address(to)?;
    let opened = lab.namespace(from)?.run(|| Pinger::new(address, std::process::id() as u16, TIMEOUT));
    opened.map_err(building(format!("probe the path from '{from}' to '{to}'")))
}

/// Probes a path `probes` times, one after the other.
pub(crate) fn measure(lab: &Lab, from: &str, to: &str, probes: u32) -> Result<PathDelay, Error> {
    let mut pinger = pinger(lab, from, to)?;
    let mut times_us = Vec::new();
    for _ in 0..probes {
        let answered = pinger.probe().map_err(building(format!("probe the path from '{from}' to '{to}'")))?;
        times_us.extend(answered.map(|ns| ns as f64 / 1e3));
        thread::sleep(PAUSE);
    }
    times_us.sort_by(f64::total_cmp);
    Ok(PathDelay {
        from: from.into(),
        to: to.into(),
        nominal_us: nominal_us(lab.scenario(), from, to),
        probes,
        lost: probes - times_us.len() as u32,
        p50_us: quantile::nearest(&times_us, 50),
        p99_us: quantile::nearest(&times_us, 99),
        max_us: times_us.last().copied(),
    })
}

/// Delays there and back, and the probe's own time on each line: at 2 Mbit/s that is a tenth of a millisecond.
fn nominal_us(scenario: &Scenario, from: &str, to: &str) -> f64 {
    let hops = [(from, to), (to, from)].into_iter().filter_map(|(from, to)| scenario.path(from, to)).flatten();
    let takes = |line: &Direction| line.delay.0 + line.rate.time_for(Bytes(PACKET_BYTES)).0;
    hops.map(|hop| takes(hop.direction())).sum::<u64>() as f64 / 1e3
}
