//! The parts of a network: nodes and their TCP, links, and what stands in the middle.

use ekiden_units::{BitRate, Bytes, Fraction, Time};
use serde::Serialize;

use crate::show::{is_default_discipline, is_default_jitter, is_default_loss_burst, is_default_profile, whole_tcp};

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
    /// Whose TCP the simulator imitates.
    #[serde(skip_serializing_if = "is_default_profile")]
    pub profile: Profile,
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
    /// Initial congestion window in segments; `None` leaves the profile's (Linux: 10, RFC 6928).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// The least retransmission timeout; `None` leaves the profile's (Linux: 200 ms; RFC 6298: 1 s).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_min: Option<Time>,
    /// Whether a sender without timestamps measures the round-trip time of one segment per window only; `None` leaves the
    /// profile's (Linux and the RFCs: of each).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_per_window: Option<bool>,
}

/// Whose TCP the simulator imitates: details that standards leave open or that an implementation does its own way. The
/// lab's TCP is the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The Linux kernel.
    Linux,
    /// The RFCs to the letter.
    Rfc,
    /// The network simulator ns-2, which S2 used: its agent Sack1.
    Ns2,
    /// Its agent Linux, TCP-Linux, which brought BIC to ns-2.
    #[serde(rename = "ns2_linux")]
    Ns2Linux,
    /// OPNET Modeler, which S1 used.
    Opnet,
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
    /// Each packet takes longer than `delay` by a random time up to this, evenly distributed; their order is kept.
    #[serde(skip_serializing_if = "is_default_jitter")]
    pub jitter: Time,
    /// What waits for the line at most, whatever the discipline. The packet being sent does not count.
    pub queue: Queue,
    /// Which packets are dropped from the queue.
    #[serde(skip_serializing_if = "is_default_discipline")]
    pub discipline: Discipline,
    /// The part of the packets that is lost at random.
    pub loss: Fraction,
    /// The mean length of a run of lost packets: 1 if each is lost independently of the others; else Gilbert's model (Bell
    /// System Technical Journal 39(5), 1960), in which a run ends after each packet with probability 1 / `loss_burst`.
    /// `loss` is at most `loss_burst` / (`loss_burst` + 1) then, so that a run begins with a probability of at most 1.
    #[serde(skip_serializing_if = "is_default_loss_burst")]
    pub loss_burst: u32,
    /// Largest IP packet in bytes.
    pub mtu: u32,
}

/// How a queue chooses what it drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// What does not fit when it arrives.
    DropTail,
    /// Random early detection (Floyd and Jacobson, 1993).
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
}

/// The limit of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Counted in bytes of IP packets.
    Bytes(Bytes),
    /// Counted in packets.
    Packets(u64),
}

/// A TCP tunnel. Packets that one end forwards, and whose path leads over the other, travel inside TCP connections
/// between the two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tunnel {
    /// The two nodes, which forward packets. Both directions are alike.
    pub ends: [String; 2],
    /// TCP connections, over which the flows are spread.
    pub connections: u32,
    /// What waits at each end before each connection at most, besides what is in its send buffer; drop tail.
    pub queue: Queue,
    /// The TCP of the connections, at both ends.
    #[serde(serialize_with = "whole_tcp")]
    pub tcp: Tcp,
}

/// Window balancing (S2): when a connection of a group repeats an acknowledgement, the receive windows in the
/// acknowledgements of the whole group are made small until it goes on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gateway {
    /// Where it is: a node that forwards the packets of all its flows, in both directions.
    pub node: String,
    /// The flows whose connections are the group.
    pub flows: Vec<String>,
    /// How often one acknowledgement number is repeated before the group is throttled.
    pub repeats: u32,
    /// The window written while throttled, as a part of the flow observed just before.
    pub part: Fraction,
    /// Whether it does anything.
    pub enabled: bool,
}
