//! `ekiden overlay status`.

use ekiden_relay::{ExitStatus, OverlayStatus, RegistryStatus, ShareStatus};
use ekiden_report::Table;

use super::{Asked, arrows, failed, mbit};
use crate::out::{self, Width, ago};

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
        false => out::text(args.asked.width.fitted(&text(&status, args.asked.width))),
    }
}

fn text(status: &OverlayStatus, width: Width) -> String {
    let members = status.registry.as_ref().map_or(String::new(), |registry| members(status.nodes.len(), registry));
    let below = absent(status) + &failed(status) + &shares(&status.shares, width);
    if status.exits.is_empty() {
        return format!("{}: no stream has taken a route with via = \"auto\" yet\n{members}{below}", status.node);
    }
    // Most overlays have one policy, which says nothing.
    let has_policies = status.exits.iter().any(|place| !place.policy.is_empty());
    let kind = |place: &ExitStatus| match (has_policies, place.policy.as_str()) {
        (false, _) => place.kind.clone(),
        (true, "") => format!("{} (no policy)", place.kind),
        (true, policy) => format!("{} ({policy})", place.kind),
    };
    let mut table = Table::new(["to", "kind", "path", "for", "changes", "streams", "because"]).spare(["changes"]);
    for place in &status.exits {
        table.row([
            place.exit.clone(),
            kind(place),
            if place.path.is_empty() { "-".into() } else { arrows(&status.node, &place.path) },
            place.since_s.map_or_else(|| "-".into(), ago),
            place.changes.to_string(),
            place.streams.to_string(),
            place.why.clone().unwrap_or_else(|| "no path is chosen yet".into()),
        ]);
    }
    format!("{}\n{members}{}\n{below}", status.node, table.to_text_within(width.columns()))
}

/// What is refused because nodes are not known, or not there: lines.
fn absent(status: &OverlayStatus) -> String {
    if !status.is_known {
        return "the nodes of the overlay are not known yet: streams whose path would be chosen are refused\n".into();
    }
    let near = status.absent.iter().filter(|(_, near)| !near.is_empty());
    let line = |(node, near): (&String, &Vec<String>)| {
        format!("node {node} is not there: streams to {} are refused, unless another is near\n", near.join(", "))
    };
    near.map(line).collect()
}

/// The streams on each leg by class, where one is held to a rate.
fn shares(shares: &[ShareStatus], width: Width) -> String {
    if shares.iter().all(|share| share.held_bit_s.is_none()) {
        return String::new();
    }
    let mut table = Table::new(["leg to", "class", "streams", "held to Mbit/s"]);
    for share in shares {
        let held = share.held_bit_s.map_or_else(|| "-".into(), mbit);
        table.row([share.peer.clone(), share.class.clone(), share.streams.to_string(), held]);
    }
    format!("{}\n", table.to_text_within(width.columns()))
}

/// Where the members are from, and what is wrong with that: lines.
fn members(count: usize, registry: &RegistryStatus) -> String {
    let since = ago(registry.since_s);
    let mut lines = match (&registry.endpoint, registry.from_file_s) {
        (Some(endpoint), _) => format!("members by etcd at {endpoint}, for {since}: {count}\n"),
        (None, Some(age)) => format!("members by members_cache, {} old: {count}; no word from etcd yet\n", ago(age)),
        (None, None) => format!("the last known members: {count}; no word from etcd for {since}\n"),
    };
    let ignored = registry.ignored.iter().map(|(node, why)| format!("node '{node}' is ignored: {why}"));
    registry.problem.iter().cloned().chain(ignored).for_each(|line| lines += &format!("{line}\n"));
    lines
}
