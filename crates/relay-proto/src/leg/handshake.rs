//! Authentication without TLS (docs/design/protocol.md §3): a mutual challenge and response over a shared key.
//!
//! Both proofs cover both nonces and the prover's role and name, so that neither a recorded proof nor one
//! reflected at its sender is worth anything.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::VERSION;
use super::frame::{FrameKind, Header};
use super::messages::{MAX_NAME, is_node_name};

/// The bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

/// The bytes of a proof.
const MAC_BYTES: usize = 32;

/// The most bytes of the body of any frame before a dialler's proof, its AUTH among them.
pub const MAX_UNPROVEN: u32 = (MAC_BYTES + MAX_NAME) as u32;

/// Random bytes, fresh for every connection.
pub type Nonce = [u8; NONCE_BYTES];

/// The key that nodes on a plain leg share. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(pub [u8; 32]);

/// Why a connection between two nodes was not established.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The other side speaks another version.
    #[error("the other node speaks version {0} of the leg protocol, this one {VERSION}")]
    Version(u8),
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
    /// The dialler's nonce, once known.
    theirs: Option<Nonce>,
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

    fn proof(&self, role: &[u8], dialler: &Nonce, acceptor: &Nonce, name: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        // Fixed lengths before the one variable field: no two inputs read the same.
        mac.update(role);
        mac.update(dialler);
        mac.update(acceptor);
        mac.update(name.as_bytes());
        mac
    }
}

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret(secret)")
    }
}

const DIALLER: &[u8; 16] = b"ekiden/1 dialler";
const ACCEPTOR: &[u8; 16] = b"ekiden/1 accepts";

impl Dialler {
    /// A node called `name` is about to connect. `nonce` must be random.
    pub fn new(key: SharedSecret, name: &str, nonce: Nonce) -> Self {
        Self { key, name: name.into(), nonce }
    }

    /// The first frame.
    pub fn hello(&self) -> Vec<u8> {
        let mut body = vec![VERSION];
        body.extend(self.nonce);
        Header::frame(FrameKind::Hello, &body)
    }

    /// Takes the body of the acceptor's HELLO; returns the AUTH frame, behind which OPEN may follow at once.
    pub fn auth(&self, hello: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let (nonce, proof) = split_hello(hello)?;
        let proof: &[u8; MAC_BYTES] = proof.try_into().map_err(|_| HandshakeError::Malformed)?;
        let mac = self.key.proof(ACCEPTOR, &self.nonce, &nonce, "");
        mac.verify_slice(proof).map_err(|_| HandshakeError::WrongKey)?;
        let mac = self.key.proof(DIALLER, &self.nonce, &nonce, &self.name);
        let mut body = mac.finalize().into_bytes().to_vec();
        body.extend(self.name.as_bytes());
        Ok(Header::frame(FrameKind::Auth, &body))
    }
}

impl Acceptor {
    /// A node waits for the first frame. `nonce` must be random.
    pub fn new(key: SharedSecret, nonce: Nonce) -> Self {
        Self { key, nonce, theirs: None }
    }

    /// Takes the body of the dialler's HELLO; returns the HELLO to answer with.
    pub fn hello(&mut self, hello: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let (theirs, rest) = split_hello(hello)?;
        if !rest.is_empty() {
            return Err(HandshakeError::Malformed);
        }
        self.theirs = Some(theirs);
        let mut body = vec![VERSION];
        body.extend(self.nonce);
        body.extend(self.key.proof(ACCEPTOR, &theirs, &self.nonce, "").finalize().into_bytes());
        Ok(Header::frame(FrameKind::Hello, &body))
    }

    /// Takes the body of AUTH; returns the dialler's name, which is now proven.
    pub fn authenticate(&self, auth: &[u8]) -> Result<String, HandshakeError> {
        let theirs = self.theirs.as_ref().ok_or(HandshakeError::Malformed)?;
        let (proof, name) = auth.split_at_checked(MAC_BYTES).ok_or(HandshakeError::Malformed)?;
        let name = std::str::from_utf8(name).map_err(|_| HandshakeError::Malformed)?;
        if !is_node_name(name) {
            return Err(HandshakeError::Malformed);
        }
        let mac = self.key.proof(DIALLER, theirs, &self.nonce, name);
        mac.verify_slice(proof).map_err(|_| HandshakeError::WrongKey)?;
        Ok(name.to_owned())
    }
}

/// Version, nonce and what follows.
fn split_hello(body: &[u8]) -> Result<(Nonce, &[u8]), HandshakeError> {
    let (version, rest) = body.split_first().ok_or(HandshakeError::Malformed)?;
    if *version != VERSION {
        return Err(HandshakeError::Version(*version));
    }
    let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(HandshakeError::Malformed)?;
    Ok((*nonce, rest))
}
