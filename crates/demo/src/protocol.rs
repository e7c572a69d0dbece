//! What the demo and the processes that carry out its transfers say to each other: one JSON document a line.

use ekiden_lab::Pinged;
use ekiden_record::Disturbance;
use ekiden_units::Bytes;
use serde::{Deserialize, Serialize};

/// A listener of a proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listener {
    /// For SOCKS5, on this node.
    Socks(String),
    /// For HTTP, on this node.
    Http(String),
}

/// What is to be fetched, and how. Written to the process's standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The network, as a scenario file.
    pub scenario: String,
    /// Where the client's request goes, if not to the server.
    pub listener: Option<Listener>,
    /// Size of the file.
    pub bytes: Bytes,
    /// The node whose congestion window is watched.
    pub watch: Option<String>,
}

/// What the process says on its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// This many bytes have arrived at the client.
    Progress(u64),
    /// The transfer is done.
    Done(Transfer),
}

/// A finished transfer, as the client saw it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Transfer {
    /// Bytes of the file that arrived.
    pub bytes: u64,
    /// From the start of the client to the last byte, in seconds: name look-up, hand-shakes and slow start included.
    pub seconds: f64,
    /// Until the client's connection stood, in seconds.
    pub connect_s: f64,
    /// Until the first byte of the answer, in seconds.
    pub first_byte_s: f64,
    /// SHA-256 of what arrived, in hexadecimal.
    pub sha256: String,
    /// Packets that the emulated queues dropped, all links together.
    pub drops: u64,
    /// What the machine did to the emulation meanwhile; `None` if the figures follow from the network alone.
    pub disturbed: Option<Disturbance>,
    /// Of the watched node, every 100 ms: seconds, congestion window in segments, smoothed RTT in milliseconds.
    pub samples: Vec<[f64; 3]>,
    /// What has arrived, every 200 ms: seconds, MB (10^6 bytes).
    pub arrived: Vec<[f64; 2]>,
    /// The scenario's pings, meanwhile.
    pub pings: Vec<Pinged>,
}

impl Transfer {
    /// Bits per second over the whole time.
    pub fn goodput_bit_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }
}
