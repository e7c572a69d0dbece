//! What a node says of itself when a connection begins (docs/design/protocol.md §3).

use super::fields::{self, Onward};
use super::frame::{FrameKind, Header};
use super::messages::MessageError;

/// The build: text.
const BUILD: u16 = 1;
/// What it can do beyond the version: bits, eight bytes.
const CAPABILITIES: u16 = 2;
/// The receiver is asked to say the same of itself at once: no value.
const ASKS: u16 = 3;

/// What a node is. The other end has proven its key before it says so, and nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Its build, such as `0.1.0`: printable ASCII, at most [`About::BUILD_MOST`] bytes; empty if it does not say.
    pub build: String,
    /// What it can do beyond what the version of the protocol says; no bit is defined yet.
    pub capabilities: u64,
    /// It wants to know the same of the receiver at once, and not with an answer.
    pub asks: bool,
}

impl About {
    /// The most bytes of a build.
    pub const BUILD_MOST: usize = 64;

    /// This build.
    pub fn own() -> Self {
        Self { build: env!("CARGO_PKG_VERSION").into(), ..Self::default() }
    }

    /// The whole frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        fields::put(&mut body, BUILD, self.build.as_bytes());
        fields::put(&mut body, CAPABILITIES, &self.capabilities.to_be_bytes());
        if self.asks {
            fields::put(&mut body, ASKS, &[]);
        }
        Header::frame(FrameKind::About, &body)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// A field is malformed, or one is required that this node does not know.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let mut about = Self::default();
        let read = fields::read(body, Onward::No, |kind, value| {
            match kind {
                BUILD => about.build = Self::build_of(value)?,
                CAPABILITIES => about.capabilities = u64::from_be_bytes(value.try_into().ok()?),
                ASKS => about.asks = true,
                _ => return Some(false),
            }
            Some(true)
        });
        read.map_err(|error| MessageError::of(FrameKind::About, error))?;
        Ok(about)
    }

    /// A build as another node says it; `None` if it cannot be one.
    pub fn build_of(value: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(value).ok()?;
        let is_one = text.len() <= Self::BUILD_MOST && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_one.then(|| text.to_owned())
    }
}
