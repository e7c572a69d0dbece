//! A node's own key, the fingerprints by which others know it, keys that nodes share, certificates, and random numbers.

mod certificate;
mod identity;
mod random;

pub use certificate::{
    Authorities, Certificate, CertificateError, certificates, has_odd_common_name, subject_name, why_unusable,
};
pub use identity::{Fingerprint, FingerprintError, Identity, KeyFileError, generate_shared, load_shared};
pub use random::random_secret;
