//! How two nodes authenticate each other.

use std::path::PathBuf;

use ekiden_keys::{Fingerprint, Identity};
use ekiden_relay_proto::leg::SharedSecret;
use indexmap::IndexMap;

use crate::tls::Prepared;

/// How two nodes on a leg authenticate each other, and whether what they send is encrypted. `Known` holds the other nodes' keys
/// that this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security<Known> {
    /// TLS 1.3. Each node proves to have the key that the other one knows.
    Tls {
        /// This node's own key.
        identity: Identity,
        /// The keys of the others.
        known: Known,
        /// TLS settings that are made of both, once.
        prepared: Prepared,
    },
    /// Plain: at the beginning both prove that they have the shared key. What follows is neither encrypted nor protected from
    /// changes.
    Plain(SharedKey),
}

/// A key that nodes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKey {
    /// The key.
    pub key: SharedSecret,
    /// The file that it was read from.
    pub file: PathBuf,
}

/// The keys by which a node was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// With TLS: the public keys of both nodes.
    Tls {
        /// This node's key.
        ours: Fingerprint,
        /// The other node's key.
        theirs: Fingerprint,
    },
    /// On a plain leg: the shared key.
    Plain(SharedSecret),
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
