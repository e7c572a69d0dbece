//! The relay: takes connections (SOCKS5, HTTP, fixed forward, transparent, other nodes) and carries each to its
//! destination, directly or over a chain of nodes.
//!
//! [`Config`] says what a node does; [`Relay`] runs it on threads of its own; [`run`] is the whole life of a
//! process that is a node. docs/proxy.md is for its users, docs/protocol.md for those who speak to it.

mod accept;
mod auto;
mod config;
mod congestion;
mod dial;
mod duplex;
mod node;
mod pool;
mod process;
mod pump;
mod route;
mod rules;
mod segment;
mod serve;
mod wire;

pub use config::{Config, ConfigError, Exit, Limits, Listener, ListenerKind, Peer, Tcp};
pub use congestion::{NotToBeHad, Reason};
pub use node::{Relay, StartError};
pub use process::run;
pub use route::{Pattern, Route, Routes, Way};
pub use rules::{Rules, RulesError};
