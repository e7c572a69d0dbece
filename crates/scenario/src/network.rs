//! The parts of a network: nodes and their TCP, links, and what stands in the middle.
//!
//! `Pull` has the defaults of a tunnel's queue, for simulated tunnels and for real ones.

use ekiden_link::Discipline;
use ekiden_queue::{Order, Pull, Queue};
use ekiden_units::{Bytes, Fraction, Time};
use serde::{Serialize, Serializer};

use crate::left_out::{is_default_ecn, is_default_forwards, is_default_order, is_default_profile, is_default_separate};
use crate::profile::Profile;

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// What the machine does.
    pub kind: NodeKind,
    /// For a proxy: the proxies that its SOCKS5 and HTTP clients' connections take after it, in order. Empty: straight
    /// to the destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// For a proxy: whether it forwards packets that are not for it.
    #[serde(skip_serializing_if = "is_default_forwards")]
    pub forwards: bool,
    /// For a proxy: how streams share what it sends to another proxy.
    #[serde(skip_serializing_if = "is_default_order")]
    pub order: Order,
    /// The settings of its TCP.
    pub tcp: Tcp,
}

impl Node {
    /// Whether packets that are not for it pass it.
    pub fn forwards_packets(&self) -> bool {
        match self.kind {
            NodeKind::Host => false,
            NodeKind::Router => true,
            NodeKind::Proxy => self.forwards,
        }
    }
}

/// What a node does. Routers forward packets that are not for them, and so do proxies unless they are told not to; hosts do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// An end host.
    Host,
    /// Forwards packets and nothing else.
    Router,
    /// Runs an ekiden proxy.
    Proxy,
}

/// The settings of a node's TCP. The congestion control of a proxy is that of all its legs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tcp {
    /// Whose TCP the simulator imitates.
    #[serde(skip_serializing_if = "is_default_profile")]
    pub profile: Profile,
    /// The congestion control by the kernel's name, such as `reno` or `cubic`.
    pub congestion: String,
    /// The most unacknowledged and unsent data that a socket holds (the kernel auto-tunes below that).
    pub send_buffer: Bytes,
    /// The largest receive window a socket advertises (the kernel auto-tunes below that).
    pub receive_buffer: Bytes,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168).
    #[serde(skip_serializing_if = "is_default_ecn")]
    pub ecn: bool,
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Window scaling (RFC 7323). Without it no window exceeds 65,535 bytes.
    pub window_scaling: bool,
    /// Initial congestion window in segments; `None` leaves the profile's (Linux: 10, RFC 6928).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// The initial slow start threshold; `None`: none (RFC 5681, section 3.1; RFC 2001: 65,535 bytes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ssthresh: Option<Bytes>,
    /// The least retransmission timeout; `None` leaves the profile's (Linux: 200 ms; RFC 6298: 1 s).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_min: Option<Time>,
    /// Whether a sender without timestamps measures the round-trip time of one segment per window only; `None` leaves
    /// the profile's (Linux and the RFCs: every segment).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_per_window: Option<bool>,
}

/// A TCP tunnel. Packets that one end forwards, and whose path leads over the other, travel inside TCP connections
/// between the two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tunnel {
    /// The two nodes, which forward packets. Both directions are alike.
    pub ends: [String; 2],
    /// TCP connections, over which the flows are spread.
    pub connections: u32,
    /// Whether packets that are not TCP have one more connection to themselves.
    #[serde(skip_serializing_if = "is_default_separate")]
    pub separate: bool,
    /// The limit of the queue at each end before each connection, besides the send buffer.
    pub queue: Queue,
    /// Drop tail or FQ-CoDel.
    pub discipline: Discipline,
    /// With FQ-CoDel.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The TCP of the connections, at both ends.
    #[serde(serialize_with = "whole_tcp")]
    pub tcp: Tcp,
}

/// A tunnel's TCP. An omitted key has the value of the node at the first end, so the profile is always written.
fn whole_tcp<S: Serializer>(tcp: &Tcp, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Whole<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<Profile>,
        #[serde(flatten)]
        others: &'a Tcp,
    }
    let profile = is_default_profile(&tcp.profile).then_some(tcp.profile);
    Whole { profile, others: tcp }.serialize(serializer)
}

/// Window balancing (S2): when congestion begins in a connection of a group, the gateway lowers the receive windows in the
/// acknowledgements of the whole group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gateway {
    /// Where it is: a node that forwards the packets of all its flows, in both directions.
    pub node: String,
    /// The flows whose connections are the group.
    pub flows: Vec<String>,
    /// When it does so, and how far.
    pub policy: GatewayPolicy,
    /// The settings of [`GatewayPolicy::Paper`]; `None` with another.
    #[serde(flatten)]
    pub paper: Option<PaperPolicy>,
    /// Whether it is active.
    pub enabled: bool,
}

/// When a gateway lowers windows, and how far, or what it does instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GatewayPolicy {
    /// As the paper does.
    Paper,
    /// When a slow start has overshot, to what the path delivers; the limit then follows the path.
    #[default]
    Delivered,
    /// Limits as those of [`Self::Delivered`]; windows stay, and data waits in the gateway so that it leaves at the limit's rate.
    /// Simulated only, as the next.
    Delay,
    /// Windows stay. Each connection that such a throttling gives a limit has its next new segment marked (RFC 3168).
    Mark,
    /// The same, but the segment is dropped.
    Drop,
}

/// S2's policy: repetitions of an ACK number throttle the group, until that number advances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PaperPolicy {
    /// How many repetitions of one ACK number throttle the group.
    pub repeats: u32,
    /// The window written while throttled, as a part of the flow observed just before.
    pub part: Fraction,
    /// What that flow is.
    pub observes: ObservedFlow,
}

/// What a gateway takes for the flow of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObservedFlow {
    /// The bytes acknowledged in a round trip.
    Acknowledged,
    /// The new data sent in a round trip: in slow start twice as much.
    Sent,
}
