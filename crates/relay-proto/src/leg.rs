//! The protocol between two nodes: docs/design/protocol.md, whose sections the parts of this module name.
//!
//! A connection is authenticated once ([`Dialler`] against [`Acceptor`]) and then carries one stream after
//! another: [`Open`], an answer, data in both directions ([`FrameDecoder`]), an end said in each.

mod about;
pub mod fields;
mod frame;
mod handshake;
mod messages;

pub use about::About;
pub use frame::{
    Event, Found, FrameDecoder, FrameKind, HEADER_BYTES, Header, MAX_CONTROL, MAX_DATA, MAX_FILL, MAX_TOLD,
    ProtocolError, Unknown,
};
pub use handshake::{Acceptor, Dialler, HandshakeError, MAX_UNPROVEN, NONCE_BYTES, Nonce, SharedSecret};
pub use messages::{
    ID_BYTES, MAX_ASKED, MAX_CHAIN, MessageError, Open, Opened, decode_ask, decode_failed, encode_ask, encode_failed,
};

/// The versions of the protocol that this module speaks, the one that it prefers first.
pub const VERSIONS: &[u8] = &[2];
