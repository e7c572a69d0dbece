//! How two nodes know each other.

use std::path::PathBuf;

use ekiden_keys::{Fingerprint, Identity};
use ekiden_relay_proto::leg::Key;
use indexmap::IndexMap;

use crate::tls::Prepared;

/// How two nodes on a leg know each other, and whether they speak so that nobody else understands. `Known` is whom this
/// node knows there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security<Known> {
    /// TLS 1.3, in which each proves to have the key that the other knows.
    Tls {
        /// This node's own key.
        identity: Identity,
        /// The others'.
        known: Known,
        /// What follows from both.
        prepared: Prepared,
    },
    /// Plain: a key that both share is proven when the connection begins. What follows is neither encrypted nor protected.
    Plain(SharedKey),
}

/// A key that nodes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKey {
    /// The key.
    pub key: Key,
    /// Where it was read from.
    pub file: PathBuf,
}

/// By what a node was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Its key and this node's, in TLS.
    Tls {
        /// This node's.
        ours: Fingerprint,
        /// The other's.
        theirs: Fingerprint,
    },
    /// A shared key.
    Plain(Key),
}

impl Security<IndexMap<String, Fingerprint>> {
    /// Whether a node that has `credential` is admitted.
    pub fn admits(&self, credential: &Credential) -> bool {
        match (self, credential) {
            (Self::Tls { identity, known, .. }, Credential::Tls { ours, theirs }) => {
                identity.fingerprint() == *ours && known.values().any(|key| key == theirs)
            }
            (Self::Plain(shared), Credential::Plain(key)) => shared.key == *key,
            _ => false,
        }
    }
}
