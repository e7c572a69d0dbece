//! A TCP engine without I/O: segments and times in, segments out.
//!
//! Read first: RFC 9293 (the protocol), 5681 (congestion control), 6298 (retransmission timer), 6582 (NewReno), 6675 (SACK),
//! 3168 (ECN), 6937 (proportional rate reduction), 7323 (window scaling, timestamps). One file per concept. A [`Connection`] says how
//! it is driven.
//!
//! Where stacks differ, [`TcpSettings`] says what a connection does; [`TcpSettings::linux`] and its like imitate stacks. Comments
//! in the code name deliberate deviations from the RFCs.
//!
//! Not implemented:
//! - urgent data and keep-alives (RFC 9293, sections 3.8.5 and 3.8.4), Fast Open (7413), the path's MTU (1191);
//! - D-SACK (RFC 2883, 3708) and F-RTO (5682): a spurious timeout is not undone;
//! - payload and FIN in a SYN: the peer must send them again (RFC 9293, section 3.10.7.3 would keep them);
//! - dropping segments without timestamps after timestamps were negotiated (RFC 7323, section 3.2).
//!
//! Different:
//! - every acknowledgement brings an RTT sample of the full weight that RFC 6298 gives to one sample per round trip (RFC 7323,
//!   appendix G), unless [`TcpSettings::rtt_per_window`];
//! - a full acknowledgement sets the window to the slow start threshold even with little in flight: the burst that RFC 6582,
//!   section 3.2, step 3, warns of may follow;
//! - after a timeout without SACK, every duplicate acknowledgement releases a new segment, as in Linux, not two in all (RFC 3042);
//! - a SYN is retransmitted as often as any segment, [`TcpSettings::retries`] (Linux: six);
//! - of what the peer sends behind gaps, pieces that would make too many ranges are not kept: the peer must send them again;
//! - a segment that lies partly beyond a window that shrank is sent again whole (Linux sends the part that fits).

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod buffer;
mod connection;
mod info;
mod pacing;
mod persist;
mod prr;
mod ranges;
mod rate;
mod receiver;
mod recovery;
mod reset;
mod rtt;
mod scoreboard;
mod send_window;
mod sender;
mod settings;
mod state;
mod timer;
mod tuning;
mod window;

pub use connection::{Connection, Transmit};
pub use info::TcpInfo;
pub use receiver::Accepted;
pub use reset::reset_for;
pub use settings::{Counting, Halves, Idle, PartialAcks, Pipe, Reduction, Rto, TcpSettings};
pub use state::{Failure, State};
