//! The data path: both directions of a stream between two connections, until both have ended.

pub mod alarm;
pub mod between_streams;
pub mod duplex;
pub mod expiry;
pub mod framing;
pub mod last_words;
pub mod output;
pub mod pump;
pub mod running;
pub mod source;
