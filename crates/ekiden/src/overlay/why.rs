//! `ekiden overlay why`.

use std::cmp::Reverse;
use std::fmt::Write as _;

use ekiden_relay::{CandidateStatus, DestinationError, ExitStatus, LastStatus, OverlayStatus, Pattern, Target};
use ekiden_report::Table;
use ekiden_units::{HostPort, without_dot};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Asked, arrows, mbit, still_failed};
use crate::out::{self, ago};
use crate::usage::misused;

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
    let way = way(&status, &args.destination).unwrap_or_else(|error| misused(&error.to_string()));
    let places: Vec<&ExitStatus> = status.exits.iter().filter(|place| way.has(place)).collect();
    match args.asked.json {
        true => out::line(serde_json::to_string_pretty(&told(&status, &args.destination, &way, &places))?),
        false => {
            let text = text(&status, &args.destination, &way, &places, args.asked.width.columns());
            out::text(args.asked.width.fitted(&text))
        }
    }
}

/// The same facts for a script.
fn told(status: &OverlayStatus, destination: &str, way: &Way, places: &[&ExitStatus]) -> Value {
    let (name, because, exit, nodes) = match way {
        Way::Refused(route) => ("refuse", format!("the route to {route} refuses it"), None, None),
        Way::Chain(route, chain) => ("chain", format!("the route to {route} says which way"), None, Some(chain)),
        Way::Here(why) => ("here", (*why).to_owned(), None, None),
        Way::Nowhere(why) => ("nowhere", why.clone(), None, None),
        Way::To { exit, because, .. } => ("exit", format!("{because} {exit}"), Some(exit), None),
    };
    let failed: Vec<_> = failed_legs(status, exit, places).collect();
    let last: Vec<_> = last(status, way, destination).map(|(last, _)| last).collect();
    json!({
        "last": last, "node": status.node, "destination": destination, "way": name, "because": because, "exit": exit, "nodes": nodes,
        "failed": failed, "paths": places,
    })
}

/// The failed legs to an exit, and on the paths to it.
fn failed_legs<'a>(
    status: &'a OverlayStatus,
    exit: Option<&'a String>,
    places: &'a [&ExitStatus],
) -> impl Iterator<Item = FailedLeg<'a>> {
    let avoided = status.failed.iter().map(|[from, to]| FailedLeg { from, to, ago_s: None });
    let still = still_failed(status).map(|(to, ago_s)| FailedLeg { from: &status.node, to, ago_s: Some(ago_s) });
    let is_of = move |leg: &FailedLeg<'_>| {
        let is_exits = exit.is_some_and(|exit| leg.from == exit || leg.to == exit);
        is_exits || places.iter().any(|place| has_leg(&status.node, &place.path, [leg.from, leg.to]))
    };
    avoided.chain(still).filter(is_of)
}

/// Why and since when another node near a destination is tried before its exit, and which.
fn last<'a>(
    status: &'a OverlayStatus,
    way: &'a Way,
    destination: &'a str,
) -> impl Iterator<Item = (&'a LastStatus, &'a String)> {
    let (exit, others) = match way {
        Way::To { exit, others, .. } => (Some(exit), &others[..]),
        _ => (None, &[][..]),
    };
    let of = move |exit: &'a String| {
        let is_it =
            |last: &&LastStatus| last.exit == *exit && last.to.as_ref().is_none_or(|to| is_same(to, destination));
        status.last.iter().filter(is_it)
    };
    let next = others.iter().find(|other| of(other).next().is_none());
    exit.zip(next).into_iter().flat_map(move |(exit, next)| of(exit).map(move |last| (last, next)))
}

/// Whether a destination is meant; for a host without a port, all of its ports are.
fn is_same(to: &str, meant: &str) -> bool {
    let read = |text: &str| {
        let (host, port) = HostPort::optional(text).ok()?;
        Some((without_dot(&host.to_string()).to_lowercase(), port))
    };
    read(to).zip(read(meant)).is_some_and(|((host, port), (of, at))| host == of && (at.is_none() || at == port))
}

/// A leg that has failed: either a short while ago, so that streams avoid it, or longer ago without any success on it since.
#[derive(Serialize)]
struct FailedLeg<'a> {
    from: &'a str,
    to: &'a str,
    ago_s: Option<f64>,
}

fn text(
    status: &OverlayStatus,
    destination: &str,
    way: &Way,
    places: &[&ExitStatus],
    columns: Option<usize>,
) -> String {
    let node = &status.node;
    let (exit, because, of) = match way {
        Way::Refused(route) => return format!("{destination}: the route to {route} refuses it\n"),
        Way::Chain(route, chain) => {
            return format!("{destination}: the route to {route} says which way: {}\n", arrows(node, chain));
        }
        Way::Here(why) => return format!("{destination}: {why}, so {node} connects to it itself\n"),
        Way::Nowhere(why) => return format!("{destination}: {why}: streams to it are refused\n"),
        Way::To { exit, because, of, .. } => (exit, because, of),
    };
    let mut text = format!("{destination}: {because} {exit}\n");
    if places.is_empty() {
        let kind = of.as_ref().and_then(|of| of.kind.as_ref()).map_or(String::new(), |kind| format!("{kind} "));
        // A string takes whatever is written to it.
        let _ = writeln!(text, "no {kind}stream has gone there yet, so no path is chosen");
    }
    for FailedLeg { from, to, ago_s } in failed_legs(status, Some(exit), places) {
        let _ = match ago_s {
            None => writeln!(text, "the leg {from} → {to} has failed a short while ago"),
            Some(s) => writeln!(
                text,
                "the leg {from} → {to} has failed {} ago, and nothing has come about on it since",
                ago(s)
            ),
        };
    }
    for (LastStatus { to, since_s, .. }, next) in last(status, way, destination) {
        let why = match to {
            Some(to) => format!("it said nothing of {to}"),
            None => "no path led to it".into(),
        };
        let _ = writeln!(text, "node {next}, near it as well, is tried before {exit}: {} ago {why}", ago(*since_s));
    }
    for place in places {
        explain(&mut text, status, place, columns);
    }
    text
}

/// How streams to a destination go.
enum Way {
    /// Not at all: the destinations of the route.
    Refused(String),
    /// Over the chain of a route.
    Chain(String, Vec<String>),
    /// From here, and why.
    Here(&'static str),
    /// Not now, and why.
    Nowhere(String),
    /// On a path that is chosen, to this node, and why to it.
    To {
        exit: String,
        because: &'static str,
        /// Other nodes near it that can take its place, the nearest first.
        others: Vec<String>,
        /// Of which streams; none if a node is named, and so all to it are meant.
        of: Option<Streams>,
    },
}

/// Streams that are placed together at an exit.
struct Streams {
    kind: Option<String>,
    policy: String,
}

impl Way {
    fn has(&self, place: &ExitStatus) -> bool {
        let Self::To { exit, of, .. } = self else { return false };
        let is_of = |of: &Streams| of.kind.as_ref().is_none_or(|kind| *kind == place.kind) && of.policy == place.policy;
        place.exit == *exit && of.as_ref().is_none_or(is_of)
    }
}

/// What the first route for the destination says. A node's name stands for streams to that node.
fn way(status: &OverlayStatus, destination: &str) -> Result<Way, DestinationError> {
    if status.nodes.iter().any(|node| node.name == destination) {
        return Ok(match destination == status.node {
            true => Way::Here("it is this node"),
            false => Way::To { exit: destination.into(), because: "it is the node", others: Vec::new(), of: None },
        });
    }
    let target = Target::try_from(HostPort::with_default(destination, 443)?)?;
    let matches = |text: &String| Pattern::parse(text).is_ok_and(|pattern| pattern.matches(&target));
    let Some(route) = status.routes.iter().find(|route| route.to.iter().any(matches)) else {
        return Ok(Way::Here("no route is for it"));
    };
    let to = route.to.join(", ");
    let of = || Some(Streams { kind: route.kind.clone(), policy: route.policy.clone() });
    Ok(match (route.way.as_str(), &route.exit) {
        ("refuse", _) => Way::Refused(to),
        ("via", _) if !route.nodes.is_empty() => Way::Chain(to, route.nodes.clone()),
        ("auto", Some(exit)) if *exit == status.node => Way::Here("its route says that this node is the exit"),
        ("auto", Some(exit)) => Way::To {
            exit: exit.clone(),
            because: "its route says that it leaves at node",
            others: Vec::new(),
            of: of(),
        },
        ("auto", None) => match &exits_near(status, &target)[..] {
            [exit, others @ ..] if *exit != status.node => {
                Way::To { exit: exit.clone(), because: "the node near it is", others: others.to_vec(), of: of() }
            }
            [_, ..] => Way::Here("no other node is near it"),
            [] if !status.is_known => Way::Nowhere("the nodes of the overlay are not known yet".into()),
            [] => match status.absent.iter().find(|(_, near)| narrowest(near, &target).is_some()) {
                Some((node, _)) => Way::Nowhere(format!("node {node} is near it, and is not there")),
                None => Way::Here("no other node is near it"),
            },
        },
        _ => Way::Here("its route says so"),
    })
}

/// The nodes near a destination, those with the narrowest pattern first.
fn exits_near(status: &OverlayStatus, target: &Target) -> Vec<String> {
    let all = status.nodes.iter().filter_map(|node| Some((&node.name, narrowest(&node.near, target)?)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, specificity)| Reverse(*specificity));
    all.into_iter().map(|(name, _)| name.clone()).collect()
}

/// How narrow the narrowest pattern is that matches.
fn narrowest(near: &[String], target: &Target) -> Option<(u8, usize, bool)> {
    let patterns = near.iter().filter_map(|text| Pattern::parse(text).ok());
    patterns.filter(|pattern| pattern.matches(target)).map(|pattern| pattern.specificity()).max()
}

/// Whether a path has this leg, in one direction or the other.
fn has_leg(node: &str, path: &[String], [from, to]: [&str; 2]) -> bool {
    let all: Vec<&str> = std::iter::once(node).chain(path.iter().map(String::as_str)).collect();
    all.windows(2).any(|pair| pair == [from, to] || pair == [to, from])
}

fn explain(text: &mut String, status: &OverlayStatus, place: &ExitStatus, columns: Option<usize>) {
    let node = &status.node;
    let what = match place.policy.as_str() {
        "" => format!("{} streams", place.kind),
        policy => format!("{} streams ({policy})", place.kind),
    };
    let has_failed = |path: &[String]| status.failed.iter().any(|[from, to]| has_leg(node, path, [from, to]));
    let is_tried_again = |path: &[String]| still_failed(status).any(|(to, _)| has_leg(node, path, [node, to]));
    let path = arrows(node, &place.path);
    let since = place.since_s.map_or_else(String::new, |seconds| format!(", for {}", ago(seconds)));
    let choice = match &place.why {
        Some(_) if has_failed(&place.path) => {
            let others = place.candidates.iter().map(|of| &of.path);
            let next = others.filter(|of| **of != place.path && !has_failed(of)).map(|of| arrows(node, of)).next();
            let next = next.unwrap_or_else(|| "the shortest one all the same: no other is known".into());
            format!("{what} went over {path}{since}: that path has failed. New streams try {next}")
        }
        Some(_) if is_tried_again(&place.path) => {
            format!("{what} went over {path}{since}: a leg of it has failed, and the next stream may try it again")
        }
        Some(why) => format!("{what} go over {path}{since}: {why}"),
        None => format!("{what}: no path is chosen yet, and they take the shortest that the route allows"),
    };
    let _ = writeln!(
        text,
        "{choice}. Most bytes go {}. Streams: {}, changes: {}",
        place.direction, place.streams, place.changes
    );
    if place.candidates.is_empty() {
        return;
    }
    let mut table = Table::new(["", "path", "Mbit/s, known", "Mbit/s, hoped", "rtt ms", "oldest"]).spare(["oldest"]);
    for candidate in &place.candidates {
        let mark = match (has_failed(&candidate.path), candidate.path == place.path) {
            (true, _) => "failed",
            (false, true) => "→",
            (false, false) => "",
        };
        table.row(row(node, candidate, mark));
    }
    text.push_str(&table.to_text_within(columns));
    text.push('\n');
}

fn row(node: &str, of: &CandidateStatus, mark: &str) -> [String; 6] {
    [
        mark.into(),
        arrows(node, &of.path),
        mbit(of.sure_bit_s),
        mbit(of.hoped_bit_s),
        of.rtt_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.1}")),
        ago(of.age_s),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Paris, with two routes to tokyo, of which one goes through delhi, and a third one of another kind.
    fn status(failed: Value) -> OverlayStatus {
        let route = |to: &str, kind: Option<&str>, policy: &str| json!({"to": [to], "way": "auto", "nodes": [], "exit": null, "kind": kind, "policy": policy});
        let candidate =
            |path: &[&str]| json!({"path": path, "sure_bit_s": 1, "hoped_bit_s": 1, "rtt_ms": 1.0, "age_s": 1.0});
        let place = |kind: &str, policy: &str, path: &[&str], why: Option<&str>| {
            json!({"exit": "tokyo", "kind": kind, "policy": policy, "direction": "to the destination", "is_up": true,
                "path": path, "since_s": 5.0, "why": why, "changes": 0, "streams": 1, "taken": [], "history": [],
                "candidates": [candidate(&["tokyo"]), candidate(&["delhi", "tokyo"])]})
        };
        let node = |name: &str, near: &[&str]| {
            json!({"name": name, "address": null, "region": null, "at": null,
            "near": near, "relays": true, "heard_s": null, "load": 0.0, "credit": 1.0, "aside_s": null})
        };
        let status = json!({
            "node": "paris", "registry": null, "legs": [], "failed": failed, "shares": [],
            "nodes": [node("tokyo", &[".jp"]), node("delhi", &[]), node("paris", &[])],
            "absent": {"perth": [".au"]}, "is_known": true,
            "routes": [route("a.jp", Some("bulk"), "through delhi"), route("b.jp", Some("interactive"), ""), route("c.jp", Some("bulk"), ""), route("*", None, "")],
            "exits": [place("bulk", "", &["tokyo"], Some("first")), place("bulk", "through delhi", &["delhi", "tokyo"], Some("first")),
                place("interactive", "", &[], None)],
        });
        serde_json::from_value(status).unwrap()
    }

    fn said(status: &OverlayStatus, destination: &str) -> String {
        let way = way(status, destination).unwrap();
        let places: Vec<_> = status.exits.iter().filter(|place| way.has(place)).collect();
        text(status, destination, &way, &places, None)
    }

    #[test]
    fn only_the_choice_for_the_destinations_route_is_told() {
        let status = status(json!([]));
        let (a, b, other) = (said(&status, "a.jp"), said(&status, "b.jp"), said(&status, "c.jp"));
        assert!(a.contains("bulk streams (through delhi) go over paris → delhi → tokyo, for 5 s: first."), "{a}");
        assert!(b.contains("interactive streams: no path is chosen yet, ") && !b.contains("paris →  "), "{b}");
        assert!(other.contains("bulk streams go over paris → tokyo, for 5 s"), "{other}");
        // If the class comes from the clients' listener or user, it may be of either kind.
        let any = said(&status, "d.jp");
        for (text, choices) in [(a, 1), (b, 1), (other, 1), (any, 2), (said(&status, "tokyo"), 3)] {
            assert_eq!(text.matches(" streams").count(), choices, "{text}");
        }
    }

    #[test]
    fn a_choice_fits_a_terminal_of_80_columns() {
        let mut status = status(json!([]));
        let place = &mut status.exits[1];
        place.why = Some("it has been better than the path before it for a while".into());
        place.path = vec!["frankfurt-am-main".into(), "tokyo".into()];
        place.candidates[1].path = place.path.clone();
        let way = way(&status, "tokyo").unwrap();
        let places: Vec<_> = status.exits.iter().collect();
        let text = ekiden_report::wrapped(&text(&status, "tokyo", &way, &places, Some(80)), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80) && text.contains("frankfurt-am-main"), "{text}");
    }

    #[test]
    fn a_round_trip_that_nobody_knows_is_none() {
        let mut status = status(json!([]));
        status.exits[0].candidates[1].rtt_ms = None;
        let text = said(&status, "c.jp");
        let row = text.lines().find(|line| line.contains("paris → delhi → tokyo")).unwrap();
        assert!(row.split_whitespace().any(|cell| cell == "-"), "{row}");
        assert!(
            text.contains(" 1.0 ")
                && serde_json::to_value(&status).unwrap()["exits"][0]["candidates"][1]["rtt_ms"].is_null()
        );
    }

    #[test]
    fn what_is_near_a_node_that_is_not_there_or_not_known_is_told_as_refused() {
        let mut status = status(json!([]));
        assert_eq!(said(&status, "a.au"), "a.au: node perth is near it, and is not there: streams to it are refused\n");
        assert!(said(&status, "a.de").contains("no other node is near it, so paris connects to it itself"));
        status.is_known = false;
        let unknown = "a.de: the nodes of the overlay are not known yet: streams to it are refused\n";
        assert_eq!(said(&status, "a.de"), unknown);
        assert!(way(&status, "a b").is_err());
    }

    #[test]
    fn a_node_that_has_been_gone_for_long_is_told() {
        let mut status = status(json!([]));
        status.nodes[0].failed_s = Some(900.0);
        let text = said(&status, "c.jp");
        assert!(text.contains("the leg paris → tokyo has failed 15 min ago, and nothing has come about on it since\n"));
        assert!(text.contains("went over paris → tokyo, for 5 s: a leg of it has failed, and the next"), "{text}");
        let below = "the leg from paris to tokyo has failed 15 min ago, and nothing has come about on it since\n";
        assert_eq!(super::super::failed(&status), below);
    }

    #[test]
    fn an_exit_that_comes_last_is_told() {
        let mut status = status(json!([]));
        let last = |to: Option<&str>| LastStatus { exit: "tokyo".into(), to: to.map(Into::into), since_s: 4.0 };
        status.last = vec![last(None), last(Some("c.jp:443")), last(Some("a.jp:443"))];
        assert!(!said(&status, "c.jp").contains("tried before"), "no other is near it");
        status.nodes[1].near = vec![".jp".into()];
        for destination in ["c.jp", "C.jp.", "c.jp:443"] {
            let text = said(&status, destination);
            let next = "node delhi, near it as well, is tried before tokyo: 4 s ago";
            assert!(text.contains(&format!("{next} no path led to it\n")), "{text}");
            assert_eq!(text.matches(&format!("{next} it said nothing of c.jp:443\n")).count(), 1, "{text}");
        }
        assert!(!said(&status, "c.jp:80").contains("it said nothing"), "another port");
        status.last.push(LastStatus { exit: "delhi".into(), ..last(None) });
        assert!(!said(&status, "c.jp").contains("tried before"), "all come last");
    }

    #[test]
    fn a_script_is_told_the_same() {
        let status = status(json!([["paris", "tokyo"]]));
        let told = |destination: &str| {
            let way = way(&status, destination).unwrap();
            let places: Vec<_> = status.exits.iter().filter(|place| way.has(place)).collect();
            told(&status, destination, &way, &places)
        };
        let (jp, au, de) = (told("c.jp"), told("a.au"), told("a.de"));
        assert_eq!(
            (&jp["way"], &jp["exit"], &jp["failed"][0]["to"]),
            (&json!("exit"), &json!("tokyo"), &json!("tokyo"))
        );
        assert_eq!(jp["paths"].as_array().unwrap().len(), 1);
        assert_eq!(
            (&au["way"], &au["because"]),
            (&json!("nowhere"), &json!("node perth is near it, and is not there"))
        );
        assert_eq!((&de["way"], &de["because"]), (&json!("here"), &json!("no other node is near it")));
    }

    #[test]
    fn a_path_that_has_failed_is_told_with_the_next() {
        let text = said(&status(json!([["tokyo", "paris"]])), "c.jp");
        assert!(text.contains("went over paris → tokyo, for 5 s: that path has failed. New streams try paris → delhi"));
        assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("failed")).count(), 1, "{text}");
        let text = said(&status(json!([["paris", "tokyo"], ["delhi", "tokyo"]])), "c.jp");
        assert!(text.contains("New streams try the shortest one all the same: no other is known."), "{text}");
    }
}
