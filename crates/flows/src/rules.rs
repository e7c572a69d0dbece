//! What takes how long where the real node has a network, and how much is sent for it. What a node does and when is crate `overlay`'s.
//!
//! After how long an answer has failed, and after how long a leg stands still, is said here alone.

use ekiden_units::Time;

/// After so long without an answer a question, or the opening of a stream, has failed.
pub const ANSWERS_WITHIN: Time = Time::secs(2);
/// A leg on which nothing is acknowledged for so long, though there is something to send, has failed.
pub const STALLED: Time = Time::secs(2);
/// A stream that stands still for so long is broken off.
pub const BROKEN: Time = Time::secs(30);
/// What TCP and TLS add to a question and to an answer, in bytes.
pub const OVERHEAD_BYTES: f64 = 100.0;
/// A question that names no node, in bytes.
pub const QUESTION_BYTES: f64 = 5.0;
/// What each node has that it names.
pub const NAME_BYTES: f64 = 9.0;
/// How often a stream is opened again where that fails, by who chooses one path alone.
pub const OPENS_MOST: usize = 3;
