//! Measuring: loads over real paths, what their TCP says of itself, and what can be concluded from it.
//!
//! [`server::run`] answers, [`client::measure`] asks. A control connection says what is to be measured ([`message`]); each stream of the
//! load, and the probes beside it, have connections of their own, which the end that asks always opens.

mod budget;
pub mod characterise;
pub mod client;
mod control;
mod deadline;
mod episodes;
mod error;
pub mod gathered;
mod hole;
pub mod iperf3;
pub mod jitter;
pub mod latency;
pub mod limit;
pub mod load;
pub mod measured;
pub mod message;
pub mod outcome;
pub mod path;
pub mod plausible;
pub mod probe;
mod refused;
pub mod seen;
pub mod server;
pub mod settings;
mod socket;
mod socks5;
pub mod spread;
pub mod thinned;
pub mod verdict;
pub mod watch;
pub mod watch_record;
mod who;

pub use client::patiently;
pub use error::Error;
