//! An overlay over days, stream by stream instead of packet by packet: what its nodes' paths give beside what the best would.
//!
//! [`Sites`] describes where nodes stand, how the legs between them are drawn, and what is sent. [`run()`] sends that, second by second, over
//! the paths that a [`Policy`] chooses; the nodes' own choices are those of crate `overlay`, as a real node makes them ([`rules`]). Streams
//! share legs max-min fairly. What no packet is simulated for is left out: queues, retransmissions, and the time that TCP needs to find
//! its share, but for slow start.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod nodes;
mod outcome;
mod packets;
mod peers;
mod random;
pub mod rules;
mod run;
mod share;
pub mod sites;
mod traffic;
mod world;

pub use outcome::{AtEnd, Change, Gains, Opened, Outcome, Policy, RELAYED_SPAN, Rates, Spread};
pub use packets::Packets;
pub use run::run;
pub use sites::Sites;
