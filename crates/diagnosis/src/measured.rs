//! What both ends saw of a load, together.

use std::net::SocketAddr;

use ekiden_record::{EndSettings, Way};

use crate::hole::{self, Hole};
use crate::latency::Answer;
use ekiden_measure_proto::seen::{LoadSeen, Side};
use ekiden_measure_proto::settings::Asked;

/// What both ends saw of a load.
#[derive(Debug)]
pub struct Measured {
    /// This end's address.
    pub from: SocketAddr,
    /// What the server's end is like.
    pub far: EndSettings,
    /// This end's streams.
    pub near_seen: Vec<LoadSeen>,
    /// The server's.
    pub far_seen: Vec<LoadSeen>,
    /// The probes.
    pub answers: Vec<Answer>,
    /// When the load began, by this end's monotonic clock.
    pub began_ns: u64,
    /// When this end's part of it was over.
    pub ended_ns: u64,
    /// What the server lets through in each direction, in bytes.
    pub bytes_most: Option<u64>,
}

impl Measured {
    /// The black hole that the load shows in a direction.
    pub fn hole(&self, way: Way) -> Option<Hole> {
        hole::of_way(way, &self.near_seen, &self.far_seen, &self.answers, self.began_ns)
    }

    /// The directions in which a stream has brought its part of `most` bytes.
    pub fn reached(&self, most: u64, asked: &Asked) -> Vec<Way> {
        let received = |way: Way| if Side::Near.sends(way) { &self.far_seen } else { &self.near_seen };
        let of = |way| received(way).iter().filter(move |seen| seen.way == way);
        let bytes = |way| of(way).map(|seen| seen.end.bytes).max().unwrap_or(0);
        let each = most / u64::from(asked.get().streams.max(1));
        asked.get().ways.iter().copied().filter(|way| bytes(*way) >= each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_measure_proto::message::StreamEnd;

    #[test]
    fn a_server_has_ended_a_load_whose_receiver_has_all_that_it_lets_through() {
        let asked = Asked::default();
        let seen = |bytes| {
            vec![LoadSeen {
                way: Way::Forth,
                stream: 0,
                end: StreamEnd { bytes, ..StreamEnd::default() },
                rows: Vec::new(),
            }]
        };
        let with = |sent, received| Measured {
            from: ([127, 0, 0, 1], 1).into(),
            far: EndSettings::default(),
            near_seen: seen(sent),
            far_seen: seen(received),
            answers: Vec::new(),
            began_ns: 0,
            ended_ns: 0,
            bytes_most: None,
        };
        assert_eq!(with(1_000_000, 1_000_000).reached(1_000_000, &asked), [Way::Forth]);
        // Handed over, and still in a buffer when time ended it.
        assert_eq!(with(1_000_000, 600_000).reached(1_000_000, &asked), []);
    }
}
