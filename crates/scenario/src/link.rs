//! Links: what a packet meets on the way from one node to the next.

use ekiden_link::Direction;
use serde::{Serialize, Serializer};

/// A link between two nodes. Its directions are independent.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The two nodes.
    pub ends: [String; 2],
    /// From the first to the second.
    pub forth: Direction,
    /// And back.
    pub back: Direction,
}

impl Link {
    /// The direction that begins at an end, 0 or 1.
    pub fn from_end(&self, end: usize) -> &Direction {
        if end == 0 { &self.forth } else { &self.back }
    }

    /// Largest IP packet in bytes.
    pub fn mtu(&self) -> u32 {
        self.forth.mtu
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Alike<'a> {
            ends: &'a [String; 2],
            mtu: u32,
            #[serde(flatten)]
            both: &'a Direction,
        }
        #[derive(Serialize)]
        struct Apart<'a> {
            ends: &'a [String; 2],
            mtu: u32,
            forth: &'a Direction,
            back: &'a Direction,
        }
        let Self { ends, forth, back } = self;
        match forth == back {
            true => Alike { ends, mtu: self.mtu(), both: forth }.serialize(serializer),
            false => Apart { ends, mtu: self.mtu(), forth, back }.serialize(serializer),
        }
    }
}
