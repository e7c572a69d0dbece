//! What is known of a path, in the direction in which data is sent.

use ekiden_model::rounds::{Policer, Sender};
use ekiden_units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use crate::Estimate;

/// Which way the data goes. The client opens connections, and its node is the first of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From client to server: an upload.
    Forth,
    /// From server to client: a download.
    Back,
}

/// What has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carries {
    /// TCP connections.
    Tcp,
    /// Whole IP packets, as of UDP.
    Packets,
}

/// A path between a client and a server, and where proxies could be.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// For titles and file names.
    pub name: String,
    /// Which way the data goes; what follows is of this direction.
    pub direction: Direction,
    /// The round trip without queues, in seconds.
    pub rtt_s: Estimate,
    /// What the bottleneck carries of IP packets, in bit/s.
    pub rate_bit_s: Estimate,
    /// What waits there at most, in bytes of IP packets.
    pub buffer_bytes: Estimate,
    /// The part of the packets that is lost at random.
    pub loss: Estimate,
    /// If no loss was seen: the greatest loss that may have gone unseen.
    pub unseen_loss: Option<f64>,
    /// A policer in front of the bottleneck.
    pub policer: Option<Policer>,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// The largest send buffer or receive window of the client, in bytes.
    pub client_window: Bytes,
    /// The same of the server.
    pub server_window: Bytes,
    /// The congestion control of the host that sends.
    pub congestion: Sender,
    /// Connections at once.
    pub streams: u32,
    /// User data of a short transfer that is looked at too.
    pub size: Option<Bytes>,
    /// What has to pass.
    pub carries: Carries,
    /// Where proxies could be; empty: wherever they are wanted.
    pub sites: Vec<Site>,
    /// What was assumed because nothing is known, and what else is to be told, a sentence each.
    pub notes: Vec<String>,
}

/// A place where a proxy can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// The node's name.
    pub name: String,
    /// The round trip to the client, in seconds.
    pub client_rtt_s: f64,
    /// The round trip to the server, in seconds.
    pub server_rtt_s: f64,
    /// The part of the packets that is lost on the leg to the client, if that is known.
    pub client_loss: Option<f64>,
    /// The same to the server.
    pub server_loss: Option<f64>,
    /// The line of the site, if it is slower than the path.
    pub rate: Option<BitRate>,
    /// Round trips to other sites, in seconds.
    pub rtts_s: Vec<(String, f64)>,
    /// Where the node's leg listener can be reached.
    pub address: Option<String>,
    /// Of the key that the node has already.
    pub fingerprint: Option<String>,
}

impl Path {
    /// What both hosts' windows leave a direct connection, in bytes.
    pub fn window(&self) -> Bytes {
        self.client_window.min(self.server_window)
    }

    /// Rate × round trip, in bytes.
    pub fn bdp_bytes(&self) -> f64 {
        self.rate_bit_s.value * self.rtt_s.value / 8.0
    }

    /// The round trip between two sites, in seconds, if either says it.
    pub fn between_s(&self, one: &Site, other: &Site) -> Option<f64> {
        let said = |from: &Site, to: &Site| from.rtts_s.iter().find(|(name, _)| *name == to.name).map(|(_, rtt)| *rtt);
        said(one, other).or_else(|| said(other, one))
    }
}
