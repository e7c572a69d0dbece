//! The tunnels of a scenario: `ekiden tunnel` at both ends of each, with configurations made from the scenario.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use ekiden_record::TunnelDirection;
use ekiden_scenario::{Discipline, Pull, Queue, Scenario, Tcp, Tunnel};
use serde::Deserialize;

use crate::node_file::{NodeFile, PLAIN_KEY, address};
use crate::{Error, Lab};

/// How long the two ends of a tunnel may take until all of their connections are there.
const MEETING_LIMIT: Duration = Duration::from_secs(20);
/// The smallest MTU that the device of a tunnel has.
const MTU_LEAST: u32 = Pull::MTU_LEAST;

/// The TCP of a node: of the tunnel that ends there, or its own.
pub(crate) fn tcp_of<'a>(scenario: &'a Scenario, node: &str) -> Option<&'a Tcp> {
    let tunnel = scenario.tunnels.values().find(|tunnel| tunnel.ends.iter().any(|end| end == node));
    tunnel.map(|tunnel| &tunnel.tcp).or_else(|| scenario.nodes.get(node).map(|node| &node.tcp))
}

/// The TCP of every node, by the node's name.
pub(crate) fn all_tcp(scenario: &Scenario) -> impl Iterator<Item = (&str, &Tcp)> {
    scenario.nodes.keys().filter_map(|node| Some((node.as_str(), tcp_of(scenario, node)?)))
}

/// The subcommand of `ekiden`.
pub(crate) const PROGRAM: &str = "tunnel";

/// The configurations of both ends of every tunnel.
pub(crate) fn files(scenario: &Scenario) -> Vec<NodeFile> {
    let mut files = Vec::new();
    for (number, tunnel) in scenario.tunnels.values().enumerate() {
        // The end that listens first, so that the other one finds it.
        for end in [1, 0] {
            let (node, label) = (tunnel.ends[end].clone(), format!("tunnel-{number}-{end}"));
            files.push(NodeFile { program: PROGRAM, node, label, text: file(scenario, number, tunnel, end) });
        }
    }
    files
}

impl Lab {
    /// Waits until all connections of all tunnels are there.
    pub(crate) fn await_tunnels(&self) -> Result<(), Error> {
        let scenario = &self.scenario;
        let start = Instant::now();
        for (number, (name, tunnel)) in scenario.tunnels.iter().enumerate() {
            while !self.has_met(number, tunnel)? {
                if start.elapsed() > MEETING_LIMIT {
                    let reason = format!("'{name}' has not met its other end within {} s", MEETING_LIMIT.as_secs());
                    return Err(Error::Node { what: "tunnel", node: tunnel.ends[0].clone(), reason });
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn has_met(&self, number: usize, tunnel: &Tunnel) -> Result<bool, Error> {
        for end in &tunnel.ends {
            if !self.tunnel_status(number, end)?.connections().all(|connection| connection.is_up) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What every direction of every connection has done, in the order of the scenario.
    pub(crate) fn tunnel_directions(&self) -> Result<Vec<TunnelDirection>, Error> {
        let mut all = Vec::new();
        for (number, (name, tunnel)) in self.scenario.tunnels.iter().enumerate() {
            let [a, b] = [self.tunnel_status(number, &tunnel.ends[0])?, self.tunnel_status(number, &tunnel.ends[1])?];
            for (near, far) in a.connections().zip(b.connections()) {
                for (from, sent, got) in [(0, near, far), (1, far, near)] {
                    all.push(TunnelDirection {
                        tunnel: name.clone(),
                        connection: sent.number,
                        from: tunnel.ends[from].clone(),
                        to: tunnel.ends[1 - from].clone(),
                        packets: got.packets_received,
                        bytes: got.bytes_received,
                        queue_drops: sent.dropped,
                        queue_marks: sent.marked,
                        broken_losses: sent.lost,
                        queue_max_bytes: sent.queue_max_bytes,
                        queue_max_packets: sent.queue_max_packets,
                        retransmits: sent.retransmits,
                        timeouts: sent.timeouts,
                        rtt_min_us: Some(sent.rtt_min_us).filter(|us| *us > 0),
                        rtt_max_us: Some(sent.rtt_max_us).filter(|us| *us > 0),
                    });
                }
            }
        }
        Ok(all)
    }

    /// Asks the tunnel with this number at this node.
    fn tunnel_status(&self, number: usize, node: &str) -> Result<TunnelStatus, Error> {
        self.ask(node, "tunnel", &[&device(number)])
    }
}

/// The configuration of one end of a scenario's tunnel, `ends[end]`.
fn file(scenario: &Scenario, number: usize, tunnel: &Tunnel, end: usize) -> String {
    let address = |node: &str| address(scenario, node);
    let port = port(number);
    let mtu = mtu(scenario, tunnel);
    let [own, other] = [end, 1 - end].map(|end| &tunnel.ends[end]);
    let mut text = format!("name = \"{own}\"\n\n[device]\nname = \"{}\"\nmtu = {mtu}\n", device(number));
    // Nothing is sent to it: a device must have an address.
    let _ = writeln!(text, "addresses = [\"10.78.{number}.{}/32\"]", end + 1);
    if end == 1 {
        let _ = write!(text, "\n[listen]\naddress = \"{}:{port}\"\n{PLAIN_KEY}", address(own));
    }
    let _ = writeln!(text, "\n[tcp]\ncongestion = \"{}\"", tunnel.tcp.congestion);
    let limit = match tunnel.queue {
        Queue::Bytes(bytes) => bytes.0,
        Queue::Packets(packets) => packets.saturating_mul(mtu.into()),
    };
    let discipline = if tunnel.discipline == Discipline::FqCodel { "fq_codel" } else { "drop_tail" };
    let _ = write!(text, "\n[queue]\ndiscipline = \"{discipline}\"\nlimit = \"{limit}B\"\n");
    if let Some(pull) = tunnel.pull {
        let _ = write!(
            text,
            "target = \"{}\"\ninterval = \"{}\"\nunsent = \"{}\"\npaced = {}\n",
            pull.target, pull.interval, pull.unsent, pull.paced
        );
    }
    let shared = if tunnel.separate { 1 } else { tunnel.connections };
    let _ = write!(text, "\n[peer.{other}]\n{PLAIN_KEY}connections = {shared}\n");
    if end == 0 {
        let _ = writeln!(text, "address = \"{}:{port}\"", address(other));
    }
    let mut allowed = Vec::new();
    for node in scenario.nodes.keys() {
        if scenario.tunnel_from(own, node) == Some((number, end)) {
            allowed.push(format!("{}/32", address(node)));
        }
    }
    let _ = writeln!(text, "allowed = {allowed:?}");
    if tunnel.separate {
        let many = tunnel.connections;
        let _ = write!(text, "\n[[peer.{other}.class]]\nname = \"tcp\"\nprotocol = \"tcp\"\nconnections = {many}\n");
    }
    text
}

/// The network device of a tunnel, at both ends.
fn device(number: usize) -> String {
    format!("tunnel{number}")
}

/// Where the listening end of a tunnel listens.
pub(crate) fn port(number: usize) -> u16 {
    7_100_u16.wrapping_add((number % 10_000) as u16)
}

/// The largest packets that reach the tunnel.
fn mtu(scenario: &Scenario, tunnel: &Tunnel) -> u32 {
    let at_an_end = scenario.links.values().filter(|link| link.ends.iter().any(|end| tunnel.ends.contains(end)));
    at_an_end.map(|link| link.mtu()).max().unwrap_or_default().max(MTU_LEAST)
}

/// What `ekiden tunnel status --json` says, as far as the lab needs it.
#[derive(Deserialize)]
struct TunnelStatus {
    peers: Vec<PeerStatus>,
}

#[derive(Deserialize)]
struct PeerStatus {
    connections: Vec<ConnectionStatus>,
}

#[derive(Deserialize)]
struct ConnectionStatus {
    number: u32,
    is_up: bool,
    packets_received: u64,
    bytes_received: u64,
    dropped: u64,
    marked: u64,
    lost: u64,
    queue_max_bytes: u64,
    queue_max_packets: u64,
    retransmits: u64,
    timeouts: u64,
    rtt_min_us: u64,
    rtt_max_us: u64,
}

impl TunnelStatus {
    fn connections(&self) -> impl Iterator<Item = &ConnectionStatus> {
        self.peers.iter().flat_map(|peer| &peer.connections)
    }
}
