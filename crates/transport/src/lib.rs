//! Connections between nodes: who is at the other end, TLS or a plain proof of a shared key, and control frames; and what those
//! may hold, and cause in the log, who have not proven who they are.
//!
//! [`dial`] and [`accept`] turn a TCP connection into a [`Connection`] whose other end has proven its key. What is spoken on it
//! afterwards is the caller's. docs/design/protocol.md says what is on the wire.

pub mod budget;
mod connection;
mod eviction;
mod first_of;
pub mod frames;
mod handshake;
mod security;
pub mod segments;
mod session;
mod strangers;
mod tls;
pub mod wire;

pub use connection::{Connection, Resting};
pub use eviction::{Bounds, Evictable, EvictionTable};
pub use first_of::take_first_of;
pub use handshake::{Admission, Refused, UNPROVEN_BYTES, accept, dial};
pub use security::{Credential, Security, SharedKey};
pub use session::{OwnKeyRefusedError, is_own_key_refused};
pub use strangers::{Stranger, Strangers};
pub use tls::{PeerKeyError, Prepared};
pub use wire::is_transient;
