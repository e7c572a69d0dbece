//! What came out of a run: one JSON document, written alike by the lab and by the simulator.
//!
//! The format is described in `docs/guide/record.md`. Names of quantities end in their unit; times count from the start of the
//! run on one clock.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod disturbance;
mod file;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use disturbance::Disturbance;
pub use file::Error;

/// The version of the format that this program writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// The outcome of one run of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// What ran, where and when.
    pub manifest: Manifest,
    /// One entry per flow of the scenario, in its order.
    pub flows: Vec<Flow>,
    /// Round-trip times of the idle network.
    pub paths: Vec<PathDelay>,
    /// What each direction of each link did.
    pub links: Vec<LinkDirection>,
    /// What each direction of each connection of each tunnel did; absent without tunnels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<TunnelDirection>,
    /// The part of the processors' time that a hypervisor took for others while the flows ran, in percent; absent where time
    /// is virtual, or the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_percent: Option<f64>,
    /// The state of the senders over time, ordered by time.
    pub samples: Vec<Sample>,
    /// The queues of links and tunnels over time, ordered by time; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueSample>,
    /// What happened, ordered by time.
    pub events: Vec<Event>,
    /// What ekiden's congestion controls did, on every connection that used one; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
}

/// What ran, where and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// What wrote the record: `lab` or `simulate`.
    pub producer: String,
    /// Version of ekiden.
    pub version: String,
    /// The command line, program first.
    pub command: Vec<String>,
    /// Release of the kernel whose TCP ran; absent when none did.
    pub kernel: Option<String>,
    /// The scenario's seed.
    pub seed: u64,
    /// The scenario's name.
    pub scenario_name: String,
    /// The scenario with every default written out, as a scenario file.
    pub scenario: String,
    /// When the run started, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// How often a simulation noted the state of senders and queues, in microseconds; absent for the lab.
    pub resolution_us: Option<u64>,
}

/// The summary of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its name in the scenario.
    pub name: String,
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The proxies it went through.
    pub via: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes of payload that arrived and were what had been sent, over all connections.
    pub received_bytes: u64,
    /// From the first connection's first SYN to the last byte's arrival.
    pub duration_us: u64,
    /// `received_bytes` over `duration_us`.
    pub goodput_bit_s: u64,
    /// Segments that the senders sent again. Through proxies: on the first leg only.
    pub retransmits: u64,
    /// Least round-trip time that the senders saw. Through proxies: on the first leg only.
    pub rtt_min_us: Option<u64>,
    /// Largest smoothed round-trip time among the samples. Through proxies: on the first leg only.
    pub rtt_max_us: Option<u64>,
}

/// How a flow ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// Everything arrived, unchanged, and was followed by a clean end.
    Complete,
    /// What arrived is not what was sent.
    Differs {
        /// The connection, counted from 0.
        connection: u32,
        /// Offset of the first byte that differs, or at which the stream ended early.
        at_bytes: u64,
    },
    /// A connection was refused, broke, or stood still.
    Failed {
        /// One line for people.
        reason: String,
    },
}

/// Round-trip times of a path on which nothing else was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathDelay {
    /// Where the probes started.
    pub from: String,
    /// Where they were answered.
    pub to: String,
    /// What the scenario says: delays there and back, and the probe's own time on each line.
    pub nominal_us: f64,
    /// Probes sent.
    pub probes: u32,
    /// Probes without an answer.
    pub lost: u32,
    /// Median of the answered; absent if none was.
    pub p50_us: Option<f64>,
    /// 99th percentile of the answered.
    pub p99_us: Option<f64>,
    /// Largest of the answered.
    pub max_us: Option<f64>,
}

/// What one direction of a link did during the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkDirection {
    /// The link's name in the scenario.
    pub link: String,
    /// The end at which packets enter.
    pub from: String,
    /// The end at which they leave.
    pub to: String,
    /// Packets delivered.
    pub packets: u64,
    /// Bytes of IP packets delivered.
    pub bytes: u64,
    /// Packets that the queue dropped: for want of room, or because its discipline chose them.
    pub queue_drops: u64,
    /// Packets lost at random, as the scenario wants it.
    pub random_losses: u64,
    /// Packets that the emulation itself lost. Anything but 0 makes the run invalid.
    pub overruns: u64,
    /// The largest IP packet seen.
    pub largest_packet_bytes: u64,
    /// The most that waited for the line at once, in bytes.
    pub queue_max_bytes: u64,
    /// The most that waited for the line at once, in packets.
    pub queue_max_packets: u64,
    /// How far deliveries were from their computed times; absent where time is virtual, or nothing was delivered.
    pub lateness: Option<Lateness>,
}

/// What one direction of one connection of a tunnel did during the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunnelDirection {
    /// The tunnel's name in the scenario.
    pub tunnel: String,
    /// The connection of the tunnel, counted from 0.
    pub connection: u32,
    /// The end at which packets enter.
    pub from: String,
    /// The end at which they leave.
    pub to: String,
    /// Packets carried from end to end.
    pub packets: u64,
    /// Their bytes, without what the tunnel adds.
    pub bytes: u64,
    /// Packets for which the queue had no room.
    pub queue_drops: u64,
    /// Packets lost because the connection had died.
    pub broken_losses: u64,
    /// The most that waited for the connection's send buffer at once, in bytes.
    pub queue_max_bytes: u64,
    /// The most that waited for the connection's send buffer at once, in packets.
    pub queue_max_packets: u64,
    /// Segments that the end at which packets enter sent again.
    pub retransmits: u64,
    /// Its retransmission timeouts.
    pub timeouts: u64,
    /// Its least round-trip time; absent if it measured none.
    pub rtt_min_us: Option<u64>,
    /// Its largest smoothed round-trip time, looked at as often as the samples; absent if it measured none.
    pub rtt_max_us: Option<u64>,
}

/// Actual less computed time of delivery. Negative is early.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Largest.
    pub max_us: f64,
}

/// A sender's state at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the start of the run.
    pub at_us: u64,
    /// The flow's name.
    pub flow: String,
    /// The connection of the flow, counted from 0.
    pub connection: u32,
    /// Payload that has arrived at the receiver.
    pub received_bytes: u64,
    /// Payload that the sender's peer (the first proxy, if any) has acknowledged.
    pub acked_bytes: u64,
    /// Congestion window.
    pub cwnd_segments: u32,
    /// Slow start threshold; absent while none is set.
    pub ssthresh_segments: Option<u32>,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// The window that the peer advertises.
    pub window_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u64,
    /// Least round-trip time so far.
    pub rtt_min_us: u64,
    /// Segments sent again so far.
    pub retransmits: u64,
    /// Recent rate of delivery.
    pub delivery_bit_s: u64,
}

/// What waited in a queue at one time, and what it had dropped by then.
///
/// A queue is noted when it differs from its last note. Before its first, nothing waits and nothing was dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueSample {
    /// Since the start of the run.
    pub at_us: u64,
    /// The link that it is the queue of; absent if it is a tunnel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The tunnel that it is the queue of; absent if it is a link's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<String>,
    /// The connection of the tunnel, counted from 0; absent if it is a link's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u32>,
    /// The end at which packets enter.
    pub from: String,
    /// Packets that wait; the one on the line does not.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the queue has dropped so far.
    pub drops: u64,
}

/// Something that happened at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Since the start of the run.
    pub at_us: u64,
    /// The flow it concerns, if one.
    pub flow: Option<String>,
    /// The connection of the flow, if one.
    pub connection: Option<u32>,
    /// What: `connected`, `finished`, `failed`; of a gateway's group, `throttled` and `let_go`.
    pub kind: String,
    /// More, for people.
    pub detail: String,
}

/// What ekiden's congestion controls did during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Congestion {
    /// The parameters of each congestion control that was used, by name; without those that could not be read.
    pub parameters: BTreeMap<String, BTreeMap<String, f64>>,
    /// Why there are no events, if that was not to be.
    pub not_traced: Option<String>,
    /// Events that were lost because they came too fast.
    pub lost_events: u64,
    /// What they did, ordered by time.
    pub events: Vec<CongestionEvent>,
}

/// Something that a congestion control did or saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CongestionEvent {
    /// Since the start of the run.
    pub at_us: u64,
    /// The connection, counted from 0 in the order in which they appear.
    pub connection: u32,
    /// The node that sends on it.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// The congestion control.
    pub algorithm: String,
    /// What happened.
    pub kind: CongestionEventKind,
    /// Congestion window after it.
    pub cwnd_segments: u32,
    /// Slow start threshold after it; absent while none is set. At a loss, the one that it leads to.
    pub ssthresh_segments: Option<u32>,
    /// Smoothed round-trip time.
    pub rtt_us: u64,
    /// Whether gentle HSTCP grows and shrinks as Reno.
    pub reno_mode: bool,
}

/// What happened to a connection's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CongestionEventKind {
    /// The connection began to use it.
    Start,
    /// A round trip passed.
    Round,
    /// A loss event.
    Loss,
    /// The retransmission timer ran out.
    Timeout,
    /// Gentle HSTCP changed its mode.
    Mode,
    /// What was taken for a loss was none.
    Undo,
    /// The connection ended.
    End,
}
