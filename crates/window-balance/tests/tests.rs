//! The tests of the crate from outside, in one program: it is linked once.

mod believed;
mod common;
mod decisions;
mod delivered;
mod ebpf;
mod frames;
mod properties;
