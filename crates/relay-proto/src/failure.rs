//! Why a destination was not reached: the same codes on a leg, as SOCKS replies and as HTTP status.

use std::borrow::Cow;
use std::fmt;

/// The kind of a failure. The numbers are the ones on the wire (docs/design/protocol.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FailureCode {
    /// The destination refused the connection.
    Refused = 1,
    /// No route to the destination's network.
    NetworkUnreachable = 2,
    /// The destination's host cannot be reached.
    HostUnreachable = 3,
    /// The destination, or a node, did not answer in time.
    TimedOut = 4,
    /// The destination's name has no address.
    NameNotFound = 5,
    /// A route or rule refuses the destination.
    Forbidden = 6,
    /// The chain names a node that the node before it does not know.
    UnknownNode = 7,
    /// Two nodes do not know each other by their keys.
    Authentication = 8,
    /// A node of the chain cannot be reached.
    NodeUnreachable = 9,
    /// A node of the chain is out of connections, descriptors or memory.
    Overloaded = 10,
    /// A node said something the protocol does not allow.
    Protocol = 11,
    /// Anything else; the text says what.
    Other = 12,
    /// A node does not know what is required of it: it is of an older build.
    Unsupported = 13,
}

/// A failure with a text for people: which node saw what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The kind.
    pub code: FailureCode,
    /// One line, without secrets; it may travel to the client.
    pub text: String,
    /// Whether the node that says so lacked something itself, such as descriptors, and has asked nothing of another one. It does not travel.
    pub is_local: bool,
    /// The number on the wire, which may be that of a code that this node does not know.
    number: u8,
    /// Fields of FAILED that this node does not know, for the one that has asked, as they are on the wire.
    pub passed: Vec<u8>,
}

impl Failure {
    /// The longest text that travels to another node, in bytes.
    pub const WIRE_TEXT_MOST: usize = 255;

    /// The longest text here.
    const TEXT_MOST: usize = 1024;

    /// A failure of this kind. Control characters in `text` become spaces, and it is cut to 1,024 bytes.
    pub fn new(code: FailureCode, text: impl fmt::Display) -> Self {
        let clean = text.to_string().replace(ekiden_units::is_unseen, " ");
        let text = cut(&clean, Self::TEXT_MOST).into();
        Self { code, text, is_local: false, number: code as u8, passed: Vec::new() }
    }

    /// The text as it travels to another node: if it is too long, cut behind a word, with `…`.
    pub fn wire_text(&self) -> Cow<'_, str> {
        if self.text.len() <= Self::WIRE_TEXT_MOST {
            return self.text.as_str().into();
        }
        let kept = cut(&self.text, Self::WIRE_TEXT_MOST - " …".len());
        let words = kept.rsplit_once(' ').map_or(kept, |(words, _)| words);
        format!("{words} …").into()
    }

    /// What another node has told: with the number of its code, which this node may not know, and fields to be passed on.
    pub fn told(number: u8, text: &str, passed: Vec<u8>) -> Self {
        Self { number, passed, ..Self::new(FailureCode::from_wire(number), text) }
    }

    /// The number of its code on the wire.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The same, of what this node itself lacks.
    #[must_use]
    pub fn local(self) -> Self {
        Self { is_local: true, ..self }
    }
}

/// As many whole characters of `text` as fit into `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    &text[..ends.take_while(|&end| end <= most).last().unwrap_or(0)]
}

impl FailureCode {
    const ALL: [Self; 13] = [
        Self::Refused,
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::TimedOut,
        Self::NameNotFound,
        Self::Forbidden,
        Self::UnknownNode,
        Self::Authentication,
        Self::NodeUnreachable,
        Self::Overloaded,
        Self::Protocol,
        Self::Other,
        Self::Unsupported,
    ];

    /// The code of a number on the wire. One from a newer node is [`FailureCode::Other`].
    pub fn from_wire(number: u8) -> Self {
        Self::ALL.into_iter().find(|&code| code as u8 == number).unwrap_or(Self::Other)
    }

    /// The SOCKS5 reply (RFC 1928 §6).
    pub fn socks_reply(self) -> u8 {
        match self {
            Self::Refused => 5,
            Self::NetworkUnreachable => 3,
            Self::HostUnreachable | Self::NameNotFound => 4,
            // RFC 1928 has no reply for a timeout; "TTL expired" is what clients show as one.
            Self::TimedOut => 6,
            Self::Forbidden => 2,
            _ => 1,
        }
    }

    /// The HTTP status (RFC 9110 §15).
    pub fn http_status(self) -> u16 {
        match self {
            Self::Forbidden => 403,
            Self::TimedOut => 504,
            Self::Overloaded | Self::NodeUnreachable => 503,
            _ => 502,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_behind_a_word_where_it_travels() {
        let short = Failure::new(FailureCode::Other, "é".repeat(127));
        assert_eq!(short.wire_text(), short.text);
        let long = Failure::new(FailureCode::Other, "wörd\n".repeat(100));
        assert_eq!(long.text.len(), 600);
        let wire = long.wire_text();
        assert!(wire.ends_with("wörd …") && (245..=255).contains(&wire.len()), "{wire}");
        let one = Failure::new(FailureCode::Other, "é".repeat(600));
        assert_eq!((one.text.len(), one.wire_text().len()), (1024, 252 + 2));
    }
}
