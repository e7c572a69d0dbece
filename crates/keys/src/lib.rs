//! A node's own key, the fingerprints by which others know it, keys that nodes share, and random numbers.

mod identity;
mod random;

pub use identity::{Fingerprint, Identity, KeyFileError, NoFingerprint, generate_shared, load_shared};
pub use random::unguessable;
