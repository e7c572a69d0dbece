//! The tests of the crate from outside, in one program: it is linked once.

mod common;
mod crowds;
mod packets;
mod reaction;
mod sixteen;
mod traffic;
