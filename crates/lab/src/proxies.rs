//! The proxies of a scenario: this same program, run in their nodes with configurations made from the scenario.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use ekiden_keys::Identity;
use ekiden_scenario::{Node, NodeKind, Order};

use crate::error::building;
use crate::programs::{NodeFile, PLAIN_KEY};
use crate::{Error, Lab, flow};

/// Where a proxy's SOCKS5 listener is.
pub const SOCKS_PORT: u16 = 1080;
/// Where a proxy's HTTP listener is.
pub const HTTP_PORT: u16 = 3128;
/// Where a proxy takes legs from other proxies.
pub const LEG_PORT: u16 = 7000;

/// The file of the nodes of the overlay, beside their configurations.
const MEMBERS: &str = "members.toml";

impl Lab {
    /// Starts `ekiden proxy` on every proxy node and waits until all listen: for SOCKS5 on [`SOCKS_PORT`] and for
    /// HTTP on [`HTTP_PORT`] of the node's address, both leading through the node's `next`; for other proxies on
    /// [`LEG_PORT`]; and for every flow `via` the node first, on a port of its own.
    pub(crate) fn start_proxies(&mut self) -> Result<(), Error> {
        let scenario = self.scenario.clone();
        let proxies = scenario.nodes.iter().filter(|(_, node)| node.kind == NodeKind::Proxy);
        let mut files = Vec::new();
        for (name, node) in proxies {
            files.push(NodeFile { node: name.clone(), label: name.clone(), text: self.proxy_config(name, node)? });
        }
        if files.is_empty() {
            return Ok(());
        }
        let place = self.directory()?;
        self.write_members(&place)?;
        self.start_ekiden("proxy", &place, &files)
    }

    /// Writes a key for each node of the overlay, and the file of them all.
    fn write_members(&self, place: &Path) -> Result<(), Error> {
        let mut text = String::new();
        for name in self.scenario.members() {
            let identity = Identity::generate(&place.join(key_file(name))).map_err(io::Error::other);
            let fingerprint = identity.map_err(building(format!("write the key of node '{name}'")))?.fingerprint();
            let address = self.address(name)?;
            let _ =
                writeln!(text, "[node.{name}]\naddress = \"{address}:{LEG_PORT}\"\nfingerprint = \"{fingerprint}\"\n");
        }
        match text.is_empty() {
            true => Ok(()),
            false => fs::write(place.join(MEMBERS), text).map_err(building("write the file of the overlay's nodes")),
        }
    }

    fn proxy_config(&self, name: &str, node: &Node) -> Result<String, Error> {
        let own = self.address(name)?;
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
            let Some((_, rest)) = flow.via.split_first().filter(|(first, _)| *first == name) else { continue };
            let to = format!("{}:{}", self.address(&flow.to)?, flow::receiver_port(index));
            let way = match flow.via.chosen() {
                // A listener without `via` goes by the routes.
                Some((_, exit)) => {
                    let _ = write!(routes, "\n[[route]]\nto = [\"{to}\"]\nvia = \"auto\"\nexit = \"{exit}\"\n");
                    String::new()
                }
                None => format!("via = {rest:?}\n"),
            };
            let more = format!("to = \"{to}\"\n{way}open = true\n");
            listen(&format!("flow{index}"), "forward", flow::entry_port(index), &more);
        }
        match is_member {
            true => {
                let _ = write!(text, "\n[overlay]\nmembers_file = \"{MEMBERS}\"\n");
            }
            false => {
                let is_other = |(peer, node): &(&String, &Node)| node.kind == NodeKind::Proxy && *peer != name;
                for (peer, _) in self.scenario.nodes.iter().filter(is_other) {
                    let address = self.address(peer)?;
                    let _ = write!(text, "\n[peer.{peer}]\naddress = \"{address}:{LEG_PORT}\"\n{PLAIN_KEY}");
                }
            }
        }
        // All addresses there are private, and no other hosts are there.
        let _ = write!(text, "\n[exit]\nallow = [\"*\"]\n");
        text += &routes;
        if node.order != Order::Even {
            let _ = writeln!(text, "\n[class.bulk]\norder = \"{}\"", node.order.word());
        }
        if !node.next.is_empty() {
            let _ = write!(text, "\n[[route]]\nto = [\"*\"]\nvia = {:?}\n", node.next);
        }
        Ok(text)
    }
}

/// Of a node of the overlay, beside its configuration.
fn key_file(node: &str) -> String {
    format!("{node}.key")
}
