//! A tunnel: IP packets between two nodes over one or several TCP connections.
//!
//! A TUN device takes the packets. Each waits in the queue of one connection to the node that has its destination, and is
//! written when TCP is about to send it.

mod allowed;
mod buffer;
mod carry;
mod classes;
mod config;
mod control;
mod decoder;
mod device;
mod ecn;
mod error;
mod frame;
mod host;
mod node;
mod packet;
mod protocol;
mod queue;
mod recent;
mod segments;
pub mod status;
mod tally;
mod tun;
mod vnet;

pub use config::{Config, ConfigError, Peer, sections};
pub use device::check as check_device;
pub use error::StartError;
pub use host::warnings;
pub use node::{Probed, check, probe, run};
pub use recent::WINDOW as RATE_WINDOW;

/// What the fuzzer and the tests of the command line need of the parsers.
pub mod wire {
    pub use crate::decoder::{Decoder, Frame};
    pub use crate::frame::FrameError;
    pub use crate::packet::{Header, clamp_mss};
    pub use crate::segments::split;
    pub use crate::vnet::{VNET_BYTES, VnetError, VnetHeader};
}
