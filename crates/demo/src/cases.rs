//! What the demo runs: a list of transfers with what a model and the paper expect of them.

use ekiden_scenario::Scenario;
use ekiden_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Serialize};

use crate::protocol::Listener;

/// The window that bounds the end hosts wherever nothing else is said.
pub const WINDOW: Bytes = Bytes::kib(64);
/// RTT between the end hosts in S3's lab, and in its goal.
pub const S3_RTT: Time = Time::ms(50);
/// How long a transfer takes that runs as its model says: hand-shakes and slow start are below 5 % of it.
const S3_DURATION: Time = Time::secs(8);

/// Part of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// S3's lab: one to four even legs.
    Legs,
    /// S3's table: where a single proxy should stand.
    Position,
    /// S0's path with a proxy next to each host.
    Osaka,
    /// What S3 set out to reach.
    Goal,
    /// A ping beside a download, through a tunnel.
    Tunnel,
    /// A long path that loses packets.
    Lossy,
}

impl Act {
    /// Whether all its groups are compared with one direct transfer.
    pub fn has_one_path(self) -> bool {
        matches!(self, Self::Legs | Self::Position)
    }
}

/// One transfer, and what is expected of it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The act it belongs to.
    pub act: Act,
    /// What it shares with others of its act: the number of legs, the position, the path, the hosts' windows.
    pub group: String,
    /// What it does otherwise than the others of its group.
    pub way: &'static str,
    /// Where the client's request goes; `None` for one TCP connection from host to host, which the kernels of the nodes
    /// between forward.
    pub listener: Option<Listener>,
    /// The network.
    pub scenario: Scenario,
    /// Size of the file.
    pub bytes: Bytes,
    /// What a closed form says.
    pub model: BitRate,
    /// The paper's throughput as a multiple of its unsplit one, if it gives one.
    pub paper_gain: Option<f64>,
    /// The node whose congestion window is watched: the sender into the long link.
    pub watch: Option<&'static str>,
}

/// What a [`Case::way`] without relays and tunnels is called.
pub const DIRECT: &str = "direct";

impl Case {
    /// A name for progress bars and errors.
    pub fn title(&self) -> String {
        match self.group == self.way {
            true => self.group.clone(),
            false => format!("{}, {}", self.group, self.way),
        }
    }

    /// Whether neither a relay nor a tunnel takes part.
    pub fn is_direct(&self) -> bool {
        self.listener.is_none() && self.scenario.tunnels.is_empty()
    }
}

/// The size of a file that takes the usual time at this rate.
pub fn size(rate: BitRate) -> Bytes {
    Bytes::mib(Bytes::at(rate, S3_DURATION).0.div_ceil(1 << 20))
}

/// A scenario of the demo's own.
pub fn parse(text: &str) -> Scenario {
    Scenario::parse(text, "demo").expect("the demo's scenarios are valid")
}
