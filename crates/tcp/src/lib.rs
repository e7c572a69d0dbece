//! A TCP engine without I/O: segments and times in, segments out.
//!
//! Read first: RFC 9293 (the protocol), 5681 (congestion control), 6298 (retransmission timer), 6582 (NewReno), 6675 (SACK),
//! 6937 (proportional rate reduction), 7323 (window scaling, timestamps). One file per concept. A [`Connection`] says how
//! it is driven.
//!
//! Where stacks differ, [`Settings`] says what a connection does; [`Settings::linux`] and its like imitate stacks. Deliberate
//! deviations stand where they are made.
//!
//! Not there:
//! - urgent data and keep-alives (RFC 9293, sections 3.8.5 and 3.8.4), ECN (3168), Fast Open (7413), the path's MTU (1191);
//! - what a peer's report of duplicates tells (RFC 2883, 3708) and F-RTO (5682): a needless timeout is not undone;
//! - payload and FIN of a SYN are left for the peer to send again (RFC 9293, section 3.10.7.3 would keep them);
//! - segments without timestamps are taken although timestamps were agreed (RFC 7323, section 3.2 would drop them);
//! - every measurement has the weight that RFC 6298 means for one in a round trip, although each acknowledgement brings one
//!   (RFC 7323, appendix G), unless [`Settings::rtt_per_window`];
//! - a full acknowledgement brings the window to the slow start threshold, also with little in flight: the burst that RFC 6582,
//!   section 3.2, step 3, warns of may follow;
//! - after a timeout and without SACK, every duplicate acknowledgement lets a new segment go, not two in all (RFC 3042), as in
//!   Linux;
//! - a SYN is given up like any segment, after [`Settings::retries`] (Linux: six); in TIME-WAIT a new one opens nothing.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod buffer;
mod connection;
mod info;
mod offer;
mod probe;
mod proportion;
mod ranges;
mod receiver;
mod recovery;
mod reset;
mod rtt;
mod scoreboard;
mod sender;
mod settings;
mod state;
mod timer;
mod window;

pub use connection::{Connection, Transmit};
pub use info::Info;
pub use receiver::Accepted;
pub use reset::reset_for;
pub use settings::{PartialAcks, Pipe, Reduction, Rto, Settings};
pub use state::{Failure, State};
