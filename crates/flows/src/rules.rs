//! Durations and bytes where the real node has a network. What a node does and when is in crate `overlay`.
//!
//! Only this file has the timeout of an answer, and the time after which a leg counts as stalled.

use ekiden_units::Time;

/// The timeout of a question and of opening a stream.
pub const ANSWERS_WITHIN: Time = Time::secs(2);
/// A leg has failed if nothing is acknowledged on it for this time, although there is something to send.
pub const STALLED: Time = Time::secs(2);
/// A stream that stands still for this time is broken off.
pub const BROKEN: Time = Time::secs(30);
/// What TCP and TLS add to a question and to an answer, in bytes.
pub const OVERHEAD_BYTES: f64 = 100.0;
/// A question that names no node, in bytes.
pub const QUESTION_BYTES: f64 = 5.0;
/// The bytes for each node that a message names.
pub const NAME_BYTES: f64 = 9.0;
/// The maximum number of attempts to open a stream, for policies that choose only one path.
pub const OPENS_MOST: usize = 3;
