//! `ekiden overlay simulate`.

use std::path::PathBuf;

use ekiden_flows::{Outcome, Policy, Sites, run as simulate};
use ekiden_report::Table;
use indicatif::ProgressBar;

use super::map;
use crate::out::{self, Width};
use crate::usage::svg;
use crate::whose::whose;

/// Simulate an overlay over hours or days, stream by stream, and show what its nodes would get by choosing paths.
///
/// FILE describes sites, the legs between them and the streams that they open, such as scenarios/sites-16.toml. The nodes decide by the
/// same code as real ones. Beside them, with the same streams: the direct paths, the shortest round trips, nodes that probe all legs (as
/// RON), and the best that there is.
#[derive(clap::Args)]
pub struct Args {
    /// The sites (TOML).
    #[arg(value_name = "FILE")]
    sites: PathBuf,
    /// The nodes alone, without what stands beside them.
    #[arg(long)]
    alone: bool,
    /// Print JSON instead of a table: all figures, and each change of a path with its reason.
    #[arg(long)]
    json: bool,
    /// Draw the sites, the legs as they are at the end, and the paths that the nodes have in use then. Legs that were cut at some time are
    /// drawn as failed. Of more than 24 sites only legs on a path in use are drawn.
    #[arg(long, value_name = "FILE.svg", value_parser = svg())]
    map: Option<PathBuf>,
    /// Replace a map that is there already.
    #[arg(long, requires = "map")]
    force: bool,
    #[command(flatten)]
    width: Width,
}

/// Runs it, and prints what came out.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let sites = Sites::read(&args.sites).map_err(|error| whose(&args.sites, "overlay simulate", error))?;
    if let Some(file) = &args.map {
        map::check(file, args.force)?;
    }
    let all = [Policy::Direct, Policy::ShortestRtt, Policy::Ron, Policy::Ekiden, Policy::Oracle];
    let policies = if args.alone { &all[3..4] } else { &all[..] };
    let bar = ProgressBar::new(policies.len() as u64);
    let outcome = |policy: &Policy| {
        bar.set_message(name(*policy));
        let outcome = simulate(&sites, *policy);
        bar.inc(1);
        outcome
    };
    let outcomes: Vec<Outcome> = policies.iter().map(outcome).collect();
    bar.finish_and_clear();
    if let (Some(file), Some(own)) = (&args.map, outcomes.iter().find(|of| of.policy == Policy::Ekiden)) {
        map::draw(file, &map::of_outcome(&sites, own))?;
    }
    match args.json {
        true => out::line(serde_json::to_string_pretty(&outcomes)?),
        false => out::text(args.width.fitted(&text(&sites, &outcomes, args.width))),
    }
}

fn text(sites: &Sites, outcomes: &[Outcome], width: Width) -> String {
    let columns = [
        "paths",
        "of the best, median",
        "tenth",
        "worst pair",
        "pairs that gain",
        "gain, median",
        "changes an hour",
        "asked, kbit/s",
        "opens that failed",
    ];
    let mut table = Table::new(columns).spare(["asked, kbit/s", "tenth"]);
    for of in outcomes {
        table.row([
            name(of.policy).into(),
            format!("{:.2}", of.of_best.median),
            format!("{:.2}", of.of_best.tenth),
            format!("{:.2}", of.of_best_by_pair.least),
            format!("{:.0} %", of.gains.part * 100.0),
            format!("{:.1} ×", of.gains.median),
            format!("{:.2}", of.changes_an_hour),
            format!("{:.1}", of.control_bit_s[0] / 1e3),
            format!("{} of {}", of.failed, of.streams),
        ]);
    }
    let (name, seed, duration, warm_up) = (&sites.name, sites.seed, sites.duration, sites.warm_up);
    format!(
        "{name}, seed {seed}: {duration} in all, the first {warm_up} of them to warm up\n{}\nWhat a bulk stream would get by itself on the path \
         that was chosen for it, as a part of the best path's over at most two nodes; and as a multiple of the direct path's.\n",
        table.to_text_within(width.columns())
    )
}

fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::Direct => "direct",
        Policy::ShortestRtt => "shortest round trip",
        Policy::Ron => "all legs probed",
        Policy::Ekiden => "chosen by the nodes",
        Policy::Oracle => "the best",
    }
}
