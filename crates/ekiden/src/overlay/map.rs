//! `ekiden overlay map`, and the map of a simulated overlay.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ekiden_files::{TargetError, check_target, write};
use ekiden_flows::{Outcome, Sites};
use ekiden_relay::{ExitStatus, LegStatus, NodeStatus, OverlayStatus};
use ekiden_report::{MapLeg, MapSite, SiteMap};

use super::Asked;
use crate::out;
use crate::usage::svg;

/// Draw the nodes of the overlay, what is known of the legs between them, and the paths in use from the node that runs here.
///
/// Nodes stand where `at` in the members file says, `at = "35.7,139.7"`; if one of them has none, all stand on a circle.
#[derive(clap::Args)]
pub struct Args {
    /// Where the picture goes.
    #[arg(long, short, value_name = "FILE.svg", default_value = "map.svg", value_parser = svg())]
    output: PathBuf,
    /// Replace a picture that is there already.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    asked: Asked,
}

/// Asks, and draws the answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    check(&args.output, args.force)?;
    let status = args.asked.ask()?;
    if args.asked.json {
        out::line(serde_json::to_string_pretty(&status)?)?;
    }
    draw(&args.output, &of_status(&status))?;
    match args.asked.json {
        true => Ok(()),
        false => out::line(format_args!("nodes on {}: {}", args.output.display(), status.nodes.len())),
    }
}

/// Whether a picture can be written there.
pub fn check(file: &Path, force: bool) -> anyhow::Result<()> {
    check_target(file, force).with_context(|| file.display().to_string())
}

/// Writes the picture.
pub fn draw(file: &Path, map: &SiteMap) -> anyhow::Result<()> {
    write(file, map.to_svg().as_bytes()).map_err(TargetError::from).with_context(|| file.display().to_string())
}

/// Of a simulated overlay at its end.
pub fn of_outcome(sites: &Sites, of: &Outcome) -> SiteMap {
    let site = |site: &ekiden_flows::sites::Site| MapSite {
        name: site.name.clone(),
        at: Some([site.latitude, site.longitude]),
        is_dead: false,
    };
    let leg = |leg: &ekiden_flows::AtEnd| MapLeg {
        from: leg.from,
        to: leg.to,
        rate_bit_s: Some(leg.rate_bit_s),
        loss: leg.loss,
        has_failed: leg.was_cut,
        paths: leg.paths,
    };
    let title = format!("{}, seed {}, after {}", sites.name, sites.seed, sites.duration);
    SiteMap { title, sites: sites.sites.iter().map(site).collect(), legs: of.legs.iter().map(leg).collect() }
}

fn of_status(status: &OverlayStatus) -> SiteMap {
    let has_failed = |from: &str, to: &str| status.failed.iter().any(|[a, b]| (a, b) == (&from.into(), &to.into()));
    let touches = |leg: [&str; 2], name: &str| leg.contains(&name);
    let is_dead = |name: &str| {
        let works = |leg: &LegStatus| touches([&leg.from, &leg.to], name) && !has_failed(&leg.from, &leg.to);
        status.failed.iter().any(|[from, to]| touches([from, to], name)) && !status.legs.iter().any(works)
    };
    let site = |node: &NodeStatus| MapSite { name: node.name.clone(), at: node.at, is_dead: is_dead(&node.name) };
    let sites: Vec<MapSite> = status.nodes.iter().map(site).collect();
    let number = |name: &str| sites.iter().position(|site| site.name == name);
    let used: Vec<[&str; 2]> = status.exits.iter().flat_map(|place| legs_of(&status.node, place)).collect();
    // What was known of a leg before it failed is no line under the dashes.
    let known = status.legs.iter().filter(|leg| !has_failed(&leg.from, &leg.to)).filter_map(|leg| {
        Some(MapLeg {
            from: number(&leg.from)?,
            to: number(&leg.to)?,
            // What it has carried is no rate: it may carry more.
            rate_bit_s: leg.rate_bit_s.map(|bits| bits as f64),
            loss: leg.loss,
            has_failed: false,
            paths: used.iter().filter(|used| **used == [leg.from.as_str(), leg.to.as_str()]).count(),
        })
    });
    let failed = status.failed.iter().filter_map(|[from, to]| {
        Some(MapLeg { from: number(from)?, to: number(to)?, has_failed: true, ..MapLeg::default() })
    });
    let legs = known.chain(failed).collect();
    SiteMap { title: format!("The overlay as {} knows it", status.node), sites, legs }
}

/// The legs of a path in use, each as most bytes go.
fn legs_of<'a>(node: &'a str, place: &'a ExitStatus) -> Vec<[&'a str; 2]> {
    if place.path.is_empty() {
        return Vec::new();
    }
    let mut hops: Vec<&str> = [node].into_iter().chain(place.path.iter().map(String::as_str)).collect();
    if !place.is_up {
        hops.reverse();
    }
    hops.windows(2).map(|leg| [leg[0], leg[1]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_marked_in_the_direction_of_most_bytes() {
        let leg = |from: &str, to: &str| {
            format!(
                r#"{{"from":"{from}","to":"{to}","rtt_ms":1,"rate_bit_s":null,"carried_bit_s":5,"loss":0,"age_s":1}}"#
            )
        };
        let node = |name: &str| {
            format!(
                r#"{{"name":"{name}","address":null,"region":null,"at":[1,2],"near":[],"relays":true,"heard_s":null,"load":0,"credit":1,"aside_s":null}}"#
            )
        };
        let status = |is_up: bool| -> OverlayStatus {
            serde_json::from_str(&format!(
                r#"{{"node":"a","nodes":[{},{},{}],"absent":{{}},"is_known":true,"legs":[{},{}],"failed":[["c","b"],["c","gone"]],"registry":null,"routes":[],"shares":[],"exits":[{{"exit":"b","kind":"bulk","policy":"",
                "direction":"","is_up":{is_up},"path":["b"],"since_s":null,"why":null,"changes":0,"streams":1,"taken":[],"history":[],"candidates":[]}}]}}"#,
                node("a"),
                node("b"),
                node("c"),
                leg("a", "b"),
                leg("b", "a")
            ))
            .unwrap()
        };
        let paths = |is_up: bool| {
            let map = of_status(&status(is_up));
            assert_eq!((map.sites.len(), map.sites[0].at), (3, Some([1.0, 2.0])));
            map.legs.iter().map(|leg| (leg.from, leg.to, leg.paths, leg.has_failed)).collect::<Vec<_>>()
        };
        assert_eq!(paths(true), [(0, 1, 1, false), (1, 0, 0, false), (2, 1, 0, true)]);
        assert_eq!(paths(false), [(0, 1, 0, false), (1, 0, 1, false), (2, 1, 0, true)]);
    }
}
