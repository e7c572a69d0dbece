//! The relay: takes connections (SOCKS5, HTTP, fixed forward, transparent, other nodes) and carries each to its
//! destination, directly or over a chain of nodes.
//!
//! [`Config`] says what a node does; [`Relay`] runs it on threads of its own; [`run`] is the whole life of a
//! process that is a node. docs/guide/reference.md is for its users, docs/design/protocol.md for those who speak to it.

mod access;
mod config;
mod exit;
mod host;
mod node;
mod overlay;
mod peer;
mod pool;
mod reach;
mod serve;
mod shared;
mod stream;

pub use access::logins::hash_password;
pub use access::quota::Allowance;
pub use config::edit;
pub use config::join::join;
pub use config::pattern::Pattern;
pub use config::route::{Route, Routes, Way};
pub use config::{
    Config, ConfigError, Exit, Key, Limits, Listener, ListenerKind, OwnNode, Peer, Reply, Section, Tcp,
    member_sections, sections,
};
pub use ekiden_bpf::named::Reason;
pub use ekiden_relay_proto::{Target, TargetError as DestinationError};
pub use host::congestion::CongestionUnavailable;
pub use host::rules::{Rules, RulesError};
pub use node::process::run;
pub use node::status;
pub use node::{Relay, StartError};
pub use overlay::{
    CandidateStatus, ChangeStatus, ExitStatus, LastStatus, LegStatus, NodeStatus, OverlayStatus, RegistryStatus,
    RouteStatus, ShareStatus, TakenStatus, ask as ask_overlay, socket_name,
};
pub use peer::probe::{ProbeError, Probed, probe};
pub use pool::PeerStatus;
