//! What a packet carries, as far as a tunnel tells it apart.

use serde::Deserialize;

/// What is in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Neither, or the later parts of a packet.
    Other,
}

impl Protocol {
    /// The word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Other => "other",
        }
    }
}
