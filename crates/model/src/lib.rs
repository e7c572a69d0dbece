//! Closed-form throughput: what a path should give, before anything is sent. One file per source. docs/guide/models.md has units and validity of each.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod chain;
mod line;
pub mod loss;
pub mod rounds;
pub mod s0;
pub mod s1;
pub mod s2;
pub mod s3;
pub mod s4;
pub mod slow_start;

pub use line::payload_rate;
