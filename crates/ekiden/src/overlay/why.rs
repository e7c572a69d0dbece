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
    let way = way(&status, &args.destination)?;
    let exit = match &way {
        Way::To { exit, .. } => Some(exit.as_str()),
        _ => None,
    };
    let places: Vec<&ExitStatus> = status.exits.iter().filter(|place| Some(place.exit.as_str()) == exit).collect();
    if args.asked.json {
        return out::line(serde_json::to_string_pretty(&places)?);
    }
    let (destination, node) = (&args.destination, &status.node);
    let (exit, because) = match way {
        Way::Refused(route) => return out::line(format_args!("{destination}: the route to {route} refuses it")),
        Way::Chain(route, chain) => {
            let path = arrows(node, &chain);
            return out::line(format_args!("{destination}: the route to {route} says which way: {path}"));
        }
        Way::Here(why) => return out::line(format_args!("{destination}: {why}, so {node} connects to it itself")),
        Way::To { exit, because } => (exit, because),
    };
    let mut text = format!("{destination}: {because} {exit}\n");
    if places.is_empty() {
        // A string takes whatever is written to it.
        let _ = writeln!(text, "no stream has gone there yet, so no path is chosen");
    }
    for failed in status.failed.iter().filter(|leg| leg.contains(&exit)) {
        let _ = writeln!(text, "the leg {} → {} has failed a short while ago", failed[0], failed[1]);
    }
    for place in places {
        explain(&mut text, &status.node, place);
    }
    out::text(text)
}

/// How streams to a destination go.
enum Way {
    /// Not at all: the destinations of the route.
    Refused(String),
    /// Over the chain of a route.
    Chain(String, Vec<String>),
    /// From here, and why.
    Here(&'static str),
    /// On a path that is chosen, to this node, and why to it.
    To { exit: String, because: &'static str },
}

/// What the first route for the destination says. A node's name stands for what goes to that node.
fn way(status: &Status, destination: &str) -> anyhow::Result<Way> {
    if status.nodes.iter().any(|node| node.name == destination) {
        return Ok(match destination == status.node {
            true => Way::Here("it is this node"),
            false => Way::To { exit: destination.into(), because: "it is the node" },
        });
    }
    let target: Target = destination.parse().or_else(|_| format!("{destination}:443").parse())?;
    let matches = |text: &String| Pattern::parse(text).is_ok_and(|pattern| pattern.matches(&target));
    let Some(route) = status.routes.iter().find(|route| route.to.iter().any(matches)) else {
        return Ok(Way::Here("no route is for it"));
    };
    let to = route.to.join(", ");
    Ok(match (route.way.as_str(), &route.exit) {
        ("refuse", _) => Way::Refused(to),
        ("via", _) if !route.nodes.is_empty() => Way::Chain(to, route.nodes.clone()),
        ("auto", Some(exit)) if *exit == status.node => Way::Here("its route says that this node is the exit"),
        ("auto", Some(exit)) => Way::To { exit: exit.clone(), because: "its route says that it leaves at node" },
        ("auto", None) => match exit_near(status, &target) {
            Some(exit) if exit != status.node => Way::To { exit, because: "the node near it is" },
            _ => Way::Here("no other node is near it"),
        },
        _ => Way::Here("its route says so"),
    })
}

/// The node whose `near` has the narrowest pattern that matches.
fn exit_near(status: &Status, target: &Target) -> Option<String> {
    let narrowest = |near: &[String]| {
        let patterns = near.iter().filter_map(|text| Pattern::parse(text).ok());
        patterns.filter(|pattern| pattern.matches(target)).map(|pattern| pattern.specificity()).max()
    };
    let all = status.nodes.iter().filter_map(|node| Some((&node.name, narrowest(&node.near)?)));
    all.rev().max_by_key(|(_, specificity)| *specificity).map(|(name, _)| name.clone())
}

fn explain(text: &mut String, node: &str, place: &ExitStatus) {
    let since = place.since_s.map_or_else(String::new, |seconds| format!(", for {}", ago(seconds)));
    let why = place.why.clone().unwrap_or_else(|| "nothing is known yet".into());
    let _ = writeln!(
        text,
        "{} streams go over {}{since}: {why}. Most bytes go {}. Streams: {}, changes: {}",
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
