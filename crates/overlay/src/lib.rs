//! How a node of an overlay chooses the paths of its streams, without I/O: what its own TCP connections have shown of its
//! legs ([`leg`]), what other nodes tell of theirs ([`told`]), both together ([`known`]), the paths to a node and what each
//! would give ([`path`]), and which of them is taken ([`choice`]). [`order`] says which of several nodes near a destination
//! is tried first. [`places`] combines these for a node that has streams: which paths a new stream tries, and which nodes
//! are asked what.
//!
//! Three modules decide whether nodes in between deliver: [`receipt`] is the question to an exit about a stream and the
//! answer, [`delivery`] concludes from the answer and the entry's counts whether the stream arrives, and `trust` concludes
//! from that which nodes are set aside.
//!
//! All times are since some start of this node. Clocks of two nodes are never compared.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod asked;
pub mod choice;
pub mod delivery;
pub mod judged;
pub mod known;
pub mod leg;
pub mod load;
pub mod member;
pub mod order;
pub mod path;
pub mod places;
pub mod receipt;
pub mod shown;
pub mod told;
mod trust;
