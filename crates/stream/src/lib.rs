//! The data path of a node: both directions of a stream between two connections, until both have ended and all is delivered.
//!
//! What is decided here (ends, last words, resets, limits, turns) keeps the promise that a receiver sees an end only if the sender
//! said one. It knows a connection by [`Wire`](ekiden_transport::wire::Wire) and the time by tokio's clock, and no socket: the tests
//! run it between hosts, nodes and lines of their own in virtual time.

mod alarm;
pub mod between_streams;
pub mod closing;
pub mod duplex;
pub mod expiry;
pub mod framing;
pub mod last_words;
pub mod observer;
pub mod output;
pub mod pump;
mod running;
mod source;
