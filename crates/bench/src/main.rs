//! The relay benchmark: ekiden, HAProxy, nginx and a bare relay, which is the floor, relay the same loads between namespaces of this machine, interleaved
//! in one run. docs/measurements/relay.md says what is measured, and how.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ekiden_net::sandbox::{self, Interrupt};
use ekiden_net::socket;

mod aims;
mod load;
mod measure;
mod network;
mod overload;
mod process;
mod relay;
mod report;
mod rounds;
mod stats;

/// Measures ekiden's relay beside HAProxy and nginx, and kernel forwarding.
#[derive(Debug, Parser)]
struct Args {
    /// The ekiden binary.
    #[arg(long)]
    ekiden: PathBuf,
    /// Where the peers' packages are unpacked (usr/sbin/haproxy, usr/sbin/nginx ...).
    #[arg(long)]
    peers: PathBuf,
    /// The bare relay, built from bench/load/relay/bare.c.
    #[arg(long, default_value = "bare-relay")]
    bare: PathBuf,
    /// The relays' configurations.
    #[arg(long)]
    configs: PathBuf,
    /// Rounds; every relay is measured once in each. Without it 15, and 5 with --overload.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: Option<u8>,
    /// Two rounds of short cells: a first look, no result.
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Instead of all that: two ekiden nodes that are offered twice the connections per second, and the files, that they can do.
    #[arg(long, conflicts_with_all = ["json", "only", "loads"])]
    overload: bool,
    /// Print JSON: all values, medians, aims.
    #[arg(long)]
    json: bool,
    /// Measure only these relays, by name: direct, ekiden, haproxy, nginx, bare, bare-lowat, chain, haproxy-chain, chain-tls, haproxy-tls. Without peers there are no ratios.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these loads.
    #[arg(long, value_delimiter = ',', value_enum)]
    loads: Vec<rounds::Kind>,
    /// Numbers of bulk streams at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64, 512, 2000],
        value_parser = clap::value_parser!(u16).range(1..=2000))]
    streams: Vec<u16>,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ekiden-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let relays = if args.overload { overload::RELAYS.to_vec() } else { relay::named(&args.only)? };
    relay::check_files(&relays, &args)?;
    // Everything that is started ends with the sandbox, whatever ends this process.
    sandbox::enter(Interrupt::Ends, || ())?;
    // Both ends of 5,000 idle connections are held by this process.
    socket::raise_open_files()?;
    if args.overload {
        return overload::run(&args);
    }
    let outcome = rounds::run(&relays, &args)?;
    let verdicts = aims::judged(&aims::all(&args.streams), &outcome);
    match args.json {
        true => println!("{:#}", report::json(&outcome, &verdicts)),
        false => println!("{}", report::text(&outcome, &verdicts)),
    }
    anyhow::ensure!(outcome.failures.is_empty(), "{} measurements failed", outcome.failures.len());
    let missed = verdicts.iter().filter(|verdict| verdict.reached() == Some(false)).count();
    anyhow::ensure!(missed == 0, "{missed} aims are missed");
    Ok(())
}
