//! How a node of an overlay chooses the paths of its streams, without I/O: what its own TCP connections have shown of its legs ([`leg`]),
//! what other nodes tell of theirs ([`told`]), both together ([`known`]), the paths to a node and what each would give ([`path`]), and
//! which of them is taken ([`choice`]).
//!
//! All times are since some start of this node's. Clocks of two nodes are never compared.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod choice;
pub mod known;
pub mod leg;
pub mod member;
pub mod path;
pub mod told;
