//! What is sent over a network.

use ekiden_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Serialize};

use crate::left_out::is_default_transparent;
use crate::via::Via;

/// Connections that a host opens at once. The published experiments with parallel streams start all of theirs together (S2: 32).
const OPENED_AT_ONCE: u32 = 64;
/// The time that a host takes to open each further connection: a socket() and a connect() on one processor.
const OPENING: Time = Time(10_000);

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
    /// The size of the files that it sends one after another, each on a connection of its own. The next one opens when the sender
    /// knows that the receiver has all of the one before. `None`: each connection sends as much as goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Bytes>,
    /// What happens when its time is over; `None` if it has a number of bytes, and so ends when all have arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<FlowEnd>,
    /// When it starts, counted from the start of the run.
    pub start: Time,
    /// The proxies it goes through.
    pub via: Via,
    /// How the receiver fetches the data, if it opens the connection; `None`: the sender opens it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Fetch>,
    /// Whether the sender connects to the receiver's own address, as if there were no proxies: the first one takes the connection as it
    /// passes, and the last one connects with the sender's address.
    #[serde(skip_serializing_if = "is_default_transparent")]
    pub transparent: bool,
    /// How many connections send at once, opened by [`Flow::opens_at`]. Each sends `amount`.
    pub parallel: u32,
}

/// The protocol by which a receiver fetches a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fetch {
    /// HTTP, of an HTTP proxy or of the sender.
    Http,
    /// The same for an FTP URL: an HTTP proxy speaks FTP to the sender.
    Ftp,
    /// HTTP through SOCKS5.
    Socks,
}

/// How much each connection of a flow sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Amount {
    /// A fixed number of bytes.
    Bytes(Bytes),
    /// As much as possible in a fixed time.
    Duration(Time),
}

/// How a flow that lasts for a time ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowEnd {
    /// Its connections are reset when its time is over, counted from its start. What has not arrived by then does not count.
    Cut,
    /// Its senders write nothing more when its time is over. It ends when all that they have written has arrived.
    Drain,
}

impl Flow {
    /// When the connection with this number opens, counted from the start of the run: the first 64 with the flow, the others one
    /// after another, 10 µs apart. All at once would overflow the first queue with SYNs, which no host does to its own network card.
    pub fn opens_at(&self, number: u32) -> Time {
        self.start + Time(OPENING.0 * u64::from((number + 1).saturating_sub(OPENED_AT_ONCE)))
    }

    /// When its connections are reset, counted from the start of the run; `None` if it ends when all has arrived.
    pub fn cut_at(&self) -> Option<Time> {
        match (self.amount, self.end) {
            (Amount::Duration(lasts), Some(FlowEnd::Cut)) => Some(self.start + lasts),
            _ => None,
        }
    }
}

/// Datagrams from one node to another, without congestion control.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Background {
    /// The sender.
    pub from: String,
    /// The receiver, which drops them.
    pub to: String,
    /// Bits per second while it is on, counting IP packets with their headers.
    pub rate: BitRate,
    /// The size of each IP packet.
    pub packet: Bytes,
    /// When it starts, counted from the start of the run.
    pub start: Time,
    /// How long it lasts; `None`: until the run ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Time>,
    /// When it is on; `None`: all the time.
    #[serde(flatten)]
    pub on_off: Option<OnOff>,
}

/// Small packets that the receiver sends back, to see what others feel while the flows run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ping {
    /// Who sends them.
    pub from: String,
    /// Who answers.
    pub to: String,
    /// From one to the next.
    pub interval: Time,
    /// When the first leaves, counted from the start of the run.
    pub start: Time,
}

/// Alternating times of sending and silence, each exponentially distributed. It begins with sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OnOff {
    /// The mean time of sending.
    pub on: Time,
    /// The mean time of silence.
    pub off: Time,
}
