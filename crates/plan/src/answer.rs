//! The answer: what a path gives, what each remedy would, and which to take.

use ekiden_model::rounds::Sender;
use serde::Serialize;

use crate::{Direction, Estimate, Forecast, Limit};

/// What a path gives, what each remedy would, and which to take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The path's name.
    pub path: String,
    /// Which way the data goes.
    pub direction: Direction,
    /// The answer, in a sentence or two.
    pub verdict: String,
    /// How long the transfers last for which goodputs are given, in seconds.
    pub seconds: f64,
    /// Without any remedy.
    pub direct: Forecast,
    /// The same with windows that fill the path at both hosts: what is gained without any node, if the hosts can be changed.
    pub larger_windows: Option<LargerWindows>,
    /// What was tried, with fewer proxies first.
    pub remedies: Vec<Remedy>,
    /// Which of the remedies to take, by its number from 0; `None`: none of them.
    pub chosen: Option<usize>,
    /// Whether a tunnel is the way.
    pub tunnel: Advice,
    /// Whether a gateway helps.
    pub gateway: Advice,
    /// What was assumed, and what is not known.
    pub notes: Vec<String>,
}

/// Hosts with larger windows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LargerWindows {
    /// The windows, in bytes.
    pub window_bytes: u64,
    /// What they give.
    pub forecast: Forecast,
}

/// A chain of proxies, and what it gives.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// What it is, in a few words.
    pub name: String,
    /// The proxies, from the client to the server.
    pub nodes: Vec<NodePlan>,
    /// The legs in the same order: one more than there are proxies.
    pub legs: Vec<LegPlan>,
    /// What the chain gives.
    pub forecast: Forecast,
    /// How many times as much as the direct connection.
    pub gain: Estimate,
}

/// A proxy of a chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// The round trip from the client over the nodes before it, in seconds.
    pub from_client_s: f64,
    /// Where its leg listener is, if that was said.
    pub address: Option<String>,
    /// Of its key, if that was said.
    pub fingerprint: Option<String>,
}

/// A leg of a chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LegPlan {
    /// The node nearer to the client, or the client.
    pub from: String,
    /// The node nearer to the server, or the server.
    pub to: String,
    /// Its round trip, in seconds.
    pub rtt_s: f64,
    /// What its line carries, in bit/s of IP packets.
    pub rate_bit_s: f64,
    /// Whether the policer is assumed here.
    pub is_policed: bool,
    /// The part of the packets that is lost on it, if the path's loss is spread by round trips where its place is not known.
    pub loss: f64,
    /// The congestion control of the end that sends.
    #[serde(serialize_with = "name_of")]
    pub congestion: Sender,
    /// Whether a host sends, whose control stays what it is.
    pub host_sends: bool,
    /// Send buffer and receive buffer of its proxies, in bytes.
    pub buffer_bytes: u64,
    /// What it carries by itself, in bit/s.
    pub alone_bit_s: f64,
    /// What bounds it by itself.
    pub limit: Limit,
}

/// Whether to do something, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Whether to do it.
    pub advised: bool,
    /// Why, or why not, in a sentence.
    pub reason: String,
}

impl Plan {
    /// The remedy to take.
    pub fn chosen(&self) -> Option<&Remedy> {
        self.chosen.and_then(|number| self.remedies.get(number))
    }
}

fn name_of<S: serde::Serializer>(sender: &Sender, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(sender.name())
}
