//! Closed-form throughput: what a path should give, before anything is sent. One file per paper.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod line;
pub mod s0;
pub mod s3;

pub use line::payload_rate;
