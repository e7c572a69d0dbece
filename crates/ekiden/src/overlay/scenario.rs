//! `ekiden overlay scenario`.

use std::path::PathBuf;

use ekiden_files::ConfigError;
use ekiden_flows::{Packets, Sites};
use ekiden_units::{BitRate, Bytes, Time};

use crate::out;
use crate::usage::whole_number;
use crate::whose::whose;

/// Print the sites of FILE as a scenario, for `ekiden lab run` and `ekiden simulate`.
///
/// Each site has a node of the overlay and a host, and each two nodes a link with the delay, rates and losses that `ekiden overlay
/// simulate` draws. Files are sent between some sites, and the nodes choose their paths. Outages and rush hours of FILE become schedules of links.
#[derive(clap::Args)]
pub struct Args {
    /// The sites (TOML), such as scenarios/sites-4.toml.
    #[arg(value_name = "FILE")]
    sites: PathBuf,
    /// Legs that are faster get this rate: what the lab can carry is bounded.
    #[arg(long, value_name = "RATE", default_value = "20Mbit/s")]
    rate_most: BitRate,
    /// Between how many pairs of sites files are sent, two at a time; by default as many as there are sites.
    #[arg(long, value_name = "N", value_parser = whole_number(1, u32::MAX))]
    flows: Option<u32>,
    /// The size of a file.
    #[arg(long, value_name = "BYTES", default_value = "500KB")]
    file: Bytes,
    /// How long files are sent.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    duration: Time,
    /// From this time of FILE's schedules on.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    begin: Time,
    /// Another seed than the file's.
    #[arg(long, value_name = "SEED", value_parser = whole_number(0, u64::MAX))]
    seed: Option<u64>,
}

/// Prints it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut sites = Sites::read(&args.sites).map_err(|error| whose(&args.sites, "overlay scenario", error))?;
    sites.seed = args.seed.unwrap_or(sites.seed);
    let flows = args.flows.map_or(sites.sites.len(), |flows| flows as usize);
    let &Args { rate_most, file, duration, begin, .. } = args;
    let packets = Packets { rate_most, flows, file, duration, begin };
    let refused = |reason: String| ConfigError::whole(&args.sites, reason);
    out::text(packets.scenario(&sites).map_err(refused)?)
}
