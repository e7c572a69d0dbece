//! TCP segments in IP packets, without I/O: bytes to [`Packet`] and back; and packets, UDP's too, into a pcap file.
//!
//! Read first: RFC 9293 section 3 (header, options, checksum), RFC 7323 sections 2 and 3 (window scale, timestamps),
//! RFC 2018 (SACK).
//!
//! Parsing refuses, with a [`ParseError`]: wrong checksums, lengths that contradict each other, IP fragments, and options of a
//! length that their RFC does not allow (RFC 9293, MUST-7).
//!
//! Strict in both directions, see [`Segment::as_sent`]: MSS, window scale and SACK-permitted count in a SYN only, and
//! a window scale is at most [`MAX_WINDOW_SCALE`].
//!
//! Lenient when parsing:
//! - options of other kinds are skipped (RFC 9293, MUST-6), and of an option given twice the last one counts;
//! - bytes after the end-of-options option are not checked, though they must be zeros (RFC 9293, MUST-69);
//! - reserved bits, the ECN bits, and the acknowledgment number of a segment without ACK are not read;
//! - urgent data is data like any other: URG and the urgent pointer are not read;
//! - combinations of flags, the order of a SACK block's ends and a timestamp's echo without ACK are left to the TCP
//!   engine;
//! - bytes after the end of the IP packet are padding of the link; IP options and IPv6 extension headers are skipped.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod checksum;
mod datagram;
mod ecn;
mod error;
mod ip;
mod options;
mod packet;
pub mod pcap;
mod sack;
mod segment;
mod seq;

pub use datagram::Datagram;
pub use ecn::Ecn;
pub use error::{EmitError, ParseError};
pub use options::{MAX_WINDOW_SCALE, Options, Timestamps};
pub use packet::Packet;
pub use sack::{SackBlock, SackBlocks};
pub use segment::{Flags, Segment};
pub use seq::Seq;
