//! The description of a network and of what is sent over it.
//!
//! A [`Scenario`] names nodes, the links between them and the flows over those. The same file is planned,
//! simulated and run in the lab. [`Scenario::load`] parses a TOML file, resolves every default, and refuses what cannot be
//! run, naming file, line and reason. The format is described in `docs/scenario.md`.

mod error;
mod raw;
mod resolve;
mod route;
mod show;
mod sweep;

use std::path::Path;

use ekiden_units::{BitRate, Bytes, Fraction, Time};
use indexmap::IndexMap;
use serde::Serialize;

pub use error::Error;
pub use route::Hop;
pub use sweep::{Point, Setting, Sweep};

/// A network, and the flows over it, with every default resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// A short name, used in records and file names: letters, digits, `-` and `_`.
    pub name: String,
    /// What the scenario shows, for people.
    pub description: String,
    /// Seeds everything random (loss, payload).
    pub seed: u64,
    /// Nodes by name, in the order of the file.
    #[serde(rename = "node")]
    pub nodes: IndexMap<String, Node>,
    /// Links by name, in the order of the file.
    #[serde(rename = "link")]
    pub links: IndexMap<String, Link>,
    /// Flows by name, in the order of the file.
    #[serde(rename = "flow")]
    pub flows: IndexMap<String, Flow>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// What the machine does.
    pub kind: NodeKind,
    /// For a proxy: the proxies that its SOCKS5 and HTTP clients' connections take after it, in order. Empty: straight
    /// to the destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// The settings of its TCP.
    pub tcp: Tcp,
}

/// What a node does. Routers and proxies forward packets that are not for them; hosts do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// An end host.
    Host,
    /// Forwards packets and nothing else.
    Router,
    /// Runs an ekiden proxy, and forwards packets.
    Proxy,
}

/// The settings of a node's TCP. The congestion control of a proxy is that of all its segments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tcp {
    /// The congestion control by the kernel's name, such as `reno` or `cubic`.
    pub congestion: String,
    /// How much unacknowledged and unsent data a socket holds at most (the kernel auto-tunes below that).
    pub send_buffer: Bytes,
    /// The largest receive window a socket advertises (the kernel auto-tunes below that).
    pub receive_buffer: Bytes,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Window scaling (RFC 7323). Without it no window exceeds 65,535 bytes.
    pub window_scaling: bool,
    /// Initial congestion window in segments; `None` leaves the kernel's (10, RFC 6928).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
}

/// A link between two nodes; both directions are alike and independent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// The two nodes it joins.
    pub ends: [String; 2],
    /// Bits per second on the line, counting IP packets with their headers and no framing.
    pub rate: BitRate,
    /// Propagation delay one way.
    pub delay: Time,
    /// What waits for the line at most; drop tail beyond it. The packet being sent does not count.
    pub queue: Queue,
    /// The part of the packets that is lost at random, each independently.
    pub loss: Fraction,
    /// Largest IP packet in bytes.
    pub mtu: u32,
}

/// The limit of a drop-tail queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Counted in bytes of IP packets.
    Bytes(Bytes),
    /// Counted in packets.
    Packets(u64),
}

/// Data sent from one node to another over TCP.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// The sender, which also opens the connection.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// How much, or how long.
    #[serde(flatten)]
    pub amount: Amount,
    /// When it starts, counted from the start of the run.
    pub start: Time,
    /// The proxies it goes through, in order; empty for a direct connection.
    pub via: Vec<String>,
    /// How many connections send at once. Each sends `amount`.
    pub parallel: u32,
}

/// How much each connection of a flow sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Amount {
    /// A fixed number of bytes.
    Bytes(Bytes),
    /// As much as goes in a fixed time.
    Duration(Time),
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// If the file cannot be read, is not TOML, has unknown keys, or describes something that cannot be run.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::load_with(path, &Point::default())
    }

    /// Reads a scenario file and gives some of its keys other values. Setting a flow's `bytes` takes its `duration`
    /// away, and the other way round.
    ///
    /// # Errors
    /// As [`Scenario::load`] for the file as it stands; [`Error::Set`] if it has no such key, node, link or flow, or what
    /// comes out cannot be run.
    pub fn load_with(path: &Path, point: &Point) -> Result<Self, Error> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse_with(&text, &file, point),
            Err(source) => Err(Error::Unreadable { file, source }),
        }
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

    /// The links a packet takes from one node to another: least delay first, then fewest hops, then order of the
    /// file. Passes only routers and proxies on the way. Empty if `from` is `to`; `None` if there is no way.
    pub fn path(&self, from: &str, to: &str) -> Option<Vec<Hop<'_>>> {
        route::path(self, from, to)
    }

    /// Base round-trip time between two nodes over [`Scenario::path`]: the propagation delays there and back,
    /// without transmission and queueing.
    pub fn base_rtt(&self, from: &str, to: &str) -> Option<Time> {
        let path = self.path(from, to)?;
        Some(Time(path.iter().map(|hop| hop.link.delay.0 * 2).sum()))
    }

    /// The scenario as a file in which every default is written out. Parses back to an equal scenario.
    pub fn to_toml(&self) -> String {
        show::to_toml(self)
    }
}
