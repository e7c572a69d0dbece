//! What a node tells its operator of the overlay.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_overlay::choice::Why;
use ekiden_overlay::known::RTT_UNKNOWN;
use ekiden_overlay::path::{Class, DataDirection, Path};
use ekiden_overlay::places::ExitPaths;
use ekiden_service::status::{StatusError, Whose, ask as ask_status};
use ekiden_service::status_socket;
use ekiden_units::Time;
use serde::{Deserialize, Serialize};

use super::State;
use super::sharing::ShareStatus;
use crate::config::Config;
use crate::config::route::{Auto, Route, Way};

/// A node's overlay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverlayStatus {
    /// The node that tells.
    pub node: String,
    /// How its registration in etcd is, if it has one.
    pub registry: Option<RegistryStatus>,
    /// The nodes of the overlay.
    pub nodes: Vec<NodeStatus>,
    /// Nodes that belong to it and are not there, and the destinations that they are near: streams to these are refused, unless another
    /// node is near them too.
    pub absent: BTreeMap<String, Vec<String>>,
    /// Whether the nodes are known: etcd, or `members_cache`, has told them. Until then streams whose path would be chosen are refused.
    pub is_known: bool,
    /// What is known of legs between them, each as its sender sees it.
    pub legs: Vec<LegStatus>,
    /// Legs that have failed a short while ago, as one of their ends says: who sends, and who receives.
    pub failed: Vec<[String; 2]>,
    /// The routes, in their order.
    pub routes: Vec<RouteStatus>,
    /// Where streams have gone.
    pub exits: Vec<ExitStatus>,
    /// Exits that others near a destination are tried before.
    #[serde(default)]
    pub last: Vec<LastStatus>,
    /// The streams on this node's legs, by their service classes, and the rates to which they are held.
    pub shares: Vec<ShareStatus>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// The destinations that it is for.
    pub to: Vec<String>,
    /// `direct`, `refuse`, `via` or `auto`.
    pub way: String,
    /// The nodes that it names: with `via` the chain, with `auto` those that must be on the way.
    pub nodes: Vec<String>,
    /// With `auto`: the node that connects, if the route says which.
    pub exit: Option<String>,
    /// What paths are chosen for, by its class; `None`: its clients' class says so.
    pub kind: Option<String>,
    /// With `auto`: what it demands of a path, in words; empty for nothing.
    pub policy: String,
}

/// How a node's registration in etcd is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegistryStatus {
    /// The member of etcd in use; none while etcd is away.
    pub endpoint: Option<String>,
    /// For how many seconds that has been so.
    pub since_s: f64,
    /// Whether the node is registered.
    pub registered: bool,
    /// How old the members are, in seconds by the wall clock, while they are those of the file `members_cache`.
    pub from_file_s: Option<f64>,
    /// What is wrong now, if anything.
    pub problem: Option<String>,
    /// Nodes that are admitted or registered and are no members, with the reason.
    pub ignored: BTreeMap<String, String>,
}

/// A node of the overlay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its leg listener; not of the node that tells.
    pub address: Option<String>,
    /// Where it stands.
    pub region: Option<String>,
    /// Its latitude and longitude, in degrees.
    pub at: Option<[f64; 2]>,
    /// Destinations for which it is the exit.
    pub near: Vec<String>,
    /// Whether it relays for other destinations.
    pub relays: bool,
    /// How many seconds ago it last told something.
    pub heard_s: Option<f64>,
    /// How much of what it may relay it relays, as it says, 0 to 1.
    pub load: f64,
    /// How much of what it tells of its rates is believed, 0 to 1.
    pub credit: f64,
    /// For how many seconds no stream goes over it where another path is left, because it held streams back.
    #[serde(default)]
    pub aside_s: Option<f64>,
    /// How many seconds ago this node's leg to it failed, if nothing has succeeded on the leg since.
    #[serde(default)]
    pub failed_s: Option<f64>,
}

/// A leg, as one node sends on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegStatus {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The round trip in milliseconds.
    pub rtt_ms: f64,
    /// What a stream gets in bit/s, if the leg has limited one.
    pub rate_bit_s: Option<u64>,
    /// The most that a stream has carried, in bit/s.
    pub carried_bit_s: u64,
    /// The part of the segments that is sent again, 0 to 1.
    pub loss: f64,
    /// How old that is, in seconds.
    pub age_s: f64,
}

/// Where streams go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitStatus {
    /// The node at which they leave the overlay.
    pub exit: String,
    /// What the path is chosen for.
    pub kind: String,
    /// What the routes of these streams demand of a path, as [`RouteStatus::policy`].
    pub policy: String,
    /// Which way most of their bytes go.
    pub direction: String,
    /// Whether they go to the destination.
    pub is_up: bool,
    /// The path in use: the nodes behind this one.
    pub path: Vec<String>,
    /// For how many seconds it has been in use.
    pub since_s: Option<f64>,
    /// Why.
    pub why: Option<String>,
    /// How often the path has changed.
    pub changes: u64,
    /// Streams so far.
    pub streams: u64,
    /// For how many streams each path was chosen.
    pub taken: Vec<TakenStatus>,
    /// The last paths that came into use.
    pub history: Vec<ChangeStatus>,
    /// What was to choose from when the last stream was opened.
    pub candidates: Vec<CandidateStatus>,
}

/// An exit that comes last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastStatus {
    /// Its name.
    pub exit: String,
    /// The destination for which it did not answer; `None`, that is all, if no path led to it.
    pub to: Option<String>,
    /// For how many seconds it has come last.
    pub since_s: f64,
}

/// A path that streams took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakenStatus {
    /// The nodes behind this one.
    pub path: Vec<String>,
    /// For how many it was chosen, those that tried it among them.
    pub streams: u64,
}

/// A path that came into use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeStatus {
    /// How many seconds ago that was.
    pub ago_s: f64,
    /// The nodes behind this one.
    pub path: Vec<String>,
    /// Why.
    pub why: String,
}

/// A path that could be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateStatus {
    /// The nodes behind this one.
    pub path: Vec<String>,
    /// What a stream gets at least in bit/s; 0 if a leg of it is not known.
    pub sure_bit_s: u64,
    /// What it may get, if legs of unknown rate are good.
    pub hoped_bit_s: u64,
    /// The sum of its round trips in milliseconds; `None` if a leg's is not known.
    pub rtt_ms: Option<f64>,
    /// How old the oldest of what is known is, in seconds.
    pub age_s: f64,
}

/// What the names of all nodes' sockets begin with.
const SOCKETS: &str = "ekiden/overlay/";

/// The name of the socket on which the node with this name is asked.
pub fn socket_name(node: &str) -> String {
    format!("{SOCKETS}{node}")
}

/// Asks a node in this network namespace: the one of this name, or the only one.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask(node: Option<&str>) -> Result<OverlayStatus, StatusError> {
    let node = match node {
        Some(node) => node.to_owned(),
        None => match &status_socket::names(SOCKETS).unwrap_or_default()[..] {
            [] => {
                return Err(StatusError::Nobody(
                    "no node of an overlay runs in this network namespace: none whose configuration has a section [overlay]".into(),
                ));
            }
            [only] => only.clone(),
            several => {
                let names = several.join(", ");
                return Err(StatusError::Nobody(format!(
                    "several nodes of an overlay run here, say which with --node: {names}"
                )));
            }
        },
    };
    let nobody = |node: &str| format!("no node '{node}' of an overlay runs in this network namespace");
    ask_status(&socket_name(&node), Whose { kind: "node".into(), name: node }, nobody)
}

pub(super) fn seconds(time: Time) -> f64 {
    Duration::from(time).as_secs_f64()
}

impl From<ekiden_registry::MembershipStatus> for RegistryStatus {
    fn from(status: ekiden_registry::MembershipStatus) -> Self {
        Self {
            endpoint: status.endpoint,
            since_s: status.since.as_secs_f64(),
            registered: status.registered,
            from_file_s: status.from_file.map(|age| age.as_secs_f64()),
            problem: status.problem.map(|problem| problem.to_string()),
            ignored: status.ignored,
        }
    }
}

pub(super) fn of(state: &State, config: &Config, now: Time) -> OverlayStatus {
    let State { known, places, order, .. } = state;
    let members = config.overlay.iter().flat_map(|overlay| &overlay.members);
    let node = |(name, member): (&String, &crate::config::overlay::OverlayNode)| NodeStatus {
        name: name.clone(),
        address: config.peers.get(name).map(|peer| peer.address.to_string()),
        region: member.region.clone(),
        at: member.at.map(|at| [at.latitude, at.longitude]),
        near: member.near.iter().map(ToString::to_string).collect(),
        relays: member.relays,
        heard_s: known.heard_ago(name, now).map(seconds),
        load: known.load(name),
        credit: known.credit(name, now),
        aside_s: places.aside(name, now).map(seconds),
        failed_s: known.failed_at(name).map(|at| seconds(now.since(at))),
    };
    let nodes: Vec<_> = members.map(node).collect();
    let absent = config.overlay.iter().flat_map(|overlay| &overlay.absent);
    let absent = absent.map(|(name, near)| (name.clone(), near.iter().map(ToString::to_string).collect())).collect();
    let is_known = config.overlay.as_ref().is_some_and(|overlay| overlay.is_known);
    let mut names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    if !names.contains(&known.name()) {
        names.push(known.name());
    }
    let pairs =
        || names.iter().flat_map(|from| names.iter().map(move |to| (*from, *to))).filter(|(from, to)| from != to);
    let leg = |(from, to): (&str, &str)| {
        let leg = known.leg(from, to, now)?;
        Some(LegStatus {
            from: from.into(),
            to: to.into(),
            rtt_ms: leg.rtt.as_ms(),
            rate_bit_s: leg.rate.map(|rate| rate.0),
            carried_bit_s: leg.carried.0,
            loss: leg.loss,
            age_s: seconds(leg.age),
        })
    };
    let legs = pairs().filter_map(leg).collect();
    let failed = pairs().filter(|(from, to)| known.has_failed(from, to, now));
    let failed = failed.map(|(from, to)| [from, to].map(String::from)).collect();
    let change = |(at, path, why): &(Time, Path, Why)| ChangeStatus {
        ago_s: seconds(now.since(*at)),
        path: path.0.clone(),
        why: why.because().into(),
    };
    let place = |(exit, (auto, kind), place): (&str, &(Auto, Class), &ExitPaths)| {
        let current = place.choice.current();
        let direction = places.direction(exit);
        ExitStatus {
            exit: exit.into(),
            is_up: direction == DataDirection::Up,
            kind: kind.word().into(),
            policy: policy(auto),
            direction: match direction {
                DataDirection::Down => "from the destination".into(),
                DataDirection::Up => "to the destination".into(),
            },
            path: current.map_or(Vec::new(), |(path, ..)| path.0.clone()),
            since_s: current.map(|(_, since, _)| seconds(now.since(since))),
            why: current.map(|(.., why)| why.because().into()),
            changes: place.choice.changes(),
            streams: place.streams,
            taken: place
                .taken
                .iter()
                .map(|(path, streams)| TakenStatus { path: path.0.clone(), streams: *streams })
                .collect(),
            history: place.changes.iter().map(change).collect(),
            candidates: place.candidates.iter().map(candidate).collect(),
        }
    };
    let routes = config.routes.iter().map(|of| route(of, config)).collect();
    let exits = places.iter().map(place).collect();
    let node = known.name().into();
    let last = order.last(now).map(|(exit, to, at)| {
        let since_s = seconds(now.since(at));
        LastStatus { exit: exit.into(), to: to.map(Into::into), since_s }
    });
    let last = last.collect();
    OverlayStatus {
        node,
        registry: None,
        nodes,
        absent,
        is_known,
        legs,
        failed,
        routes,
        exits,
        last,
        shares: Vec::new(),
    }
}

fn route(of: &Route, config: &Config) -> RouteStatus {
    let (way, nodes, exit, policy) = match &of.way {
        Way::Direct => ("direct", Vec::new(), None, String::new()),
        Way::Refuse => ("refuse", Vec::new(), None, String::new()),
        Way::Via(chain) => ("via", chain.clone(), None, String::new()),
        Way::Auto(auto) => ("auto", auto.through.clone(), auto.exit.clone(), policy(auto)),
    };
    let to = of.to.written().collect();
    let kind = of.class.as_deref().map(|class| config.classes.get(class).1.kind.word().into());
    RouteStatus { to, way: way.into(), nodes, exit, kind, policy }
}

/// What a route demands of a path, in the words of its keys. Routes that demand other things have other words.
fn policy(of: &Auto) -> String {
    let listed = |key: &str, names: &[String]| (!names.is_empty()).then(|| format!("{key} {}", names.join(", ")));
    let relays = of.relays.as_deref().and_then(|names| match names {
        [] => Some("relays none".into()),
        names => listed("relays", names),
    });
    let most = (of.most_relays != 2).then(|| format!("most_relays {}", of.most_relays));
    let exit = of.exit.as_ref().map(|exit| format!("exit {exit}"));
    let all = [exit, listed("through", &of.through), relays, listed("regions", &of.regions), most];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn candidate(of: &ekiden_overlay::path::Candidate) -> CandidateStatus {
    CandidateStatus {
        path: of.path.0.clone(),
        sure_bit_s: of.sure.0,
        hoped_bit_s: of.hoped.0,
        rtt_ms: (of.rtt < RTT_UNKNOWN).then(|| of.rtt.as_ms()),
        age_s: of.legs.iter().map(|leg| leg.age).max().map_or(0.0, |age| Duration::from(age).as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_route_demands_is_told_in_words() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let auto = Auto { most_relays: 2, ..Auto::default() };
        assert_eq!(policy(&auto), "");
        assert_eq!(policy(&Auto { relays: Some(Vec::new()), ..auto.clone() }), "relays none");
        let all = Auto {
            exit: Some("paris".into()),
            relays: Some(names(&["delhi", "osaka"])),
            through: names(&["delhi"]),
            regions: names(&["asia"]),
            most_relays: 1,
        };
        let words = "exit paris; through delhi; relays delhi, osaka; regions asia; most_relays 1";
        assert_eq!(policy(&all), words);
    }
}
