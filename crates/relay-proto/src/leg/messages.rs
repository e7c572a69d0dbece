//! The bodies of OPEN, OPENED and FAILED (docs/design/protocol.md §4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::frame::{FrameKind, Header};
use crate::failure::{Failure, FailureCode};
use crate::target::{Host, Target};

/// The most nodes a chain may have behind the one that reads it.
pub const MAX_CHAIN: usize = 16;

/// The most nodes that ASK names.
pub const MAX_ASKED: usize = 32;

/// The most bytes of a node's name.
pub const MAX_NAME: usize = 64;

/// The bytes of a stream's name.
pub const ID_BYTES: usize = 16;
/// Stands before it, where an address has its kind.
const ID: u8 = 5;

/// What the dialler asks for: through `chain`, in this order, to `target`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The nodes still to go through, not counting the receiver. Empty: the receiver is the exit.
    pub chain: Vec<String>,
    /// The service class of the stream, a name as [`is_node_name`] has it. Empty: none is asked for.
    pub class: String,
    /// The destination.
    pub target: Target,
    /// Who wants to be connected, if it was connected to the destination by its own account: for exits that act as it.
    pub client: Option<SocketAddr>,
    /// What the node at which it begins calls it, where that one may ask the exit what it has of it: random.
    pub id: Option<[u8; ID_BYTES]>,
}

/// A body that is not what its frame's type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0:?} frame")]
pub struct MessageError(pub FrameKind);

/// Node names: 1 to [`MAX_NAME`] ASCII letters, digits, `-`, `_` and `.`.
pub fn is_node_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

impl Open {
    /// The whole frame. `chain` has at most [`MAX_CHAIN`] names that are [`is_node_name`].
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.chain.len() as u8];
        for name in &self.chain {
            counted(&mut body, name.as_bytes());
        }
        counted(&mut body, self.class.as_bytes());
        match &self.target.host {
            Host::Ip(ip) => put_ip(&mut body, *ip),
            Host::Name(name) => {
                body.push(3);
                counted(&mut body, name.as_bytes());
            }
        }
        body.extend(self.target.port.to_be_bytes());
        if let Some(client) = self.client {
            put_ip(&mut body, client.ip());
            body.extend(client.port().to_be_bytes());
        }
        if let Some(id) = self.id {
            body.push(ID);
            body.extend(id);
        }
        Header::frame(FrameKind::Open, &body)
    }

    /// Reads a body.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader { rest: body };
        reader.open().filter(|_| reader.rest.is_empty()).ok_or(MessageError(FrameKind::Open))
    }
}

/// The OPENED frame: the address the exit's connection has, if it wants to say.
pub fn encode_opened(bound: Option<SocketAddr>) -> Vec<u8> {
    let bound = bound.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    let mut body = Vec::new();
    put_ip(&mut body, bound.ip());
    body.extend(bound.port().to_be_bytes());
    Header::frame(FrameKind::Opened, &body)
}

/// Reads the body of OPENED.
pub fn decode_opened(body: &[u8]) -> Result<SocketAddr, MessageError> {
    let mut reader = Reader { rest: body };
    reader.address().filter(|_| reader.rest.is_empty()).ok_or(MessageError(FrameKind::Opened))
}

/// The FAILED frame.
pub fn encode_failed(failure: &Failure) -> Vec<u8> {
    let mut body = vec![failure.code as u8];
    body.extend(failure.text.as_bytes());
    Header::frame(FrameKind::Failed, &body)
}

/// Reads the body of FAILED.
pub fn decode_failed(body: &[u8]) -> Result<Failure, MessageError> {
    let (code, text) = body
        .split_first()
        .filter(|(_, text)| text.len() <= Failure::TEXT_MOST)
        .ok_or(MessageError(FrameKind::Failed))?;
    let text = std::str::from_utf8(text).map_err(|_| MessageError(FrameKind::Failed))?;
    Ok(Failure::new(FailureCode::from_wire(*code), text))
}

/// The ASK frame: `nodes` are those to which the dialler wants paths, at most [`MAX_ASKED`] names that are [`is_node_name`].
pub fn encode_ask(nodes: &[String]) -> Vec<u8> {
    let mut body = Vec::new();
    for name in nodes {
        counted(&mut body, name.as_bytes());
    }
    Header::frame(FrameKind::Ask, &body)
}

/// Reads the body of ASK.
pub fn decode_ask(body: &[u8]) -> Result<Vec<String>, MessageError> {
    let mut reader = Reader { rest: body };
    let mut nodes = Vec::new();
    while !reader.rest.is_empty() {
        let name = reader.text().filter(|name| is_node_name(name) && nodes.len() < MAX_ASKED);
        nodes.push(name.ok_or(MessageError(FrameKind::Ask))?.to_owned());
    }
    Ok(nodes)
}

/// A length octet and the bytes. Names are at most 255 bytes long by their types' invariants.
fn counted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend(bytes);
}

/// A type octet as in SOCKS5 (1, 4) and the address.
fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(1);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn open(&mut self) -> Option<Open> {
        let count = usize::from(self.byte()?);
        if count > MAX_CHAIN {
            return None;
        }
        let mut chain = Vec::new();
        for _ in 0..count {
            chain.push(self.text().filter(|name| is_node_name(name))?.to_owned());
        }
        let class = self.text().filter(|name| name.is_empty() || is_node_name(name))?.to_owned();
        let host = match self.byte()? {
            3 => Host::parse(self.text()?).ok()?,
            kind => Host::Ip(self.ip(kind)?),
        };
        let port = self.port().filter(|&port| port != 0)?;
        let target = Target { host, port };
        let client = match self.rest {
            [] | [ID, ..] => None,
            _ => Some(self.address().filter(|client| client.port() != 0)?),
        };
        let id = match self.rest {
            [] => None,
            _ => Some(self.byte().filter(|&kind| kind == ID).and_then(|_| self.array())?),
        };
        Some(Open { chain, class, target, client, id })
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*bytes)
    }

    fn port(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let kind = self.byte()?;
        let ip = self.ip(kind)?;
        Some(SocketAddr::new(ip, self.port()?))
    }

    fn ip(&mut self, kind: u8) -> Option<IpAddr> {
        match kind {
            1 => self.array::<4>().map(|ip| Ipv4Addr::from(ip).into()),
            4 => self.array::<16>().map(|ip| Ipv6Addr::from(ip).into()),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = usize::from(self.byte()?);
        let (text, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        std::str::from_utf8(text).ok()
    }
}
