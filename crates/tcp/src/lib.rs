//! A TCP engine without I/O: segments and times in, segments out.
//!
//! Read first: RFC 9293 (the protocol), 5681 (congestion control), 6298 (retransmission timer), 6582 (NewReno), 6675 (SACK),
//! 6937 (proportional rate reduction), 7323 (window scaling, timestamps). One file per concept. A [`Connection`] says how
//! it is driven.
//!
//! Where stacks differ, [`Settings`] says what a connection does; [`Settings::linux`] and its like imitate stacks. Deliberate
//! deviations stand where they are made.

mod connection;
mod info;
mod ranges;
mod receiver;
mod recovery;
mod reset;
mod rtt;
mod scoreboard;
mod sender;
mod settings;

pub use connection::{Connection, Failure, State, Transmit};
pub use info::Info;
pub use receiver::Accepted;
pub use reset::reset_for;
pub use settings::{PartialAcks, Pipe, Reduction, Rto, Settings};
