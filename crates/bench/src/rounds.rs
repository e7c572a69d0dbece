//! The rounds: every relay under every load, one right after the other, so that what disturbs one disturbs all.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use ekiden_net::processors::Awake;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Args;
use crate::load::{self, Interval, Times, idle, pingpong, storm, stream};
use crate::network::{self, Network};
use crate::process;
use crate::relay::{self, Relay, Running};
use crate::report::Measure;
use crate::stats::percentile;

/// Connections of the storm at any time.
const IN_FLIGHT: usize = 64;
/// Idle connections whose memory is measured.
const IDLE: usize = 5_000;
/// The part of the machine that other programs may take before a figure says nothing.
pub const QUIET: f64 = 0.15;
/// Disturbed measurements that a run repeats at most: they cost about two seconds each.
const REPEATS: u32 = 25;
/// Memory hardly varies, and takes long to measure.
const IDLE_ROUNDS: u8 = 3;

/// What came out.
pub struct Outcome {
    /// One value per round that succeeded.
    pub values: BTreeMap<(Relay, Measure), Vec<f64>>,
    /// What did not work, one line each.
    pub failures: Vec<String>,
    /// The part of the machine that other programs took during each cell, 0 to 1.
    pub others: Vec<f64>,
    /// The relays that were measured.
    pub relays: Vec<Relay>,
    /// Rounds.
    pub rounds: u8,
    /// Measurements that were repeated because other programs disturbed them; the least disturbed counts.
    pub repeats: u32,
    /// Whether these are the short cells of a first look.
    pub quick: bool,
    /// CPUs of the machine.
    pub cpus: usize,
}

/// What a relay is put under in every round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// One connection's bulk data.
    Stream,
    /// Eight connections' bulk data at once.
    Streams,
    /// Short connections.
    Storm,
    /// Small messages on one connection.
    Pingpong,
    /// Idle connections.
    Idle,
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Load::Stream => write!(formatter, "1 stream"),
            Load::Streams => write!(formatter, "8 streams"),
            Load::Storm => write!(formatter, "short connections"),
            Load::Pingpong => write!(formatter, "ping-pong"),
            Load::Idle => write!(formatter, "idle connections"),
        }
    }
}

/// All but the idle connections, which want a fresh process.
const LOADS: [Load; 4] = [Load::Stream, Load::Streams, Load::Storm, Load::Pingpong];

/// Runs all rounds. A relay that fails under a load is reported and does not stop the others.
pub fn run(relays: &[Relay], args: &Args) -> Result<Outcome> {
    relay::prepare(relays, args)?;
    let outcome = Outcome {
        values: BTreeMap::new(),
        failures: Vec::new(),
        others: Vec::new(),
        relays: relays.to_vec(),
        rounds: if args.quick { 2 } else { args.rounds },
        repeats: 0,
        quick: args.quick,
        cpus: process::cpus()?,
    };
    let network = Network::build()?;
    let mut bench = Bench { network, args, progress: progress(relays, outcome.rounds, args), outcome };
    for round in 0..bench.outcome.rounds {
        // Everyone is first in some round.
        let mut order = relays.to_vec();
        order.rotate_left(usize::from(round) % relays.len());
        bench.round(round, &order)?;
    }
    bench.progress.finish_and_clear();
    Ok(bench.outcome)
}

fn progress(relays: &[Relay], rounds: u8, args: &Args) -> ProgressBar {
    let loads = LOADS.iter().filter(|load| wanted(args, **load)).count();
    let holders = relays.iter().filter(|relay| **relay != Relay::Direct && wanted(args, Load::Idle)).count();
    let cells = relays.len() * loads * usize::from(rounds) + holders * usize::from(rounds.min(IDLE_ROUNDS));
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}").expect("a constant template");
    ProgressBar::new(cells as u64).with_style(style)
}

fn wanted(args: &Args, load: Load) -> bool {
    args.loads.is_empty() || args.loads.contains(&load)
}

struct Bench<'a> {
    network: Network,
    args: &'a Args,
    progress: ProgressBar,
    outcome: Outcome,
}

impl Bench<'_> {
    fn round(&mut self, round: u8, order: &[Relay]) -> Result<()> {
        if self.progress.is_hidden() {
            eprintln!("round {} of {}", round + 1, self.outcome.rounds);
        }
        let mut running = Vec::new();
        for relay in order {
            running.push((*relay, self.start(*relay)?));
        }
        for load in LOADS.into_iter().filter(|load| wanted(self.args, *load)) {
            for (relay, running) in &mut running {
                let result = self.undisturbed(*relay, running, load);
                self.note(*relay, load, running.explain(result));
            }
        }
        drop(running);
        let idle = wanted(self.args, Load::Idle) && round < IDLE_ROUNDS;
        let idle = order.iter().filter(|relay| **relay != Relay::Direct && idle);
        for relay in idle {
            // A fresh process: what other loads have left in its pools is not what idle connections cost.
            let mut running = self.start(*relay)?;
            let result = self.cell(*relay, &mut running, Load::Idle);
            self.note(*relay, Load::Idle, running.explain(result));
        }
        Ok(())
    }

    fn start(&self, relay: Relay) -> Result<Running> {
        Running::start(relay, &self.network, self.args).with_context(|| format!("{} does not start", relay.name()))
    }

    /// One relay under one load, again if other programs disturbed it.
    fn undisturbed(&mut self, relay: Relay, running: &mut Running, load: Load) -> Result<Cell> {
        let mut best = self.cell(relay, running, load)?;
        for _ in 0..2 {
            if best.others > QUIET && self.outcome.repeats < REPEATS {
                self.outcome.repeats += 1;
                let again = self.cell(relay, running, load)?;
                best = if again.others < best.others { again } else { best };
            }
        }
        Ok(best)
    }

    /// One relay under one load.
    fn cell(&self, relay: Relay, running: &mut Running, load: Load) -> Result<Cell> {
        self.progress.set_message(format!("{load} · {}", relay.name()));
        let path = load::Path {
            client: Some(&self.network.client),
            server: Some(&self.network.server),
            connect: relay.address(),
            listen: network::EVERY_ADDRESS_OF_SERVER,
        };
        let (start, machine, own) = (Instant::now(), process::cpu_of_machine()?, process::cpu_of_all()?);
        let times = self.times(load);
        // In a virtual machine a CPU that sleeps takes many times as long to wake as a relay takes to pass a message on,
        // and whether it sleeps is up to a guess of the kernel's.
        let awake = (load == Load::Pingpong).then(Awake::keep).transpose();
        let _awake = awake.inspect_err(|error| {
            self.progress
                .println(format!("/dev/cpu_dma_latency: {error}, so CPUs may sleep, which makes delays longer"));
        });
        let values = match load {
            Load::Stream => bulk(&stream::run(path, 1, times, &|| running.cpu())?, Measure::Rate1, Measure::CpuPerGb1),
            Load::Streams => bulk(&stream::run(path, 8, times, &|| running.cpu())?, Measure::Rate8, Measure::CpuPerGb8),
            Load::Storm => short(&storm::run(path, IN_FLIGHT, times, &|| running.cpu())?),
            Load::Pingpong => delays(&pingpong::run(path, times)?),
            Load::Idle => vec![(Measure::IdleKilobytes, idle::run(path, IDLE, || running.memory())? / 1024.0)],
        };
        running.check()?;
        let machine = process::cpu_of_machine()?.saturating_sub(machine);
        let others = machine.saturating_sub(process::cpu_of_all()?.saturating_sub(own));
        let others = others.as_secs_f64() / start.elapsed().as_secs_f64() / self.outcome.cpus as f64;
        Ok(Cell { values, others })
    }

    fn times(&self, load: Load) -> Times {
        let millis = match (load, self.outcome.quick) {
            (_, true) => (200, 800),
            (Load::Pingpong, false) => (200, 1000),
            (_, false) => (400, 2000),
        };
        Times { warm_up: Duration::from_millis(millis.0), measured: Duration::from_millis(millis.1) }
    }

    fn note(&mut self, relay: Relay, load: Load, result: Result<Cell>) {
        self.progress.inc(1);
        match result {
            Ok(cell) => {
                self.outcome.others.push(cell.others);
                for (measure, value) in cell.values {
                    // Nothing relays on the direct way, so nothing was spent.
                    if relay != Relay::Direct || !measure.is_the_relays_own() {
                        self.outcome.values.entry((relay, measure)).or_default().push(value);
                    }
                }
            }
            Err(error) => self.outcome.failures.push(format!("{} · {load}: {error:#}", relay.name())),
        }
    }
}

/// What came out of one relay under one load.
struct Cell {
    values: Vec<(Measure, f64)>,
    others: f64,
}

fn bulk(interval: &Interval, rate: Measure, cost: Measure) -> Vec<(Measure, f64)> {
    let bytes = interval.count as f64;
    vec![(rate, bytes * 8.0 / 1e9 / interval.elapsed.as_secs_f64()), (cost, interval.cpu.as_secs_f64() / (bytes / 1e9))]
}

fn short(interval: &Interval) -> Vec<(Measure, f64)> {
    let connections = interval.count as f64;
    vec![
        (Measure::Connections, connections / interval.elapsed.as_secs_f64()),
        (Measure::CpuPerConnection, interval.cpu.as_secs_f64() * 1e6 / connections),
    ]
}

fn delays(samples: &[f64]) -> Vec<(Measure, f64)> {
    let at = |percent, measure| percentile(samples, percent).map(|value| (measure, value));
    [at(50.0, Measure::DelayP50), at(99.0, Measure::DelayP99)].into_iter().flatten().collect()
}
