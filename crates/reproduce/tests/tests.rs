//! The tests of this crate: one program.

mod claims;
mod descriptions;
