//! The tests of the crate from outside, in one program: it is linked once.

mod golden;
mod messages;
