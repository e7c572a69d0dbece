//! Connections between nodes: the identity of the other end, TLS or a plain proof of a shared key, and control frames; TLS with hosts
//! ([`accept_host`]); and limits on the memory, the processor time and the log lines of strangers, which have not proven their identity.
//!
//! [`dial`] and [`accept`] turn a TCP connection into a [`Connection`] whose other end has proven its key. The protocol on it
//! afterwards is the caller's. docs/design/protocol.md describes what is on the wire.

pub mod budget;
mod connection;
mod eviction;
pub mod fair_queue;
mod first_of;
pub mod frames;
mod handshake;
mod handshake_turns;
mod hosts;
mod security;
pub mod segments;
mod session;
mod strangers;
mod tls;
pub mod wire;

pub use connection::{Connection, Pace, Resting, Unsecured};
pub use eviction::{Bounds, Evictable, EvictionTable};
pub use first_of::take_first_of;
pub use handshake::{Admission, Refused, UNPROVEN_BYTES, accept, dial};
pub use hosts::{HostTls, UNPROVEN_HOST_BYTES, accept_host};
pub use security::{Credential, Security, SharedKey};
pub use session::{OwnKeyRefusedError, UNREAD_MOST, is_own_key_refused};
pub use strangers::{Stranger, Strangers};
pub use tls::{PeerKeyError, Prepared};
pub use wire::is_transient;
