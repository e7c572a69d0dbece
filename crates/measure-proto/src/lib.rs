//! What a measuring server and its client say to each other, without I/O: bytes in, messages and loads out.
//!
//! A control connection says what is to be measured ([`message`]) and what an end saw of a stream ([`row`]), within what may be asked
//! for ([`settings`]). What the server says of its
//! end is put together within bounds ([`gathered`]).

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod gathered;
pub mod message;
pub mod row;
pub mod seen;
pub mod settings;
