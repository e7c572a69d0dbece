//! The proxies of a scenario: this same program, run in their nodes with configurations made from the scenario.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::{fs, io};

use ekiden_keys::Identity;
use ekiden_scenario::{Flow, Node, NodeKind, Program, Scenario};

use crate::error::building;
use crate::network::device_name;
use crate::node_file::{NodeFile, PLAIN_KEY, address};
use crate::ports::{HTTP_PORT, LEG_PORT, SOCKS_PORT, TAKEN_PORT, data_port, entry_port, flow_port};
use crate::{Error, tunnels};

/// The file of the nodes of the overlay, beside their configurations.
const MEMBERS: &str = "members.toml";

/// The configuration of every node that is an ekiden proxy: it listens for SOCKS5 on [`SOCKS_PORT`] and for HTTP on [`HTTP_PORT`] of the
/// node's address, both leading through the node's `next`; for other proxies on [`LEG_PORT`]; and for every flow `via` the node first, on a
/// port of its own.
pub(crate) fn files(scenario: &Scenario) -> Vec<NodeFile> {
    let is_own = |node: &Node| node.kind == NodeKind::Proxy && node.program == Program::Ekiden;
    let proxies = scenario.nodes.iter().filter(|(_, node)| is_own(node));
    let file = |(name, node): (&String, &Node)| NodeFile {
        program: "proxy",
        node: name.clone(),
        label: format!("proxy-{name}"),
        text: Proxies { scenario }.file(name, node),
    };
    proxies.map(file).collect()
}

/// Writes a key for each node of the overlay, and the file of them all.
pub(crate) fn write_members(scenario: &Scenario, place: &Path) -> Result<(), Error> {
    let mut text = String::new();
    for name in scenario.members() {
        let identity = Identity::generate(&place.join(key_file(name))).map_err(io::Error::other);
        let fingerprint = identity.map_err(building(format!("write the key of node '{name}'")))?.fingerprint();
        let address = address(scenario, name);
        let _ = writeln!(text, "[node.{name}]\naddress = \"{address}:{LEG_PORT}\"\nfingerprint = \"{fingerprint}\"\n");
    }
    match text.is_empty() {
        true => Ok(()),
        false => fs::write(place.join(MEMBERS), text).map_err(building("write the file of the overlay's nodes")),
    }
}

/// The proxies of a scenario.
struct Proxies<'a> {
    scenario: &'a Scenario,
}

impl Proxies<'_> {
    fn address(&self, node: &str) -> Ipv4Addr {
        address(self.scenario, node)
    }

    fn file(&self, name: &str, node: &Node) -> String {
        let own = self.address(name);
        let is_member = self.scenario.members().contains(&name);
        // Plain legs: the lab compares ways over a distance, none of them with encryption. Nodes of an overlay know each other by their keys,
        // and so have TLS.
        let security = if is_member { "" } else { PLAIN_KEY };
        let mut text = format!("name = \"{name}\"\n");
        if is_member {
            let _ = writeln!(text, "key_file = \"{}\"", key_file(name));
        }
        // The scenario's, which the routes have.
        text += "\n[tcp]\ncongestion = \"kernel\"\n";
        let mut listen = |label: &str, kind: &str, port: u16, more: &str| {
            let _ = write!(text, "\n[listen.{label}]\nkind = \"{kind}\"\naddress = \"{own}:{port}\"\n{more}");
        };
        listen("socks", "socks5", SOCKS_PORT, "open = true\n");
        listen("web", "http", HTTP_PORT, "open = true\n");
        listen("leg", "leg", LEG_PORT, security);
        let mut routes = String::new();
        for (index, flow) in self.scenario.flows.values().enumerate() {
            if flow.fetch.is_some() {
                routes += &self.route_back(name, index, flow);
                continue;
            }
            let Some((_, rest)) = flow.via.split_first().filter(|(first, _)| *first == name) else { continue };
            let to = format!("{}:{}", self.address(&flow.to), flow_port(index));
            if flow.transparent {
                if !rest.is_empty() {
                    let _ = write!(routes, "\n[[route]]\nto = [\"{to}\"]\nvia = {rest:?}\n");
                }
                continue;
            }
            let way = match flow.via.chosen() {
                // A listener without `via` goes by the routes.
                Some((_, exit)) => {
                    let _ = write!(routes, "\n[[route]]\nto = [\"{to}\"]\nvia = \"auto\"\nexit = \"{exit}\"\n");
                    String::new()
                }
                None => format!("via = {rest:?}\n"),
            };
            let more = format!("to = \"{to}\"\n{way}open = true\n");
            listen(&format!("flow{index}"), "forward", entry_port(index), &more);
        }
        text += &self.taken(name);
        match is_member {
            true => {
                let _ = write!(text, "\n[overlay]\nmembers_file = \"{MEMBERS}\"\n");
            }
            false => {
                let is_other = |(peer, node): &(&String, &Node)| node.kind == NodeKind::Proxy && *peer != name;
                for (peer, _) in self.scenario.nodes.iter().filter(is_other) {
                    let address = self.address(peer);
                    let _ = write!(text, "\n[peer.{peer}]\naddress = \"{address}:{LEG_PORT}\"\n{PLAIN_KEY}");
                }
            }
        }
        // All addresses there are private, and no other hosts are there.
        let _ = write!(text, "\n[exit]\nallow = [\"*\"]\n");
        let behind = self
            .scenario
            .flows
            .values()
            .filter(|flow| flow.transparent && flow.via.last().is_some_and(|last| last == name));
        let mut clients: Vec<String> = behind.map(|flow| format!("{}/32", self.address(&flow.from))).collect();
        clients.sort();
        clients.dedup();
        if !clients.is_empty() {
            let _ = writeln!(text, "client_addresses = {clients:?}");
        }
        text += &routes;
        if !node.next.is_empty() {
            let _ = write!(text, "\n[[route]]\nto = [\"*\"]\nvia = {:?}\n", node.next);
        }
        text
    }

    /// The listener of a proxy that takes the connections of transparent flows as they pass, and leaves all others alone.
    fn taken(&self, name: &str) -> String {
        let is_taken = |flow: &Flow| flow.transparent && flow.via.first().is_some_and(|first| first == name);
        let mut devices = Vec::new();
        let mut others = vec![SOCKS_PORT, HTTP_PORT, LEG_PORT];
        others.extend((0..self.scenario.tunnels.len()).map(tunnels::port));
        for (index, flow) in self.scenario.flows.values().enumerate() {
            if is_taken(flow) {
                let path = self.scenario.path(&flow.from, &flow.to).unwrap_or_default();
                let number = |link: &str| self.scenario.links.get_index_of(link).unwrap_or_default();
                devices.extend(
                    path.iter().filter(|hop| hop.to == name).map(|hop| device_name(hop.name, number(hop.name))),
                );
            } else {
                others.extend([entry_port(index), flow_port(index), data_port(index)]);
            }
        }
        if devices.is_empty() {
            return String::new();
        }
        devices.sort();
        devices.dedup();
        let except: Vec<String> = others.iter().map(|port| format!("*:{port}")).collect();
        format!(
            "\n[listen.taken]\nkind = \"transparent\"\naddress = \"127.0.0.1:{TAKEN_PORT}\"\ninterfaces = {devices:?}\nexcept = {except:?}\n"
        )
    }

    /// The route of a proxy to which the receiver of a fetched flow connects, over the other proxies to the sender.
    fn route_back(&self, name: &str, index: usize, flow: &Flow) -> String {
        let others: Vec<&String> = match flow.via.split_last() {
            Some((last, others)) if last == name && !others.is_empty() => others.iter().rev().collect(),
            _ => return String::new(),
        };
        let sender = self.address(&flow.from);
        let to = [flow_port(index), data_port(index)].map(|port| format!("{sender}:{port}"));
        format!("\n[[route]]\nto = {to:?}\nvia = {others:?}\n")
    }
}

/// Of a node of the overlay, beside its configuration.
fn key_file(node: &str) -> String {
    format!("{node}.key")
}
