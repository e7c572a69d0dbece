//! The record of a run, the same from the lab and from the simulator: a JSON document, and the series beside it.
//!
//! The format is described in `docs/guide/record.md`. Names of quantities end in their unit; times count from the start
//! of the run on one clock.
//!
//! A run gives what it samples to a [`Series`] while it goes on. [`SeriesWriter`] writes it to Parquet files beside the record,
//! within a budget; [`Kept`] holds it in memory.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod csv;
mod disturbance;
mod file;
mod measurement;
mod overlay;
mod path;
mod sample;
mod series;
mod table;
mod writer;

use std::collections::BTreeMap;

use ekiden_units::quantile;
use serde::{Deserialize, Serialize};

pub use csv::{write_csv, write_csv_head, write_csv_rows};
pub use disturbance::Disturbance;
pub use file::{Error, Rows, remove_partial, series_files, series_of};
pub use measurement::{
    Delays, EndSettings, Latency, Load, LoadSettings, MEASUREMENT_FORMAT, Measurement, PathLimit, Shares, StreamLoad,
    Way,
};
pub use overlay::{Chosen, PathChange, StreamsOnPath};
pub use path::{Finding, Judgement, PATH_FORMAT, PathDirection, PathRecord};
pub use sample::{Cell, QueueSample, Row, Sample, Values};
pub use series::{Kept, Series, SeriesFile, SeriesFiles};
pub use writer::{SAMPLES_MOST, SeriesWriter};

/// The version of the format that this program writes, and the newest it reads.
pub const FORMAT: u32 = 2;

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
    /// Round-trip times of the scenario's pings while the flows ran; absent without pings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pings: Vec<Ping>,
    /// Counters of each direction of each link.
    pub links: Vec<LinkDirection>,
    /// Counters of each direction of each connection of each tunnel; absent without tunnels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<TunnelDirection>,
    /// The paths that nodes of an overlay chose, by node and exit; absent if none chose any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlay: Vec<Chosen>,
    /// The part of the processors' time that a hypervisor took for others while the flows ran, in percent; absent in
    /// simulations, or if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_percent: Option<f64>,
    /// The greatest part of the run, in percent, that a node's program, a sender or a receiver waited for a processor while it had
    /// something to do; absent in simulations, or if the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_percent: Option<f64>,
    /// The series that stand in files beside the record; absent if none were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesFiles>,
    /// Events, ordered by time.
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
    /// The interval between a simulation's samples, in microseconds; absent for the lab.
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
    /// Largest smoothed round-trip time when samples were taken. Through proxies: on the first leg only.
    pub rtt_max_us: Option<u64>,
    /// Of a flow whose connections open within a time: the mean time of one, from its opening to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_mean_us: Option<u64>,
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

/// Round-trip times of an idle path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathDelay {
    /// Where the probes started.
    pub from: String,
    /// Where they were answered.
    pub to: String,
    /// The round-trip time that follows from the scenario: the delays there and back, and the probe's serialization
    /// time on each link.
    pub nominal_us: f64,
    /// Probes sent.
    pub probes: u32,
    /// Probes without an answer.
    pub lost: u32,
    /// Median of the answered probes; absent if none was.
    pub p50_us: Option<f64>,
    /// 99th percentile of the answered probes.
    pub p99_us: Option<f64>,
    /// Largest of the answered probes.
    pub max_us: Option<f64>,
}

/// Round-trip times of small packets while the flows ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ping {
    /// Its name in the scenario.
    pub name: String,
    /// Packets that were answered, or not within five seconds. One that was just under way at the end does not count.
    pub sent: u64,
    /// Those without an answer.
    pub lost: u64,
    /// Median of the answered; absent if none was.
    pub p50_us: Option<f64>,
    /// 99th percentile of the answered, by the nearest rank.
    pub p99_us: Option<f64>,
    /// Largest of the answered.
    pub max_us: Option<f64>,
}

impl Ping {
    /// How long a packet may be under way.
    pub const LATE_US: u64 = 5_000_000;

    /// From the round-trip times of the answered, in any order, and the number of those that were lost.
    pub fn new(name: &str, mut times_us: Vec<f64>, lost: u64) -> Self {
        times_us.sort_by(f64::total_cmp);
        let at = |percent| quantile::nearest(&times_us, percent);
        Self {
            name: name.into(),
            sent: times_us.len() as u64 + lost,
            lost,
            p50_us: at(50),
            p99_us: at(99),
            max_us: times_us.last().copied(),
        }
    }
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
    /// Packets that the policer dropped.
    #[serde(default)]
    pub policer_drops: u64,
    /// Packets that the queue dropped: because it was full, or by its discipline.
    pub queue_drops: u64,
    /// Packets that the queue's discipline marked (ECN) instead of dropping them.
    #[serde(default)]
    pub queue_marks: u64,
    /// Packets lost at random, as the scenario asks.
    pub random_losses: u64,
    /// Packets lost in outages.
    #[serde(default)]
    pub outage_losses: u64,
    /// Packets that the emulation itself lost. Anything but 0 makes the run invalid.
    pub overruns: u64,
    /// The largest IP packet seen.
    pub largest_packet_bytes: u64,
    /// The greatest length of the queue, in bytes.
    pub queue_max_bytes: u64,
    /// The greatest length of the queue, in packets.
    pub queue_max_packets: u64,
    /// How long a packet that was sent had waited in the queue, on average, in microseconds; absent if none was sent.
    pub queue_wait_mean_us: Option<f64>,
    /// How far deliveries were from their computed times; absent in simulations, or if nothing was delivered.
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
    /// Packets that the queue dropped: because it was full, or by its discipline.
    pub queue_drops: u64,
    /// Packets that the queue's discipline marked (ECN) instead of dropping them.
    #[serde(default)]
    pub queue_marks: u64,
    /// Packets lost because the connection failed.
    pub broken_losses: u64,
    /// The most that waited for the connection's send buffer at once, in bytes.
    pub queue_max_bytes: u64,
    /// The most that waited for the connection's send buffer at once, in packets.
    pub queue_max_packets: u64,
    /// Segments retransmitted by the end at which packets enter.
    pub retransmits: u64,
    /// Its retransmission timeouts.
    pub timeouts: u64,
    /// Its least round-trip time; absent if it measured none.
    pub rtt_min_us: Option<u64>,
    /// The largest of its smoothed round-trip times, sampled as often as the senders; absent if it measured none.
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
    /// How long the full queue of this direction takes to drain: packets that are later than that, and leave at once,
    /// overflow a queue like this one. Absent in records from before it was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_drain_us: Option<f64>,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Since the start of the run.
    pub at_us: u64,
    /// The flow it concerns, if one.
    pub flow: Option<String>,
    /// The connection of the flow, if one.
    pub connection: Option<u32>,
    /// Its kind: `connected`, `finished`, `failed`; of a gateway's group, `throttled` and `let_go`, and of a simulated one
    /// `marked`, `dropped` and `delayed`.
    pub kind: String,
    /// Details for people.
    pub detail: String,
}

/// What ekiden's congestion controls did during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Congestion {
    /// The parameters of each congestion control that was used, by name; without those that could not be read.
    pub parameters: BTreeMap<String, BTreeMap<String, f64>>,
    /// Why the events could not be traced, if so.
    pub not_traced: Option<String>,
    /// Events that were lost because they came too fast.
    pub lost_events: u64,
    /// Their events, ordered by time.
    pub events: Vec<CongestionEvent>,
}

/// An event of a connection's congestion control.
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
    /// The retransmission timer expired.
    Timeout,
    /// Gentle HSTCP changed its mode.
    Mode,
    /// A loss event was spurious and is undone.
    Undo,
    /// The connection ended.
    End,
}
