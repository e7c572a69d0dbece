//! The proxies of a scenario: this same program, run in their nodes with configurations made from the scenario.

use std::fmt::Write as _;

use ekiden_scenario::{Node, NodeKind};

use crate::programs::{NodeFile, PLAIN_KEY};
use crate::{Error, Lab, flow};

/// Where a proxy's SOCKS5 listener is.
pub const SOCKS_PORT: u16 = 1080;
/// Where a proxy's HTTP listener is.
pub const HTTP_PORT: u16 = 3128;
/// Where a proxy takes legs from other proxies.
pub const LEG_PORT: u16 = 7000;

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
        self.start_ekiden("proxy", &files)
    }

    fn proxy_config(&self, name: &str, node: &Node) -> Result<String, Error> {
        let own = self.address(name)?;
        // Plain legs: the lab compares ways over a distance, none of them with encryption.
        let plain = PLAIN_KEY;
        let mut text = format!("name = \"{name}\"\n");
        let mut listen = |label: &str, kind: &str, port: u16, more: &str| {
            let _ = write!(text, "\n[listen.{label}]\nkind = \"{kind}\"\naddress = \"{own}:{port}\"\n{more}");
        };
        listen("socks", "socks5", SOCKS_PORT, "open = true\n");
        listen("web", "http", HTTP_PORT, "open = true\n");
        listen("leg", "leg", LEG_PORT, plain);
        for (index, flow) in self.scenario.flows.values().enumerate() {
            let Some((_, rest)) = flow.via.split_first().filter(|(first, _)| *first == name) else { continue };
            let to = format!("{}:{}", self.address(&flow.to)?, flow::receiver_port(index));
            let more = format!("to = \"{to}\"\nvia = {rest:?}\nopen = true\n");
            listen(&format!("flow{index}"), "forward", flow::entry_port(index), &more);
        }
        for (peer, _) in self.scenario.nodes.iter().filter(|(peer, node)| node.kind == NodeKind::Proxy && *peer != name)
        {
            let _ = write!(text, "\n[peer.{peer}]\naddress = \"{}:{LEG_PORT}\"\n{plain}", self.address(peer)?);
        }
        // All addresses there are private, and nobody else is there.
        let _ = write!(text, "\n[exit]\nallow = [\"*\"]\n");
        if !node.next.is_empty() {
            let _ = write!(text, "\n[[route]]\nto = [\"*\"]\nvia = {:?}\n", node.next);
        }
        Ok(text)
    }
}
