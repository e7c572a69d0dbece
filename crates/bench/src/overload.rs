//! Twice the connections per second that two ekiden nodes can do: what they still do, and what becomes of every single one.
//!
//! Then files, with limits and without: `files.rs`. The nodes share one CPU, so that they are what is too slow; clients and server have the others.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::Args;
use crate::load::flood::{self, Flood};
use crate::load::{self, Times, storm};
use crate::network::{self, Network};
use crate::process;
use crate::relay::{self, Relay, Running};
use crate::rounds::QUIET;
use crate::stats::{median, percentile};

mod files;

/// What is put under it.
pub const RELAYS: [Relay; 2] = [Relay::Chain, files::RELAY];

/// Rounds, unless another number is asked for.
const ROUNDS: u8 = 5;
/// What is offered, in parts of what is the most.
const FACTORS: [f64; 3] = [0.5, 1.0, 2.0];
/// Connections at any time when the most is found.
const IN_FLIGHT: usize = 64;
const OFFERING: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(3);
/// The part of the most that must be done at twice of it.
const AIM: f64 = 0.9;

/// Runs all rounds and prints the table.
pub fn run(args: &Args) -> Result<()> {
    relay::prepare(&RELAYS, args)?;
    let cpus = process::cpus()?;
    ensure!(cpus >= 2, "the nodes need a CPU of their own, and there is one only");
    let network = Network::build()?;
    let to = |relay: Relay| load::Path {
        client: Some(&network.client),
        server: Some(&network.server),
        connect: relay.address(),
        listen: network::EVERY_ADDRESS_OF_SERVER,
    };
    let path = to(Relay::Chain);
    let (start, machine, own) = (Instant::now(), process::cpu_of_machine()?, process::cpu_of_all()?);
    let rounds = if args.quick { 1 } else { args.rounds.unwrap_or(ROUNDS) };
    let (mut others, mut ended) = (0.0, Duration::ZERO);
    let (mut best_cost, mut spent) = (Vec::new(), FACTORS.map(|_| Vec::new()));
    let (mut most, mut floods) = (Vec::new(), FACTORS.map(|_| Vec::new()));
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        // What is started keeps the CPUs of the thread that starts it.
        keep_to(0..1)?;
        let running = Running::start(Relay::Chain, &network, args);
        keep_to(1..cpus)?;
        let mut running = running?;
        let times = Times { warm_up: OFFERING - MEASURED, measured: MEASURED };
        for ((factor, floods), spent) in FACTORS.iter().zip(&mut floods).zip(&mut spent) {
            // Right before, so that what disturbs one disturbs the other.
            let best = storm::run(path, IN_FLIGHT, times, &|| running.cpu()).context("the most")?;
            best_cost.push(cost(best.cpu, best.count));
            let best = best.count as f64 / best.elapsed.as_secs_f64();
            most.push(best);
            let before = running.cpu()?;
            let flood = flood::run(path, factor * best, OFFERING, MEASURED);
            let flood = running.explain(flood)?;
            spent.push(cost(running.cpu()?.saturating_sub(before), flood.answered));
            floods.push((best, flood));
            running.check()?;
        }
        // What has ended counts no more, so each round is seen while its nodes run.
        let ours = process::cpu_of_all()?.saturating_sub(own) + ended;
        ended += running.cpu()?;
        let machine = process::cpu_of_machine()?.saturating_sub(machine);
        others = machine.saturating_sub(ours).as_secs_f64() / start.elapsed().as_secs_f64() / cpus as f64;
    }
    println!(
        "{}\nOther programs took {:.0} % of the CPUs.",
        table(rounds, &most, &best_cost, &floods, &spent),
        100.0 * others
    );
    if others > QUIET {
        println!("That is too much for figures to mean anything: run it again when the machine is idle.");
    }
    let mut of_files = files::Files::default();
    for round in 0..rounds {
        eprintln!("files, round {} of {rounds}", round + 1);
        of_files
            .round(to(files::RELAY), &network, args, &|for_nodes| keep_to(if for_nodes { 0..1 } else { 1..cpus }))?;
    }
    println!("{}", of_files.text());
    let ratios: Vec<f64> = floods[2].iter().map(|(best, flood)| flood.rate / best).collect();
    let ratio = median(&ratios).unwrap_or_default();
    let lost: u64 = floods.iter().flatten().map(|(_, flood)| flood.lost + flood.left).sum();
    println!("At twice the most: {:.0} % of it (aim: at least {:.0} %); {lost} lost.", 100.0 * ratio, 100.0 * AIM);
    ensure!(lost == 0, "{lost} connections were neither answered nor refused");
    ensure!(of_files.lost() == 0, "{} files neither arrived nor were refused", of_files.lost());
    ensure!(ratio >= AIM, "throughput under overload misses its aim");
    ensure!(of_files.is_reached(), "a limit makes transfers take longer under overload");
    Ok(())
}

fn keep_to(cpus: std::ops::Range<usize>) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().try_for_each(|cpu| set.set(cpu))?;
    sched_setaffinity(Pid::from_raw(0), &set).context("cannot choose CPUs")
}

/// Microseconds of the nodes' CPU time for each connection.
fn cost(cpu: Duration, connections: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / connections.max(1) as f64
}

fn table(rounds: u8, most: &[f64], best_cost: &[f64], floods: &[Vec<(f64, Flood)>], spent: &[Vec<f64>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "offered",
        "per second",
        "answered/s",
        "of the most",
        "CPU µs each",
        "wait ms, p50",
        "p99",
        "refused",
        "lost",
    ]);
    let middle = |values: Vec<f64>| median(&values).unwrap_or_default();
    let rate = format!("{:.0}", middle(most.to_vec()));
    let cost = format!("{:.0}", middle(best_cost.to_vec()));
    table.add_row(["64 at a time".into(), String::new(), rate, "1.00".into(), cost]);
    for ((factor, floods), spent) in FACTORS.iter().zip(floods).zip(spent) {
        let each = |value: &dyn Fn(&(f64, Flood)) -> f64| middle(floods.iter().map(value).collect());
        let waits = |percent| each(&|(_, flood)| percentile(&flood.waited, percent).unwrap_or_default());
        let refused: u64 = floods.iter().map(|(_, flood)| flood.refused).sum();
        let lost: u64 = floods.iter().map(|(_, flood)| flood.lost + flood.left).sum();
        table.add_row([
            format!("{factor} × the most"),
            format!("{:.0}", each(&|(_, flood)| flood.offered as f64 / OFFERING.as_secs_f64())),
            format!("{:.0}", each(&|(_, flood)| flood.rate)),
            format!("{:.2}", each(&|(best, flood)| flood.rate / best)),
            format!("{:.0}", middle(spent.clone())),
            format!("{:.1}", waits(50.0)),
            format!("{:.1}", waits(99.0)),
            refused.to_string(),
            lost.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\nMedians of {rounds} rounds; refused and lost are of all.")
}
