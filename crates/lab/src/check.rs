//! Measures how exact the lab itself is on this machine.
//!
//! It measures round-trip times of the idle network, then, for each direct flow of the scenario alone, throughput and
//! queueing delay. It compares all with the values that follow from the scenario.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ekiden_link::queue_drain;
use ekiden_record::{Kept, Sample};
use ekiden_scenario::{Amount, Flow, Scenario};
use ekiden_units::{BitRate, quantile};
use serde::Serialize;

use crate::error::building;
use crate::probe;
use crate::run::Origin;
use crate::{Error, Lab};

/// Probes of an idle path.
const PROBES: u32 = 300;
/// The interval between probes beside a flow.
const PROBE_INTERVAL: Duration = Duration::from_millis(3);
/// By how much an idle round-trip time may exceed the nominal one: at the median, and at the 99th percentile.
const IDLE_P50_MS: f64 = 0.2;
const IDLE_P99_MS: f64 = 1.0;
/// The fraction by which throughput may differ from the rate less headers, and the queue's delay from the queue's size over the
/// rate.
const THROUGHPUT: f64 = 0.02;
const QUEUE_DELAY: f64 = 0.05;
/// The part of a flow's time that is left out at its start: TCP is still finding the rate.
const WARM_UP: f64 = 0.3;

/// A measured value, and its bounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What was measured, and where.
    pub what: String,
    /// The unit of the numbers.
    pub unit: &'static str,
    /// What follows from the scenario.
    pub expected: f64,
    /// The measured value.
    pub measured: f64,
    /// The least and the largest value that pass.
    pub tolerance: [f64; 2],
    /// Whether the measured value is within the tolerance.
    pub passed: bool,
}

impl Check {
    fn new(what: String, unit: &'static str, expected: f64, measured: f64, tolerance: [f64; 2]) -> Self {
        let passed = (tolerance[0]..=tolerance[1]).contains(&measured);
        Self { what, unit, expected, measured, tolerance, passed }
    }
}

/// Checks that all passed.
///
/// # Errors
/// [`Error::Inaccurate`].
pub fn all_passed(checks: &[Check]) -> Result<(), Error> {
    match checks.iter().filter(|check| !check.passed).count() {
        0 => Ok(()),
        missed => Err(Error::Inaccurate { missed, checks: checks.len() }),
    }
}

/// Builds the scenario's network and checks it; calls `progress` with what it does next.
///
/// Throughput and queue are checked over direct flows that last for a time and are one connection, where the slowest
/// link's queue holds at least a bandwidth-delay product: with less, it is TCP that cannot fill the line.
///
/// # Errors
/// If the lab cannot be built or a flow fails.
pub fn check(scenario: &Scenario, progress: &mut dyn FnMut(&str)) -> Result<Vec<Check>, Error> {
    let mut checks = Vec::new();
    let lab = Lab::build(scenario)?;
    for (from, to) in probe::legs(scenario) {
        progress(&format!("idle round-trip time, {from} to {to}"));
        checks.extend(idle(&lab, &from, &to)?);
    }
    drop(lab);
    for (name, flow) in &scenario.flows {
        if flow.via.is_empty() && flow.parallel == 1 && matches!(flow.amount, Amount::Duration(_)) {
            progress(&format!("throughput and queue, flow {name}"));
            let mut alone = scenario.clone();
            alone.flows.retain(|other, _| other == name);
            checks.extend(loaded(&Lab::build(&alone)?, name, flow)?);
        }
    }
    Ok(checks)
}

fn idle(lab: &Lab, from: &str, to: &str) -> Result<Vec<Check>, Error> {
    let path = probe::measure(lab, from, to, PROBES)?;
    let nominal = path.nominal_us / 1e3;
    let of = |us: Option<f64>| us.unwrap_or(f64::INFINITY) / 1e3;
    let check = |rank: &str, us, most| {
        Check::new(format!("idle RTT {from}-{to} {rank}"), "ms", nominal, of(us), [nominal - 0.05, nominal + most])
    };
    Ok(vec![check("p50", path.p50_us, IDLE_P50_MS), check("p99", path.p99_us, IDLE_P99_MS)])
}

/// Runs the one flow of the lab with probes beside it.
fn loaded(lab: &Lab, name: &str, flow: &Flow) -> Result<Vec<Check>, Error> {
    let idle_ms = probe::measure(lab, &flow.from, &flow.to, PROBES)?.p50_us.unwrap_or_default() / 1e3;
    let mut pinger = probe::pinger(lab, &flow.from, &flow.to)?;
    let done = AtomicBool::new(false);
    let mut kept = Kept::default();
    let (record, mut times_ms) = thread::scope(|scope| {
        let probes = scope.spawn(|| {
            let mut times_ms = Vec::new();
            while !done.load(Ordering::Relaxed) {
                // A probe that finds the queue full is lost like any other packet.
                times_ms.extend(pinger.probe().ok().flatten().map(|ns| ns as f64 / 1e6));
                thread::sleep(PROBE_INTERVAL);
            }
            times_ms
        });
        let record = lab.run(Origin::default(), &mut kept, &mut |_| ());
        done.store(true, Ordering::Relaxed);
        (record, probes.join().unwrap_or_default())
    });
    let record = record?;
    crate::verdict(&record)?;
    times_ms.sort_by(f64::total_cmp);
    let mut checks = vec![throughput(lab.scenario(), name, flow, &kept.samples)?];
    // The 99th percentile, not the largest: a probe that this machine delayed says nothing about the queue. Reno's
    // window is within a hundredth of its peak for longer than that.
    let top_ms = quantile::above(&times_ms, 99);
    if let (Some(delay_ms), Some(top_ms)) = (queue_delay_ms(lab.scenario(), flow), top_ms) {
        let tolerance = [1.0 - QUEUE_DELAY, 1.0 + QUEUE_DELAY].map(|part| part * delay_ms);
        checks.push(Check::new(format!("RTT rise beside {name}"), "ms", delay_ms, top_ms - idle_ms, tolerance));
    }
    Ok(checks)
}

/// What arrived between two samples, the first after the warm-up, the last before the end.
fn throughput(scenario: &Scenario, name: &str, flow: &Flow, samples: &[Sample]) -> Result<Check, Error> {
    let end_us = samples.last().map_or(0, |sample| sample.at_us);
    let steady = |sample: &&Sample| sample.at_us as f64 > WARM_UP * end_us as f64;
    let (first, last) = (samples.iter().find(steady), samples.last());
    let measured = match (first, last) {
        (Some(first), Some(last)) if last.at_us > first.at_us => {
            (last.received_bytes - first.received_bytes) as f64 * 8.0 / (last.at_us - first.at_us) as f64
        }
        _ => return Err(building(format!("check flow '{name}'"))(std::io::Error::other("it is too short"))),
    };
    let expected = payload_rate(scenario, flow);
    let tolerance = [1.0 - THROUGHPUT, 1.0 + THROUGHPUT].map(|part| part * expected);
    Ok(Check::new(format!("throughput of {name}"), "Mbit/s", expected, measured, tolerance))
}

/// The slowest link's rate less IP and TCP headers, in Mbit/s.
fn payload_rate(scenario: &Scenario, flow: &Flow) -> f64 {
    const IP_AND_TCP: u32 = 40;
    const TIMESTAMPS: u32 = 12;
    let hops = scenario.path(&flow.from, &flow.to).unwrap_or_default();
    let timestamps =
        [&flow.from, &flow.to].iter().all(|node| scenario.nodes.get(*node).is_some_and(|n| n.tcp.timestamps));
    let headers = IP_AND_TCP + if timestamps { TIMESTAMPS } else { 0 };
    let rate = hops.iter().map(|hop| hop.direction().rate).min().unwrap_or(BitRate(1));
    let mtu = hops.iter().map(|hop| hop.link.mtu()).min().unwrap_or(1500);
    rate.as_mbit() * f64::from(mtu.saturating_sub(headers)) / f64::from(mtu)
}

/// How long the slowest link's full queue takes.
fn queue_delay_ms(scenario: &Scenario, flow: &Flow) -> Option<f64> {
    let hops = scenario.path(&flow.from, &flow.to)?;
    let slowest = hops.iter().map(|hop| hop.direction()).min_by_key(|direction| direction.rate)?;
    Some(queue_drain(slowest).as_ms())
}
