//! Where a stream is to go: a host, by address or by name, and a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ekiden_units::{AddressError, HostPort, HostText};

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
    /// It is no host, or no host with a port.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// It is of one interface of the host that is to connect.
    #[error("'{0}' has a zone, which means nothing to other nodes: give an address without one")]
    Zone(String),
}

impl Host {
    /// Reads a name, or an address written as one (IPv6 with or without brackets).
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        HostText::parse(text)?.try_into()
    }
}

impl TryFrom<HostText> for Host {
    type Error = TargetError;

    fn try_from(host: HostText) -> Result<Self, TargetError> {
        match host {
            HostText::Ip(ip) => Ok(Self::Ip(ip)),
            HostText::Name(name) => Ok(Self::Name(name)),
            HostText::Zoned(..) => Err(TargetError::Zone(host.to_string())),
        }
    }
}

impl Target {
    /// Reads `host:port`, or `host` alone if `default_port` is given, as they stand in a URI: an IPv6 address in brackets, and the
    /// default port also behind a colon without a number (RFC 3986 §3.2).
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, TargetError> {
        let Some(default) = default_port else { return text.parse() };
        let (host, port) = HostPort::optional(text.strip_suffix(':').unwrap_or(text))?;
        match (&host, port) {
            (HostText::Ip(IpAddr::V6(_)), None) if !text.starts_with('[') => {
                Err(AddressError::Host(shown(text)).into())
            }
            (_, port) => HostPort { host, port: port.unwrap_or(default) }.try_into(),
        }
    }
}

impl TryFrom<HostPort> for Target {
    type Error = TargetError;

    fn try_from(HostPort { host, port }: HostPort) -> Result<Self, TargetError> {
        Ok(Self { host: host.try_into()?, port })
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl From<Target> for HostPort {
    fn from(Target { host, port }: Target) -> Self {
        let host = match host {
            Host::Ip(ip) => HostText::Ip(ip),
            Host::Name(name) => HostText::Name(name),
        };
        Self { host, port }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        HostPort::as_told(text)?.try_into()
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
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).map(|c| if ekiden_units::is_unseen(c) { ' ' } else { c }).collect()
}
