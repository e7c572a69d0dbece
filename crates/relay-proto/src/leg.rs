//! The protocol between two nodes: docs/design/protocol.md, whose sections the parts of this module name.
//!
//! A connection is authenticated once ([`Dialler`] against [`Acceptor`]) and then carries one stream after
//! another: [`Open`], an answer, data in both directions ([`FrameDecoder`]), an end said in each.

mod frame;
mod handshake;
mod messages;

pub use frame::{
    Event, FrameDecoder, FrameKind, HEADER_BYTES, Header, MAX_CONTROL, MAX_DATA, MAX_FILL, MAX_TOLD, ProtocolError,
};
pub use handshake::{Acceptor, Dialler, HandshakeError, MAX_UNPROVEN, NONCE_BYTES, Nonce, SharedSecret};
pub use messages::{
    ID_BYTES, MAX_ASKED, MAX_CHAIN, MAX_NAME, MessageError, Open, decode_ask, decode_failed, decode_opened, encode_ask,
    encode_failed, encode_opened, is_node_name,
};

/// The version of the protocol that this module speaks.
pub const VERSION: u8 = 1;
