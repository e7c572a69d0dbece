//! The rounds: every relay under every load, one right after the other, so that what disturbs one disturbs all.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use ekiden_net::processors::Awake;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Args;
use crate::load::{self, Times, idle, pingpong, storm, stream};
use crate::measure::{self, Measure, counted};
use crate::network::{self, Network};
use crate::process;
use crate::relay::{self, Relay, Running};

/// Connections of the storm at any time.
const IN_FLIGHT: usize = 64;
/// Rounds, unless another number is asked for.
const ROUNDS: u8 = 15;
/// Idle connections whose memory is measured.
const IDLE: usize = 5_000;
/// The maximum number of streams with which two nodes in a row are measured.
const FEW: u16 = 8;
/// The part of the machine that other programs may take; above it a figure says nothing.
pub const QUIET: f64 = 0.15;
/// The maximum number of repeated measurements because of competing load, for each round: they cost about three seconds each.
const REPEATS_A_ROUND: u32 = 5;
/// From this number of streams on, a short interval would show their turns, not their shares.
const MANY: u16 = 512;
/// Memory hardly varies, and takes long to measure.
const IDLE_ROUNDS: u8 = 3;

/// The results.
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
    /// Measurements that were repeated because of competing load; the one with the least of it counts.
    pub repeats: u32,
    /// Whether these are the short cells of a first look.
    pub quick: bool,
    /// CPUs of the machine.
    pub cpus: usize,
}

impl Outcome {
    /// Nothing yet.
    pub fn new(relays: Vec<Relay>, rounds: u8, quick: bool, cpus: usize) -> Self {
        let (values, failures, others) = Default::default();
        Self { values, failures, others, relays, rounds, repeats: 0, quick, cpus }
    }
}

/// Kinds of loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Bulk data of some connections at once, as many as --streams says.
    Streams,
    /// Short connections.
    Storm,
    /// Small messages on one connection.
    Pingpong,
    /// Idle connections.
    Idle,
}

/// A load that a relay is put under in every round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Streams(u16),
    Storm,
    Pingpong,
    Idle,
}

impl Load {
    /// Whether this relay is put under it.
    fn suits(self, relay: Relay) -> bool {
        match self {
            Load::Streams(count) => count <= FEW || relay.is_single(),
            Load::Idle => relay != Relay::Direct,
            Load::Storm | Load::Pingpong => true,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Load::Streams(count) => formatter.write_str(&counted(*count)),
            Load::Storm => write!(formatter, "short connections"),
            Load::Pingpong => write!(formatter, "ping-pong"),
            Load::Idle => write!(formatter, "idle connections"),
        }
    }
}

/// All that were asked for, but the idle connections, which want a fresh process.
fn loads(args: &Args) -> Vec<Load> {
    let streams = args.streams.iter().map(|count| Load::Streams(*count)).filter(|_| wanted(args, Kind::Streams));
    let storm = wanted(args, Kind::Storm).then_some(Load::Storm);
    let pingpong = wanted(args, Kind::Pingpong).then_some(Load::Pingpong);
    streams.chain(storm).chain(pingpong).collect()
}

fn wanted(args: &Args, kind: Kind) -> bool {
    args.loads.is_empty() || args.loads.contains(&kind)
}

/// Runs all rounds. A relay that fails under a load is reported and does not stop the others.
pub fn run(relays: &[Relay], args: &Args) -> Result<Outcome> {
    relay::prepare(relays, args)?;
    let rounds = if args.quick { 2 } else { args.rounds.unwrap_or(ROUNDS) };
    let outcome = Outcome::new(relays.to_vec(), rounds, args.quick, process::cpus()?);
    let network = Network::build()?;
    let mut bench = Bench { network, args, progress: progress(relays, outcome.rounds, args), outcome };
    for round in 0..bench.outcome.rounds {
        // Each relay is first in some round.
        let mut order = relays.to_vec();
        order.rotate_left(usize::from(round) % relays.len());
        bench.round(round, &order)?;
    }
    bench.progress.finish_and_clear();
    Ok(bench.outcome)
}

fn progress(relays: &[Relay], rounds: u8, args: &Args) -> ProgressBar {
    let cells = |load: Load| relays.iter().filter(|relay| load.suits(**relay)).count();
    let in_all_rounds: usize = loads(args).into_iter().map(cells).sum();
    let idle = if wanted(args, Kind::Idle) { cells(Load::Idle) } else { 0 };
    let cells = in_all_rounds * usize::from(rounds) + idle * usize::from(rounds.min(IDLE_ROUNDS));
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}").expect("a constant template");
    ProgressBar::new(cells as u64).with_style(style)
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
        for load in loads(self.args) {
            for relay in order.iter().filter(|relay| load.suits(**relay)) {
                // Alone: all relays' pipes count against one user's pages (fs.pipe-user-pages-soft).
                let mut running = self.start(*relay)?;
                let result = self.without_competition(*relay, &mut running, load);
                self.note(*relay, load, running.explain(result));
            }
        }
        let idle = wanted(self.args, Kind::Idle) && round < IDLE_ROUNDS;
        let idle = order.iter().filter(|relay| Load::Idle.suits(**relay) && idle);
        for relay in idle {
            let mut running = self.start(*relay)?;
            let result = self.cell(*relay, &mut running, Load::Idle);
            self.note(*relay, Load::Idle, running.explain(result));
        }
        Ok(())
    }

    fn start(&self, relay: Relay) -> Result<Running> {
        Running::start(relay, &self.network, self.args).with_context(|| format!("{} does not start", relay.name()))
    }

    /// One relay under one load, again if there was competing load.
    fn without_competition(&mut self, relay: Relay, running: &mut Running, load: Load) -> Result<Cell> {
        let mut best = self.cell(relay, running, load)?;
        for _ in 0..2 {
            if best.others > QUIET && self.outcome.repeats < REPEATS_A_ROUND * u32::from(self.outcome.rounds) {
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
        // In a virtual machine, waking a sleeping CPU takes many times as long as a relay takes to pass a message on, and
        // the kernel guesses whether to let it sleep.
        let awake = (load == Load::Pingpong).then(Awake::keep).transpose();
        let _awake = awake.inspect_err(|error| {
            self.progress
                .println(format!("/dev/cpu_dma_latency: {error}, so CPUs may sleep, which makes delays longer"));
        });
        let values = match load {
            Load::Streams(count) => {
                let streams = usize::from(count);
                let bulk = stream::run(path, streams, times, &|| running.cpu(), &|| running.memory())?;
                measure::of_bulk(count, &bulk)
            }
            Load::Storm => measure::of_connections(&storm::run(path, IN_FLIGHT, times, &|| running.cpu())?),
            Load::Pingpong => measure::of_delays(&pingpong::run(path, times)?),
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
            (Load::Streams(MANY..), true) => (500, 1500),
            (_, true) => (200, 800),
            (Load::Streams(MANY..), false) => (1000, 4000),
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
                    // There is no relay on the direct path, so no relay's CPU time was spent.
                    if relay != Relay::Direct || !measure.is_the_relays_own() {
                        self.outcome.values.entry((relay, measure)).or_default().push(value);
                    }
                }
            }
            Err(error) => self.outcome.failures.push(format!("{} · {load}: {error:#}", relay.name())),
        }
    }
}

/// The results of one relay under one load.
struct Cell {
    values: Vec<(Measure, f64)>,
    others: f64,
}
