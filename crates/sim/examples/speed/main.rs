//! How fast simulations are, beside what is wanted of them: `make bench-sim`. docs/measurements/simulator.md says what came out.
//!
//! Times are the processor time of this process, so that other programs disturb them less; each is the median of some rounds.
//! S2's first row comes first, so that the greatest memory is its own. With an argument, only what has it in its name is
//! measured.

mod engine;
mod network;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ekiden_scenario::Scenario;
use ekiden_units::quantile;
use nix::time::{ClockId, clock_gettime};

/// Rounds of each measurement; the median counts.
const ROUNDS: usize = 3;
/// The cost per event is flat if the dearest size costs less than this times the cheapest.
const FLAT: f64 = 2.0;

/// Processor time that this process has used.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile::above(&values, 50).expect("at least one value")
}

/// What was found, beside what is wanted. Returns whether it is reached.
fn judge(what: &str, found: &str, aim: &str, is_reached: bool) -> bool {
    println!("{what:56} {found:>14}   aim {aim:16} {}", if is_reached { "reached" } else { "MISSED" });
    is_reached
}

/// Whether this measurement is wanted.
fn is_asked_for(what: &str) -> bool {
    std::env::args().nth(1).is_none_or(|part| what.contains(&part))
}

/// The cost at each size, in nanoseconds, and whether it is flat.
fn judge_flat(what: &str, sizes: &[u32], mut cost: impl FnMut(u32) -> f64) -> bool {
    if !is_asked_for(what) {
        return true;
    }
    let mut costs = Vec::new();
    for size in sizes {
        let rounds = (0..ROUNDS).map(|_| cost(*size)).collect();
        costs.push(median(rounds));
    }
    let list: Vec<_> = sizes.iter().zip(&costs).map(|(size, cost)| format!("{size}: {cost:.0}")).collect();
    println!("{what}, ns at each size: {}", list.join("   "));
    let (least, most) = costs.iter().fold((f64::MAX, 0f64), |(least, most), cost| (least.min(*cost), most.max(*cost)));
    let ratio = most / least;
    judge("", &format!("dearest {ratio:.2} x"), &format!("<= {FLAT}"), ratio <= FLAT)
}

/// The greatest memory that this process has had, in bytes.
fn memory_most() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

fn first_row() -> bool {
    if !is_asked_for("S2") {
        return true;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/s2/parallel.toml");
    let scenario = match Scenario::load(&path) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    let runs: Vec<_> = (0..ROUNDS).map(|_| network::run(&scenario)).collect();
    let each = |value: fn(&network::Run) -> f64| median(runs.iter().map(value).collect());
    let events = runs[0].events as f64 / 1e6;
    let rate = events / each(|run| run.used.as_secs_f64());
    let wall = each(|run| run.wall.as_secs_f64());
    let memory = memory_most().map_or(f64::INFINITY, |bytes| bytes as f64 / 1e9);
    println!("S2's first row: {events:.1} million events, {:.0} s of virtual time", runs[0].virtual_s);
    let is_fast = judge("million events a second, one core", &format!("{rate:.2}"), ">= 4", rate >= 4.0);
    let is_short = judge("wall time", &format!("{wall:.1} s"), "<= 4 s", wall <= 4.0);
    let is_small = judge("memory", &format!("{memory:.2} GB"), "<= 2 GB", memory <= 2.0);
    is_fast && is_short && is_small
}

fn main() -> ExitCode {
    let mut all = first_row();
    println!();
    all &= judge_flat("whole simulation, by connections", &[8, 32, 256, 1_000, 5_000], network::connections);
    for (what, loss, sack) in [("", "0", true), (", 1 % lost", "1%", true), (", 1 % lost, no SACK", "1%", false)] {
        let what = format!("whole simulation, by packets in flight{what}");
        all &= judge_flat(&what, &[1_000, 10_000, 100_000], |packets| network::in_flight(packets, loss, sack));
    }
    println!();
    for case in engine::CASES {
        let what = format!("both ends of a connection, by packets in flight: {}", case.name);
        all &= judge_flat(&what, &[1_000, 10_000, 100_000], |packets| engine::cost(&case, packets));
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
