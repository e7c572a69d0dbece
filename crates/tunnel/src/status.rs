//! What a running tunnel says of itself, and how it is asked: on a socket that is named after its device.

use ekiden_service::process::Process;
use ekiden_service::status::{StatusError, Whose, ask as ask_status};
use serde::{Deserialize, Serialize};

/// A running tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TunnelStatus {
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// Its network device.
    pub device: String,
    /// The node's name.
    pub name: String,
    /// Packets of the host to addresses that no peer has.
    pub unroutable: u64,
    /// Packets of peers from addresses that the peer may not use.
    pub foreign: u64,
    /// Packets of the host that are not what the kernel says about them.
    pub unreadable: u64,
    /// Packets of peers that the device did not take, or only cut into segments.
    pub device_refused: u64,
    /// Packets of the host that the device dropped because the tunnel had not taken those before; null if the kernel does not say.
    pub device_dropped: Option<u64>,
    /// The nodes at the other ends.
    pub peers: Vec<PeerStatus>,
}

/// A node at another end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Its build, if it has said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// Packets of it from addresses that it may not use.
    pub foreign: u64,
    /// The last of these addresses.
    pub foreign_last: Option<String>,
    /// The connections to it, whether they are there or not.
    pub connections: Vec<ConnectionStatus>,
}

/// One of the connections to a peer. Counts go on when it breaks and comes again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionStatus {
    /// Its number, from 0.
    pub number: u8,
    /// The class of packets that it carries; null if it carries those of no class.
    pub class: Option<String>,
    /// Whether it is there.
    pub is_up: bool,
    /// The address at the other end, while it is there.
    pub remote: Option<String>,
    /// Its congestion control, while it is there.
    pub congestion: Option<String>,
    /// Packets handed to TCP.
    pub packets_sent: u64,
    /// Their bytes, without the tunnel's framing.
    pub bytes_sent: u64,
    /// Packets that came.
    pub packets_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Packets that wait.
    pub queue_packets: u64,
    /// Their bytes.
    pub queue_bytes: u64,
    /// The most packets that have waited.
    pub queue_max_packets: u64,
    /// The most bytes.
    pub queue_max_bytes: u64,
    /// Packets that the queue has dropped.
    pub dropped: u64,
    /// Packets that the queue has marked (ECN).
    pub marked: u64,
    /// Packets lost because the connection was not there, or broke while they waited.
    pub lost: u64,
    /// The smoothed round-trip time, in microseconds; 0 without a connection, as what follows.
    pub rtt_us: u32,
    /// The least round-trip time of any connection of this number.
    pub rtt_min_us: u32,
    /// The largest smoothed round-trip time, looked at ten times a second.
    pub rtt_max_us: u32,
    /// Segments that TCP has sent again.
    pub retransmits: u64,
    /// Retransmission timeouts (Linux 6.7 and later).
    pub timeouts: u64,
    /// What was handed to TCP in the last ten seconds, in bit/s; 0 when nothing was.
    pub sent_bit_s: u64,
    /// What came in them.
    pub received_bit_s: u64,
    /// The payload of a full segment.
    pub mss_bytes: u32,
    /// The kernel's latest estimate of the rate at which it delivers; it stays what it was when nothing is sent.
    pub delivery_bit_s: u64,
    /// The congestion window, in segments.
    pub cwnd: u32,
    /// For how many seconds the connection has been there.
    pub connected_s: Option<u64>,
}

/// The name of the socket on which the tunnel with this device is asked.
pub fn socket_name(device: &str) -> String {
    format!("ekiden/tunnel/{device}")
}

/// Asks the tunnel with this device in this network namespace.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask(device: &str) -> Result<TunnelStatus, StatusError> {
    let nobody = |device: &str| {
        format!("no tunnel with the device '{device}' runs here; `ip link` shows the devices of this network namespace")
    };
    ask_status(&socket_name(device), Whose { kind: "tunnel".into(), name: device.into() }, nobody)
}
