//! The gateways of a scenario: `ekiden gateway` on the device by which their flows leave, with configurations made from the scenario.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use ekiden_record::Event;
use ekiden_scenario::{Flow, Gateway, GatewayPolicy, ObservedFlow, Scenario};
use serde::Deserialize;

use crate::error::building;
use crate::network::device_name;
use crate::node_file::{NodeFile, address};
use crate::ports::flow_port;
use crate::{Error, Lab};

/// What of a gateway's flows its configuration tells.
pub(crate) struct Watched<'a> {
    /// The link by which their data leaves its node, and their ACKs come.
    link: &'a str,
    /// Between these nodes.
    pairs: Vec<(&'a str, &'a str)>,
    /// The ports of their receivers; `None` with proxies, whose ports are theirs.
    ports: Option<RangeInclusive<u16>>,
}

/// What a gateway watches; `Err` says why a real one cannot, and what to do instead.
pub(crate) fn watched<'a>(scenario: &'a Scenario, gateway: &'a Gateway) -> Result<Watched<'a>, &'static str> {
    let (mut found, mut pairs, mut ports) = (None, Vec::new(), Some(Vec::new()));
    for name in &gateway.flows {
        let Some((index, _, flow)) = scenario.flows.get_full(name) else { continue };
        for (from, to) in stretches(flow) {
            let (out, back) =
                (scenario.path(from, to).unwrap_or_default(), scenario.path(to, from).unwrap_or_default());
            let Some(leaves) = out.iter().skip(1).find(|hop| hop.from == gateway.node) else { continue };
            if !back.iter().any(|hop| hop.name == leaves.name) {
                return Err("let data and acknowledgements take the same link");
            }
            if *found.get_or_insert(leaves.name) != leaves.name {
                return Err("give flows that leave its node by different links a gateway each");
            }
            pairs.push((from, to));
        }
        ports = ports.filter(|_| flow.via.is_empty());
        ports.iter_mut().for_each(|ports| ports.push(flow_port(index)));
    }
    let Some(link) = found else { return Err("put it on a node that the flows pass") };
    let ports = ports.and_then(|ports| Some(*ports.iter().min()?..=*ports.iter().max()?));
    let is_foreign = |(index, (name, flow)): (usize, (&String, &Flow))| {
        let is_inside = ports.as_ref().is_none_or(|ports| ports.contains(&flow_port(index)));
        !gateway.flows.contains(name) && is_inside && stretches(flow).any(|stretch| pairs.contains(&stretch))
    };
    if scenario.flows.iter().enumerate().any(is_foreign) {
        return Err("let other flows between the same nodes come before or after its own in the file");
    }
    Ok(Watched { link, pairs, ports })
}

/// From each end of one of its connections to the other.
fn stretches(flow: &Flow) -> impl Iterator<Item = (&str, &str)> {
    let stops = || std::iter::once(&flow.from).chain(&flow.via).chain(std::iter::once(&flow.to));
    stops().zip(stops().skip(1)).map(|(from, to)| (from.as_str(), to.as_str()))
}

/// The configuration of every gateway that is enabled.
pub(crate) fn files(scenario: &Scenario) -> Vec<NodeFile> {
    let mut files = Vec::new();
    for (number, (name, gateway)) in scenario.gateways.iter().enumerate() {
        if let Some((device, watched)) = on_device(scenario, gateway) {
            let text = file(scenario, name, gateway, &device, &watched);
            let label = format!("gateway-{number}");
            files.push(NodeFile { program: "gateway", node: gateway.node.clone(), label, text });
        }
    }
    files
}

fn file(scenario: &Scenario, name: &str, gateway: &Gateway, device: &str, watched: &Watched) -> String {
    let addresses = |nodes: &mut dyn Iterator<Item = &str>| {
        let mut addresses: Vec<String> = nodes.map(|node| address(scenario, node).to_string()).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    };
    let sources = addresses(&mut watched.pairs.iter().map(|pair| pair.0));
    let destinations = addresses(&mut watched.pairs.iter().map(|pair| pair.1));
    let mut text =
        format!("device = {device:?}\n\n[group.{name}]\nsources = {sources:?}\ndestinations = {destinations:?}\n");
    if let Some(ports) = &watched.ports {
        let _ = writeln!(text, "destination_ports = \"{}-{}\"", ports.start(), ports.end());
    }
    let policy = if gateway.policy == GatewayPolicy::Paper { "paper" } else { "delivered" };
    let _ = writeln!(text, "policy = \"{policy}\"");
    if let Some(paper) = &gateway.paper {
        let observes = if paper.observes == ObservedFlow::Sent { "sent" } else { "acknowledged" };
        let _ = writeln!(text, "repeats = {}\npart = \"{}\"\nobserves = \"{observes}\"", paper.repeats, paper.part);
    }
    text
}

impl Lab {
    /// What gateways have found since `origin_us` of the monotonic clock.
    pub(crate) fn gateway_events(&self, origin_us: u64) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        for (name, gateway) in &self.scenario.gateways {
            let Some((device, _)) = on_device(&self.scenario, gateway) else { continue };
            let status: GatewayStatus = self.ask(&gateway.node, "gateway", &[&device])?;
            for told in status.events.into_iter().filter(|told| told.at_us >= origin_us) {
                let port = told.receiver.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
                let mut flows = self.scenario.flows.keys().enumerate();
                let flow = flows.find(|(index, _)| Some(flow_port(*index)) == port).map(|(_, flow)| flow.clone());
                let (at_us, kind) = (told.at_us - origin_us, told.kind);
                let detail = format!("gateway {name}: {} to {}", told.sender, told.receiver);
                events.push(Event { at_us, flow, connection: None, kind, detail });
            }
        }
        Ok(events)
    }

    /// Asks a running `ekiden COMMAND` for its status.
    pub(crate) fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        node: &str,
        what: &'static str,
        which: &[&str],
    ) -> Result<T, Error> {
        let program = std::env::current_exe().map_err(building("find this program"))?;
        let mut command = self.command(node, &program)?;
        command.args([what, "status", "--json"]).args(which);
        let asked = command.output().map_err(building(format!("ask the {what} on node '{node}'")))?;
        serde_json::from_slice(&asked.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&asked.stderr).trim().to_owned();
            Error::Node { what, node: node.into(), reason: format!("it does not say how it is: {said}") }
        })
    }
}

/// The device of a gateway that is enabled, and what it watches.
fn on_device<'a>(scenario: &'a Scenario, gateway: &'a Gateway) -> Option<(String, Watched<'a>)> {
    let watched = watched(scenario, gateway).ok().filter(|_| gateway.enabled)?;
    Some((device_name(watched.link, scenario.links.get_index_of(watched.link)?), watched))
}

/// What `ekiden gateway status --json` says, as far as the lab needs it.
#[derive(Deserialize)]
struct GatewayStatus {
    events: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    at_us: u64,
    kind: String,
    sender: String,
    receiver: String,
}
