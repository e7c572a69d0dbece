//! Measuring: loads over real paths, what their TCP says of itself, and what can be concluded from it.

pub mod iperf3;
pub mod limit;
