//! The description of a network and of what is sent over it.
//!
//! A [`Scenario`] names nodes, the links between them, what stands in the middle (tunnels, gateways), and the flows and
//! background over all that. The same file is planned, simulated and run in the lab. [`Scenario::load`] parses a TOML
//! file, resolves every default, and refuses what cannot be run, naming file, line and reason. The format is described
//! in `docs/guide/scenario.md`.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod address;
mod error;
mod left_out;
mod link;
mod linux;
mod network;
mod profile;
mod raw;
mod resolve;
mod route;
mod sweep;
mod traffic;
mod via;
mod warn;

use std::path::Path;

use ekiden_congestion::{CongestionParameters, Tunables};
use ekiden_files::{FileKind, read};
use ekiden_units::{Time, random};
use indexmap::IndexMap;
use serde::Serialize;

pub use address::address;
pub use ekiden_link::{Change, Direction, Discipline, Outage, Policer};
pub use ekiden_queue::{Order, Pull, Queue};
pub use error::Error;
pub use link::Link;
pub use network::{Gateway, GatewayPolicy, Node, NodeKind, ObservedFlow, PaperPolicy, Tcp, Tunnel};
pub use profile::Profile;
pub use route::Hop;
pub use sweep::{Point, Setting, Sweep};
pub use traffic::{Amount, Background, Flow, FlowEnd, OnOff, Ping, Sizes};
pub use via::Via;

/// A network, and what is sent over it, with every default resolved and every copy of a node made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// A short name, used in records and file names: letters, digits, `-` and `_`.
    pub name: String,
    /// What the scenario shows, for people.
    pub description: String,
    /// Seeds everything random (loss, payload, on and off times).
    pub seed: u64,
    /// Parameters of ekiden's own congestion controls, by group and name, that differ from their defaults.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub congestion: IndexMap<String, IndexMap<String, f64>>,
    /// Nodes by name, in the order of the file.
    #[serde(rename = "node")]
    pub nodes: IndexMap<String, Node>,
    /// Links by name, in the order of the file.
    #[serde(rename = "link")]
    pub links: IndexMap<String, Link>,
    /// Flows by name, in the order of the file.
    #[serde(rename = "flow")]
    pub flows: IndexMap<String, Flow>,
    /// Tunnels by name, in the order of the file. No two have the same ends.
    #[serde(rename = "tunnel", skip_serializing_if = "IndexMap::is_empty")]
    pub tunnels: IndexMap<String, Tunnel>,
    /// Gateways by name, in the order of the file. No flow is in the group of two.
    #[serde(rename = "gateway", skip_serializing_if = "IndexMap::is_empty")]
    pub gateways: IndexMap<String, Gateway>,
    /// Background by name, in the order of the file.
    #[serde(rename = "background", skip_serializing_if = "IndexMap::is_empty")]
    pub background: IndexMap<String, Background>,
    /// Pings by name, in the order of the file.
    #[serde(rename = "ping", skip_serializing_if = "IndexMap::is_empty")]
    pub pings: IndexMap<String, Ping>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// If the file cannot be read, is not TOML, has unknown keys, or describes something that cannot be run.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::load_with(path, &Point::default())
    }

    /// Reads a scenario file and gives some of its keys other values. Setting a flow's `bytes` takes its `duration`,
    /// `end` and `file` away, and setting its `duration` its `bytes`.
    ///
    /// # Errors
    /// As [`Scenario::load`] for the file as it stands; [`Error::Set`] if it has no such key, node, link or other
    /// table, or what comes out cannot be run.
    pub fn load_with(path: &Path, point: &Point) -> Result<Self, Error> {
        Self::parse_with(&Self::read_text(path)?, &path.display().to_string(), point)
    }

    /// The text of a scenario file, valid or not.
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn read_text(path: &Path) -> Result<String, Error> {
        read(path, FileKind::Scenario).map_err(|source| Error::Unreadable { file: path.display().to_string(), source })
    }

    /// Parses a scenario's text; `file` is the name used in errors.
    ///
    /// # Errors
    /// As [`Scenario::load`], but for reading the file.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        resolve::scenario(text, file)
    }

    /// Parses a scenario's text and gives some of its keys other values; `file` is the name used in errors.
    ///
    /// # Errors
    /// As [`Scenario::load_with`], but for reading the file.
    pub fn parse_with(text: &str, file: &str, point: &Point) -> Result<Self, Error> {
        sweep::scenario_at(text, file, point)
    }

    /// The parameters of [`Scenario::congestion`], with what is computed from them.
    pub fn tunables(&self) -> Tunables {
        let mut parameters = CongestionParameters::default();
        for (group, of_group) in &self.congestion {
            for (name, value) in of_group {
                parameters.set_number(&format!("{group}.{name}"), *value).expect("checked when the file was read");
            }
        }
        Tunables::new(&parameters).expect("checked when the file was read")
    }

    /// The seed of what is random about the flow of this name: when its connections open, and their sizes.
    pub fn seed_of(&self, flow: &str) -> u64 {
        random::derive(self.seed, flow, 0)
    }

    /// The nodes of the overlay, in the order of the file: all proxies, if there is a flow for which they choose paths; else none.
    pub fn members(&self) -> Vec<&str> {
        let is_overlay = self.flows.values().any(|flow| flow.via.chosen().is_some());
        let proxies = self.nodes.iter().filter(|(_, node)| is_overlay && node.kind == NodeKind::Proxy);
        proxies.map(|(name, _)| name.as_str()).collect()
    }

    /// The links a packet takes from one node to another: least delay first, then fewest hops, then order of the
    /// file. Passes only nodes that forward packets on the way. Empty if `from` is `to`; `None` if there is no way.
    pub fn path(&self, from: &str, to: &str) -> Option<Vec<Hop<'_>>> {
        route::path(self, from, to)
    }

    /// Which tunnel takes packets that the node `at` forwards to `to`, by its number, and the end at which they enter: the first
    /// of the file with one end there and the other end on the way. What goes to the other end itself stays outside.
    pub fn tunnel_from(&self, at: &str, to: &str) -> Option<(usize, usize)> {
        let leads_over =
            |over: &str| over != to && self.path(at, to).is_some_and(|path| path.iter().any(|hop| hop.to == over));
        self.tunnels.values().enumerate().find_map(|(number, tunnel)| {
            let end = tunnel.ends.iter().position(|end| end == at)?;
            leads_over(&tunnel.ends[1 - end]).then_some((number, end))
        })
    }

    /// Base round-trip time between two nodes over [`Scenario::path`]: the propagation delays there and back at the start,
    /// without transmission and queueing.
    pub fn base_rtt(&self, from: &str, to: &str) -> Option<Time> {
        let hops = self.path(from, to)?.into_iter().chain(self.path(to, from)?);
        Some(Time(hops.map(|hop| hop.direction().delay.0).sum()))
    }

    /// Warnings, a line each, about what may not be meant as it will be run: keys that do nothing without another one, and
    /// flows that drain while the next flow begins.
    pub fn warnings(&self) -> Vec<String> {
        [warn::useless(self), warn::overlaps(self)].concat()
    }

    /// The scenario as a file with its defaults written out, except those of `profile` and of what few links have. Parses back to an equal scenario.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a resolved scenario holds only tables, texts, numbers and booleans")
    }
}
