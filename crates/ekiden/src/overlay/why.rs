//! `ekiden overlay why`.

use std::fmt::Write as _;

use ekiden_relay::Target;
use ekiden_relay::{CandidateStatus, ExitStatus, Pattern, Status};
use ekiden_report::Table;

use super::{Asked, ago, arrows, mbit};
use crate::out;

/// Show which path streams to a destination take from the node that runs here: what there was to choose from, what is known of each and how
/// old that is, the choice, and since when.
#[derive(clap::Args)]
pub struct Args {
    /// A host, or HOST:PORT.
    #[arg(value_name = "DESTINATION")]
    destination: String,
    #[command(flatten)]
    asked: Asked,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let status = args.asked.ask()?;
    let exit = exit_near(&status, &args.destination)?;
    let places: Vec<&ExitStatus> = status.exits.iter().filter(|place| Some(&place.exit) == exit.as_ref()).collect();
    if args.asked.json {
        return out::line(serde_json::to_string_pretty(&places)?);
    }
    let Some(exit) = exit.filter(|exit| *exit != status.node) else {
        return out::line(format_args!(
            "{}: no other node is near it, so {} connects to it itself",
            args.destination, status.node
        ));
    };
    let mut text = format!("{}: the node near it is {exit}\n", args.destination);
    if places.is_empty() {
        // A string takes whatever is written to it.
        let _ = writeln!(text, "no stream has gone there yet, so no path is chosen");
    }
    for place in places {
        explain(&mut text, &status.node, place);
    }
    out::text(text)
}

/// The node whose `near` has the narrowest pattern that matches.
fn exit_near(status: &Status, destination: &str) -> anyhow::Result<Option<String>> {
    let target: Target = destination.parse().or_else(|_| format!("{destination}:443").parse())?;
    let narrowest = |near: &[String]| {
        let patterns = near.iter().filter_map(|text| Pattern::parse(text).ok());
        patterns.filter(|pattern| pattern.matches(&target)).map(|pattern| pattern.specificity()).max()
    };
    let all = status.nodes.iter().filter_map(|node| Some((&node.name, narrowest(&node.near)?)));
    Ok(all.rev().max_by_key(|(_, specificity)| *specificity).map(|(name, _)| name.clone()))
}

fn explain(text: &mut String, node: &str, place: &ExitStatus) {
    let since = place.since_s.map_or_else(String::new, |seconds| format!(", for {}", ago(seconds)));
    let why = place.why.clone().unwrap_or_else(|| "nothing is known yet".into());
    let _ = writeln!(
        text,
        "{} streams go over {}{since}: {why}. Most bytes go {}; {} streams, {} changes",
        place.kind,
        arrows(node, &place.path),
        place.direction,
        place.streams,
        place.changes
    );
    let mut table = Table::new(["", "path", "Mbit/s, known", "Mbit/s, hoped", "rtt ms", "oldest"]);
    for candidate in &place.candidates {
        table.row(row(node, candidate, candidate.path == place.path));
    }
    text.push_str(&table.to_text());
    text.push('\n');
}

fn row(node: &str, of: &CandidateStatus, is_taken: bool) -> [String; 6] {
    [
        if is_taken { "→".into() } else { String::new() },
        arrows(node, &of.path),
        mbit(of.sure_bit_s),
        mbit(of.hoped_bit_s),
        format!("{:.1}", of.rtt_ms),
        ago(of.age_s),
    ]
}
