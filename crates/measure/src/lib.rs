//! Measuring: loads over real paths, what their TCP says of itself, and what can be concluded from it.

pub mod jitter;
pub mod limit;
pub mod spread;
pub mod watch;
pub mod watch_record;
