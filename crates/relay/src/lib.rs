//! The relay: takes connections (SOCKS5, HTTP, fixed forward, transparent, other nodes) and carries each to its
//! destination, directly or over a chain of nodes.
//!
//! [`Config`] says what a node does; [`Relay`] runs it on threads of its own; [`run`] is the whole life of a
//! process that is a node. docs/proxy.md is for its users, docs/protocol.md for those who speak to it.

mod address;
mod alarm;
mod config;
mod congestion;
mod connection;
mod dial;
mod duplex;
mod ended;
mod exit;
mod expiry;
pub mod identity;
mod logins;
mod memory;
mod names;
mod node;
mod pool;
mod privileges;
mod probe;
mod process;
mod pump;
mod quota;
mod random;
mod route;
mod rules;
mod segment;
mod serve;
mod session;
mod shared;
mod spare;
mod throttle;
mod tls;
mod warm;
mod wire;

pub use config::edit;
pub use config::{Accept, Config, ConfigError, Exit, Limits, Listener, ListenerKind, Peer, Security, SharedKey, Tcp};
pub use congestion::{NotToBeHad, Reason};
pub use logins::hash_password;
pub use node::{Relay, StartError};
pub use probe::{ProbeError, probe};
pub use process::run;
pub use quota::Allowance;
pub use route::{Pattern, Route, Routes, Way};
pub use rules::{Rules, RulesError};
