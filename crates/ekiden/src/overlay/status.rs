//! `ekiden overlay status`.

use ekiden_relay::Status;
use ekiden_report::Table;

use super::{Asked, ago, arrows};
use crate::out;

/// Show where streams of the node that runs here go, on which path, and why.
///
/// With --json, all that the node knows is there: nodes, legs, paths in use and those to choose from.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    asked: Asked,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let status = args.asked.ask()?;
    match args.asked.json {
        true => out::line(serde_json::to_string_pretty(&status)?),
        false => out::text(text(&status)),
    }
}

fn text(status: &Status) -> String {
    if status.exits.is_empty() {
        return format!("{}: no stream has taken a route with via = \"auto\" yet\n", status.node);
    }
    let mut table = Table::new(["to", "class", "path", "for", "changes", "streams", "because"]);
    for place in &status.exits {
        table.row([
            place.exit.clone(),
            place.class.clone(),
            if place.path.is_empty() { "-".into() } else { arrows(&status.node, &place.path) },
            place.since_s.map_or_else(|| "-".into(), ago),
            place.changes.to_string(),
            place.streams.to_string(),
            place.why.clone().unwrap_or_else(|| "nothing is known yet".into()),
        ]);
    }
    format!("{}\n{}", status.node, table.to_text())
}
