//! Measuring: a server that answers, a client that asks, and the loads that both put on real paths.
//!
//! [`server::run`] answers, [`client::measure`] asks, [`path::characterise`] asks for what shows a path. A control connection says what is
//! to be measured; each stream of the load, and the probes beside it, have connections of their own, which the end that asks always opens.
//! What is said is in crate `measure-proto`, what follows from what was seen in `diagnosis`. [`watch`] looks at other programs' connections.

pub mod client;
mod control;
mod error;
pub mod load;
pub mod path;
mod probe;
mod refused;
pub mod server;
mod socket;
pub mod watch;
pub mod watch_record;

pub use client::patiently;
pub use error::Error;
