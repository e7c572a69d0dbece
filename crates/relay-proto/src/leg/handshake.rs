//! Authentication without TLS (docs/design/protocol.md §3): a mutual challenge and response over a shared key.
//!
//! Both proofs cover both HELLOs and the prover's role and name, so that neither a recorded proof nor one reflected at its sender is worth
//! anything, and nobody on the path makes two nodes speak an older version than both know.

use ekiden_units::{NODE_NAME_MOST, is_node_name};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::VERSIONS;
use super::frame::{FrameKind, Header};

/// The bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

/// The bytes of a proof.
const MAC_BYTES: usize = 32;

/// The most versions that a dialler may offer.
const OFFERED_MOST: usize = 16;

/// The most bytes of the body of any frame before a dialler's proof, its AUTH among them.
pub const MAX_UNPROVEN: u32 = (MAC_BYTES + NODE_NAME_MOST) as u32;

/// Random bytes, fresh for every connection.
pub type Nonce = [u8; NONCE_BYTES];

/// The key that nodes on a plain leg share. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(pub [u8; 32]);

/// Why a connection between two nodes was not established.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The two sides have no version in common.
    #[error("the other node speaks version {} of the leg protocol, and this one {}", listed(.0), listed(VERSIONS))]
    Version(Vec<u8>),
    /// The proof is wrong.
    #[error("the other node does not have the same key")]
    WrongKey,
    /// The message is not what it should be.
    #[error("the other side does not speak the leg protocol")]
    Malformed,
}

/// The side that connects.
#[derive(Debug)]
pub struct Dialler {
    key: SharedSecret,
    name: String,
    nonce: Nonce,
}

/// The side that accepts.
#[derive(Debug)]
pub struct Acceptor {
    key: SharedSecret,
    nonce: Nonce,
    /// Both HELLOs, once they are said.
    said: Option<Said>,
}

/// What both proofs cover.
#[derive(Debug, Clone)]
struct Said {
    dialler: Vec<u8>,
    version: u8,
    nonce: Nonce,
}

impl SharedSecret {
    /// Reads 64 hexadecimal digits, with white space around them.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |b: u8| char::from(b).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(Self(key))
    }

    fn proof(&self, role: &[u8; 16], said: &Said, name: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        // The dialler's HELLO says its own length, and all but the name has a fixed one: no two inputs read the same.
        mac.update(role);
        mac.update(&said.dialler);
        mac.update(&[said.version]);
        mac.update(&said.nonce);
        mac.update(name.as_bytes());
        mac
    }
}

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret(secret)")
    }
}

const DIALLER: &[u8; 16] = b"ekiden-leg dials";
const ACCEPTOR: &[u8; 16] = b"ekiden-leg takes";

impl Dialler {
    /// A node called `name` is about to connect. `nonce` must be random.
    pub fn new(key: SharedSecret, name: &str, nonce: Nonce) -> Self {
        Self { key, name: name.into(), nonce }
    }

    /// The first frame: the versions that this side speaks, and its nonce.
    pub fn hello(&self) -> Vec<u8> {
        Header::frame(FrameKind::Hello, &self.offer())
    }

    fn offer(&self) -> Vec<u8> {
        let mut body = vec![VERSIONS.len() as u8];
        body.extend(VERSIONS);
        body.extend(self.nonce);
        body
    }

    /// Takes the body of the acceptor's HELLO; returns the AUTH frame, behind which OPEN may follow at once.
    ///
    /// # Errors
    /// The acceptor does not have the key, or has chosen a version that was not offered.
    pub fn auth(&self, hello: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let (version, rest) = hello.split_first().ok_or(HandshakeError::Malformed)?;
        let (nonce, proof) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(HandshakeError::Malformed)?;
        let proof: &[u8; MAC_BYTES] = proof.try_into().map_err(|_| HandshakeError::Malformed)?;
        let said = Said { dialler: self.offer(), version: *version, nonce: *nonce };
        let mac = self.key.proof(ACCEPTOR, &said, "");
        mac.verify_slice(proof).map_err(|_| HandshakeError::WrongKey)?;
        if !VERSIONS.contains(version) {
            return Err(HandshakeError::Version(vec![*version]));
        }
        let mac = self.key.proof(DIALLER, &said, &self.name);
        let mut body = mac.finalize().into_bytes().to_vec();
        body.extend(self.name.as_bytes());
        Ok(Header::frame(FrameKind::Auth, &body))
    }
}

impl Acceptor {
    /// A node waits for the first frame. `nonce` must be random.
    pub fn new(key: SharedSecret, nonce: Nonce) -> Self {
        Self { key, nonce, said: None }
    }

    /// Takes the body of the dialler's HELLO; returns the HELLO to answer with.
    ///
    /// # Errors
    /// The dialler offers no version that this side speaks.
    pub fn hello(&mut self, hello: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let theirs = offered(hello)?;
        let common = VERSIONS.iter().find(|version| theirs.contains(version));
        let version = *common.ok_or_else(|| HandshakeError::Version(theirs.to_vec()))?;
        let said = self.said.insert(Said { dialler: hello.to_vec(), version, nonce: self.nonce });
        let mut body = vec![version];
        body.extend(self.nonce);
        body.extend(self.key.proof(ACCEPTOR, said, "").finalize().into_bytes());
        Ok(Header::frame(FrameKind::Hello, &body))
    }

    /// Takes the body of AUTH; returns the dialler's name, which is now proven.
    ///
    /// # Errors
    /// The dialler does not have the key.
    pub fn authenticate(&self, auth: &[u8]) -> Result<String, HandshakeError> {
        let said = self.said.as_ref().ok_or(HandshakeError::Malformed)?;
        let (proof, name) = auth.split_at_checked(MAC_BYTES).ok_or(HandshakeError::Malformed)?;
        let name = std::str::from_utf8(name).map_err(|_| HandshakeError::Malformed)?;
        if !is_node_name(name) {
            return Err(HandshakeError::Malformed);
        }
        let mac = self.key.proof(DIALLER, said, name);
        mac.verify_slice(proof).map_err(|_| HandshakeError::WrongKey)?;
        Ok(name.to_owned())
    }
}

/// The versions that a dialler offers, the one that it prefers first.
fn offered(hello: &[u8]) -> Result<&[u8], HandshakeError> {
    let (count, rest) = hello.split_first().ok_or(HandshakeError::Malformed)?;
    let (versions, nonce) = rest.split_at_checked((*count).into()).ok_or(HandshakeError::Malformed)?;
    let is_one = (1..=OFFERED_MOST).contains(&versions.len()) && nonce.len() == NONCE_BYTES;
    is_one.then_some(versions).ok_or(HandshakeError::Malformed)
}

fn listed(versions: &[u8]) -> String {
    versions.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}
