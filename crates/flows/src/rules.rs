//! What a node does and when, beside what crate `overlay` decides. In one place, for the real node is to do the same.

use ekiden_units::Time;

/// How often a node asks those nodes for their records that its paths in use run over.
pub const ASKS_USED: Time = Time::secs(2);
/// How often those that it may use.
pub const ASKS_OTHERS: Time = Time::secs(30);
/// A path is in use, and a node asks at all, for so long after the last stream.
pub const IN_USE: Time = Time::secs(60);
/// After so long without an answer a question, or the opening of a stream, has failed.
pub const ANSWERS_WITHIN: Time = Time::secs(2);
/// A leg on which nothing is acknowledged for so long, though there is something to send, has failed.
pub const STALLED: Time = Time::secs(2);
/// A stream that stands still for so long is broken off.
pub const BROKEN: Time = Time::secs(30);
/// What TCP and TLS add to a question and to an answer, in bytes.
pub const OVERHEAD_BYTES: f64 = 100.0;
/// A question by itself, in bytes.
pub const QUESTION_BYTES: f64 = 60.0;
/// How often a stream is opened again where that fails.
pub const OPENS_MOST: u32 = 3;
/// What a stream gets is judged by what it carries from here on, when slow start is over ...
pub const JUDGED_FROM: Time = Time::secs(2);
/// ... to here, or to its end if that is half of it on.
pub const JUDGED_TO: Time = Time::secs(6);
/// A stream that gets this part of what it was believed to get has got it all; one that gets less than this part of what the direct path
/// is known to give has got too little.
pub const ENOUGH: f64 = 0.8;
/// Over how long the load that a node tells is a mean.
pub const LOAD_OVER: Time = Time::secs(20);
