//! Where a stream is to go: a host, by address or by name, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A host as its client named it. Names are resolved at the exit only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name: 1 to 255 letters, digits, `-`, `_` and `.`, in lower case.
    Name(String),
}

/// A host and a port from 1 to 65535.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

/// Why a text or bytes are not a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Neither an address nor a possible name.
    #[error("'{0}' is not an address or a host name")]
    Host(String),
    /// The port is missing or not in 1..=65535.
    #[error("'{0}' needs a port from 1 to 65535, as in example.org:80")]
    Port(String),
}

impl Host {
    /// Reads a name, or an address written as one (IPv6 with or without brackets).
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Some(bare) = bare {
            let ip: Ipv6Addr = bare.parse().map_err(|_| TargetError::Host(shown(text)))?;
            return Ok(Self::Ip(ip.into()));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let well_formed = (1..=255).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with('.')
            && !text.contains("..");
        if !well_formed {
            return Err(TargetError::Host(shown(text)));
        }
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

impl Target {
    /// Reads `host:port`, or `host` alone if `default_port` is given.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, TargetError> {
        let bracket = text.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match text[bracket..].rfind(':') {
            Some(colon) => (&text[..bracket + colon], Some(&text[bracket + colon + 1..])),
            None => (text, None),
        };
        // "::1" is an address without a port, not the host ":" with port 1.
        if bracket == 0 && host.contains(':') {
            return Err(TargetError::Port(shown(text)));
        }
        let port = match (port, default_port) {
            (None | Some(""), Some(default)) => default,
            (Some(port), _) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().unwrap_or(0),
            _ => 0,
        };
        if port == 0 {
            return Err(TargetError::Port(shown(text)));
        }
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl FromStr for Target {
    type Err = TargetError;
    fn from_str(text: &str) -> Result<Self, TargetError> {
        Self::parse(text, None)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What a client sent, fit for a log line.
fn shown(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
