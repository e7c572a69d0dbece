//! Connecting to destinations: what is allowed, which addresses a name has, and which of them is reached first.

pub mod dial;
pub mod names;
pub mod policy;
pub mod spare;
