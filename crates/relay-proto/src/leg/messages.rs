//! The bodies of OPEN, OPENED, FAILED and ASK (docs/design/protocol.md §4, §7): a fixed part, then fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ekiden_units::is_node_name;

use super::fields::{self, FieldError, Onward};
use super::frame::{FrameKind, Header};
use crate::failure::Failure;
use crate::target::{Host, Target};

/// The most nodes a chain may have behind the one that reads it.
pub const MAX_CHAIN: usize = 16;

/// The most nodes that ASK names.
pub const MAX_ASKED: usize = 32;

/// The bytes of a stream's name.
pub const ID_BYTES: usize = 16;

/// The field of OPEN with the client's address.
const CLIENT: u16 = 1;
/// The field of OPEN with the stream's name.
const ID: u16 = 2;

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
    /// Fields that this node does not know, for the next one, as they are on the wire.
    pub passed: Vec<u8>,
}

/// What OPENED says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The address of the exit's connection; 0.0.0.0:0 if it is not known.
    pub bound: SocketAddr,
    /// Fields that this node does not know, for the one that has asked, as they are on the wire.
    pub passed: Vec<u8>,
}

/// A body that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is not what its frame's type says.
    #[error("malformed {0:?} frame")]
    Malformed(FrameKind),
    /// It needs what this node does not know.
    #[error("a {0:?} frame that requires field {1:#06x}, which this node does not know")]
    Required(FrameKind, u16),
}

impl MessageError {
    /// Of a frame whose fields cannot be read.
    pub(super) fn of(kind: FrameKind, error: FieldError) -> Self {
        match error {
            FieldError::Malformed => Self::Malformed(kind),
            FieldError::Required(field) => Self::Required(kind, field),
        }
    }
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
            let mut value = Vec::new();
            put_address(&mut value, client);
            fields::put(&mut body, CLIENT, &value);
        }
        if let Some(id) = self.id {
            fields::put(&mut body, ID, &id);
        }
        body.extend(&self.passed);
        Header::frame(FrameKind::Open, &body)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It is malformed, or requires a field that this node does not know.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader { rest: body };
        let mut open = reader.open().ok_or(MessageError::Malformed(FrameKind::Open))?;
        let onward = if open.chain.is_empty() { Onward::No } else { Onward::Yes };
        open.passed = fields::read(reader.rest, onward, |kind, value| {
            match kind {
                CLIENT => open.client = Some(client(value)?),
                ID => open.id = Some(value.try_into().ok()?),
                _ => return Some(false),
            }
            Some(true)
        })
        .map_err(|error| MessageError::of(FrameKind::Open, error))?;
        Ok(open)
    }
}

/// A client's address, whose port is not 0.
fn client(value: &[u8]) -> Option<SocketAddr> {
    let mut reader = Reader { rest: value };
    reader.address().filter(|client| client.port() != 0 && reader.rest.is_empty())
}

impl Opened {
    /// At this address, if it is known.
    pub fn at(bound: Option<SocketAddr>) -> Self {
        Self { bound: bound.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))), passed: Vec::new() }
    }

    /// The whole frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_address(&mut body, self.bound);
        body.extend(&self.passed);
        Header::frame(FrameKind::Opened, &body)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader { rest: body };
        let bound = reader.address().ok_or(MessageError::Malformed(FrameKind::Opened))?;
        Ok(Self { bound, passed: unknown(FrameKind::Opened, reader.rest, Onward::Answer)? })
    }
}

/// The FAILED frame.
pub fn encode_failed(failure: &Failure) -> Vec<u8> {
    let mut body = vec![failure.number()];
    counted(&mut body, failure.wire_text().as_bytes());
    body.extend(&failure.passed);
    Header::frame(FrameKind::Failed, &body)
}

/// Reads the body of FAILED.
///
/// # Errors
/// It is malformed.
pub fn decode_failed(body: &[u8]) -> Result<Failure, MessageError> {
    let mut reader = Reader { rest: body };
    let said = reader.byte().and_then(|code| Some((code, reader.text()?)));
    let (code, text) = said.ok_or(MessageError::Malformed(FrameKind::Failed))?;
    let passed = unknown(FrameKind::Failed, reader.rest, Onward::Answer)?;
    Ok(Failure::told(code, text, passed))
}

/// The ASK frame: `nodes` are those to which the dialler wants paths, at most [`MAX_ASKED`] names that are [`is_node_name`].
pub fn encode_ask(nodes: &[String]) -> Vec<u8> {
    let mut body = vec![nodes.len() as u8];
    for name in nodes {
        counted(&mut body, name.as_bytes());
    }
    Header::frame(FrameKind::Ask, &body)
}

/// Reads the body of ASK.
///
/// # Errors
/// It is malformed, or requires a field that this node does not know.
pub fn decode_ask(body: &[u8]) -> Result<Vec<String>, MessageError> {
    let mut reader = Reader { rest: body };
    let nodes = reader.names(MAX_ASKED).ok_or(MessageError::Malformed(FrameKind::Ask))?;
    unknown(FrameKind::Ask, reader.rest, Onward::No)?;
    Ok(nodes)
}

/// The fields of a message that has no known ones: those to be passed on.
fn unknown(kind: FrameKind, bytes: &[u8], onward: Onward) -> Result<Vec<u8>, MessageError> {
    fields::read(bytes, onward, |_, _| Some(false)).map_err(|error| MessageError::of(kind, error))
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

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    put_ip(out, address.ip());
    out.extend(address.port().to_be_bytes());
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn open(&mut self) -> Option<Open> {
        let chain = self.names(MAX_CHAIN)?;
        let class = self.text().filter(|name| name.is_empty() || is_node_name(name))?.to_owned();
        let host = match self.byte()? {
            // An address as text would be longer where this node passes it on.
            3 => Host::parse(self.text()?).ok().filter(|host| matches!(host, Host::Name(_)))?,
            kind => Host::Ip(self.ip(kind)?),
        };
        let port = self.port().filter(|&port| port != 0)?;
        let target = Target { host, port };
        Some(Open { chain, class, target, client: None, id: None, passed: Vec::new() })
    }

    /// Names of nodes, with their number before them.
    fn names(&mut self, most: usize) -> Option<Vec<String>> {
        let count = usize::from(self.byte()?);
        let mut name = || self.text().filter(|name| is_node_name(name)).map(str::to_owned);
        (count <= most).then(|| (0..count).map(|_| name()).collect())?
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
