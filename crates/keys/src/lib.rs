//! A node's own key, the fingerprints by which others know it, keys that nodes share, and random numbers.

mod identity;
mod random;

pub use identity::{Fingerprint, FingerprintError, Identity, KeyFileError, generate_shared, load_shared};
pub use random::random_secret;
