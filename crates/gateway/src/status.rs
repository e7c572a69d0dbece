//! What a running gateway says of itself, and how it is asked: on a socket that is named after its device.

use ekiden_service::process::Process;
use ekiden_service::status::{StatusError, Whose, ask as ask_status};
use serde::{Deserialize, Serialize};

use crate::pins;

/// A running gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayStatus {
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// Its network device.
    pub device: String,
    /// By what the kernel runs its programs: `tcx` or `clsact`.
    pub hook: String,
    /// What was counted since its programs were loaded.
    pub counters: Counters,
    /// How many streams of IPv4 there is room for.
    pub ipv4_streams: u32,
    /// And of IPv6.
    pub ipv6_streams: u32,
    /// The kernel's memory for both, in bytes.
    pub memory_bytes: u64,
    /// The groups.
    pub groups: Vec<GroupStatus>,
    /// The streams that had packets last, a thousand at most, in the order of their sender and receiver.
    pub streams: Vec<StreamStatus>,
    /// How many more are known.
    pub streams_not_listed: u64,
    /// The last throttlings, a thousand at most, the oldest first.
    pub events: Vec<EventStatus>,
}

/// A throttling begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventStatus {
    /// When, in microseconds of the monotonic clock.
    pub at_us: u64,
    /// `throttled`, or with the policy `paper` later `let_go`.
    pub kind: String,
    /// The group.
    pub group: String,
    /// The address and port of the sender of the stream that caused it.
    pub sender: String,
    /// And of the receiver.
    pub receiver: String,
}

/// Counts of packets and streams.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Packets that passed, of all kinds.
    pub packets: u64,
    /// Packets of streams that are kept in balance, or may come to be.
    pub tracked: u64,
    /// Packets whose window was lowered.
    pub rewritten: u64,
    /// Streams that were given a place.
    pub begun: u64,
    /// Streams that ended.
    pub ended: u64,
    /// SYNs of streams for which there was no place: they are left alone.
    pub full: u64,
    /// Malformed packets, which pass unchanged.
    pub malformed: u64,
    /// Packets with TCP-MD5 or TCP-AO, which cannot be changed.
    pub signed: u64,
    /// Packets of streams whose SYN was seen, but no SYN-ACK that fits it.
    pub without_handshake: u64,
    /// Packets that passed untouched, since the process had not said in time that it is there.
    pub unkept: u64,
    /// Packets that passed untouched, since another one of their stream was being looked at.
    pub busy: u64,
    /// Events for which the buffer had no room.
    pub events_lost: u64,
}

impl From<crate::kernel::Counters> for Counters {
    fn from(counters: crate::kernel::Counters) -> Self {
        Self {
            packets: counters.seen,
            tracked: counters.tracked,
            rewritten: counters.rewritten,
            begun: counters.begun,
            ended: counters.ended,
            full: counters.full,
            malformed: counters.malformed,
            signed: counters.signed,
            without_handshake: counters.without_handshake,
            unkept: counters.unkept,
            busy: counters.busy,
            events_lost: counters.lost,
        }
    }
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its policy: `delivered` or `paper`.
    pub policy: String,
    /// How many of its streams are known.
    pub streams: u64,
    /// How many of these have a limit.
    pub limited: u64,
    /// How often it was throttled.
    pub throttlings: u64,
    /// The stream that began the last throttling; null before the first.
    pub throttled_by: Option<String>,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamStatus {
    /// The group that it is in.
    pub group: String,
    /// The address and port of the sender of its data.
    pub sender: String,
    /// And of the receiver.
    pub receiver: String,
    /// What the gateway does with it: `opening`, `short`, `watched` or `limited`, as in docs/guide/gateway.md.
    pub state: String,
    /// Since its last packet.
    pub idle_s: u64,
    /// Its last round-trip time between gateway and receiver, in microseconds; null if unknown.
    pub rtt_us: Option<u32>,
    /// The least of these.
    pub rtt_min_us: Option<u32>,
    /// Bytes acknowledged in its last round trip.
    pub flow_bytes: Option<u32>,
    /// What its windows are limited to; null if they are not.
    pub limit_bytes: Option<u32>,
}

/// The name of the socket on which the gateway on this device is asked.
pub fn socket_name(device: &str) -> String {
    format!("ekiden/gateway/{device}")
}

/// Asks the gateway on this device in this network namespace.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask(device: &str) -> Result<GatewayStatus, StatusError> {
    let nobody = |device: &str| match pins::has_left(device) {
        true => format!(
            "no gateway runs on the device '{device}' here, but one has left its programs there: `ekiden gateway -c FILE` takes them \
             over or replaces them, `ekiden gateway remove {device}` takes them away"
        ),
        false => format!(
            "no gateway runs on the device '{device}' here; `ip link` shows the devices of this network namespace"
        ),
    };
    ask_status(&socket_name(device), Whose { kind: "gateway on".into(), name: device.into() }, nobody)
}
