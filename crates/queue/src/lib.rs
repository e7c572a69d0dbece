//! Queues as arithmetic, for links and for connections that carry what others send.
//!
//! [`Codel`] and [`FlowQueue`] decide which of the packets that wait is sent next, marked or dropped; [`TunnelQueue`] is what waits in
//! front of a tunnel's connection. [`Pacing`] and [`Sharing`] say how fast connections may send, so that what is too much waits there
//! and not on the path. Nothing here waits or reads a clock.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod codel;
mod flow_queue;
mod length;
mod limit;
mod pacing;
mod pull;
mod queued;
mod sharing;
mod signals;
mod tunnel_queue;

pub use codel::{Codel, CodelTimes, Fifo};
pub use flow_queue::FlowQueue;
pub use length::QueueLength;
pub use limit::Queue;
pub use pacing::{LOOKING, Pacing, PathSeen, Siblings};
pub use pull::Pull;
pub use queued::Queued;
pub use sharing::{Lengths, Order, Service, Sharing, StreamSeen};
pub use signals::Signals;
pub use tunnel_queue::TunnelQueue;
