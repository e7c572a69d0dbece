//! How a node of an overlay chooses the paths of its streams, without I/O: what its own TCP connections have shown of its legs ([`leg`]),
//! what other nodes tell of theirs ([`told`]), both together ([`known`]), the paths to a node and what each would give ([`path`]), and
//! which of them is taken ([`choice`]). [`order`] says which of several nodes near a destination is tried first. [`places`] puts these
//! together for whoever has streams: which paths a new one tries, and which nodes are asked what.
//!
//! Whether nodes in between deliver is decided in three steps: [`receipt`] is what an exit is asked of a stream and answers, [`delivery`] says
//! by that and by what the entry has counted whether the stream arrives, and `trust` makes of what streams say which nodes are set aside.
//!
//! All times are since some start of this node's. Clocks of two nodes are never compared.

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
