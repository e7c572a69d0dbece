//! The tests of the crate from outside, in one program: it is linked once.

mod every_key;
mod fetch;
mod link;
mod middle;
mod overlay;
mod page;
mod scenario;
mod sweep;
mod transparent;
