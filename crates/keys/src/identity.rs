//! Keys in files: a node's own, the fingerprints by which others know it, and the keys that nodes share.
//!
//! A node's own key is an Ed25519 key in PKCS #8 (RFC 8410 §7), as PEM: other programs can make and read it. Its fingerprint is the
//! SHA-256 of the SubjectPublicKeyInfo (RFC 8410 §4), so that `openssl pkey -pubout -outform DER | sha256sum` shows it too.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ekiden_files::{Exposed, FileKind, ReadError};
use ekiden_relay_proto::leg::SharedSecret;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

use crate::random::random_secret;

/// A node's own key. It is not printed.
#[derive(Clone)]
pub struct Identity {
    fingerprint: Fingerprint,
    key: Arc<CertifiedKey>,
}

/// The SHA-256 of a key's SubjectPublicKeyInfo; written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// A text that is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no fingerprint, which is sha256: and 64 hexadecimal digits, as `ekiden keygen` prints it")]
pub struct FingerprintError(String);

/// Why a key file cannot be used or made.
#[derive(Debug, thiserror::Error)]
#[error("key file {}: {reason}", file.display())]
pub struct KeyFileError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, and what would be right.
    pub reason: String,
}

/// What stands before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410 §7).
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

impl Identity {
    /// Makes a key and writes it into a new `file` that only its owner can read.
    pub fn generate(file: &Path) -> Result<Self, KeyFileError> {
        let der = [&PKCS8_ED25519[..], &random(file)?].concat();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(&der));
        let identity = Self::from_pem(pem.as_bytes()).map_err(|reason| error(file, reason))?;
        write_new(file, &pem)?;
        Ok(identity)
    }

    /// Reads the key in `file`.
    pub fn load(file: &Path) -> Result<Self, KeyFileError> {
        let (text, exposed) = read_key(file)?;
        if SharedSecret::from_hex(&text).is_some() {
            let reason = "holds a key that nodes share, not one of a node's own: `ekiden keygen FILE` makes one. For legs \
                          without encryption a shared key is named in plain_key_file of the peer and of the leg listener";
            return Err(error(file, reason));
        }
        let identity = Self::from_pem(text.as_bytes()).map_err(|reason| error(file, reason))?;
        exposed.map_err(|exposed| error(file, exposed.to_string()))?;
        Ok(identity)
    }

    /// What others pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The key as the TLS library wants it, with the public key in the certificate's place (RFC 7250).
    pub fn key(&self) -> Arc<CertifiedKey> {
        self.key.clone()
    }

    fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| no_key(pem))?;
        let key = any_eddsa_type(&der).map_err(|_| "holds a private key that is not an Ed25519 key")?;
        let public = key.public_key().ok_or("holds a private key without a public one")?;
        let fingerprint = Fingerprint::of(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key));
        Ok(Self { fingerprint, key })
    }
}

/// `openssl pkey -out` makes a file that its owner alone reads.
pub(crate) const ENCRYPTED: &str =
    "holds an encrypted private key: `openssl pkey -in IT -out ANOTHER` writes ANOTHER without encryption";

/// Why there is no key of a node in a file, by what is in it (RFC 7468).
fn no_key(pem: &[u8]) -> &'static str {
    let others = [
        ("OPENSSH PRIVATE KEY", "holds a private key of OpenSSH, not one in PKCS #8: `ekiden keygen` makes one"),
        ("ENCRYPTED PRIVATE KEY", ENCRYPTED),
        ("RSA PRIVATE KEY", "holds a private key that is not an Ed25519 key"),
        ("EC PRIVATE KEY", "holds a private key that is not an Ed25519 key"),
        ("PUBLIC KEY", "holds a public key, not a private one"),
        ("CERTIFICATE", "holds a certificate, not a private key"),
    ];
    let begins_with = |label: &str| pem.trim_ascii_start().starts_with(format!("-----BEGIN {label}-----").as_bytes());
    let found = others.into_iter().find(|(label, _)| begins_with(label));
    found.map_or("holds no private key (PKCS #8 in PEM)", |(_, what)| what)
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

impl Fingerprint {
    /// Of the key with this SubjectPublicKeyInfo, in DER.
    pub fn of(public_key: &[u8]) -> Self {
        Self(Sha256::digest(public_key).into())
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        // Both are 64 hexadecimal digits.
        let digits = text.strip_prefix("sha256:").and_then(SharedSecret::from_hex);
        digits.map(|SharedSecret(bytes)| Self(bytes)).ok_or_else(|| FingerprintError(text.into()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Makes a key for nodes to share, and writes it into a new `file` that only its owner can read.
pub fn generate_shared(file: &Path) -> Result<(), KeyFileError> {
    write_new(file, &format!("{}\n", hex(&random(file)?)))
}

/// Reads a key that nodes share.
pub fn load_shared(file: &Path) -> Result<SharedSecret, KeyFileError> {
    let (text, exposed) = read_key(file)?;
    let key = SharedSecret::from_hex(&text)
        .ok_or_else(|| error(file, "must hold 64 hexadecimal digits, as `ekiden keygen --shared` makes them"))?;
    exposed.map_err(|exposed| error(file, exposed.to_string()))?;
    Ok(key)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random(file: &Path) -> Result<[u8; 32], KeyFileError> {
    random_secret().map_err(|source| error(file, format!("no random numbers: {source}")))
}

/// The text in `file`, and whether others can read it: to be said of files that are known to hold a key, because the advice would do
/// harm to others.
pub(crate) fn read_key(file: &Path) -> Result<(String, Result<(), Exposed>), KeyFileError> {
    let failed = |source: ReadError| match &source {
        ReadError::Failed(missing) if missing.kind() == io::ErrorKind::NotFound => {
            error(file, format!("{source}; `ekiden keygen` makes keys"))
        }
        _ => error(file, source.to_string()),
    };
    let open = ekiden_files::open(file, FileKind::Key).map_err(failed)?;
    let exposed = open.check_private(file);
    Ok((open.text().map_err(failed)?, exposed))
}

/// All of `text`, or no file.
fn write_new(file: &Path, text: &str) -> Result<(), KeyFileError> {
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(|source| {
        let reason = match source.kind() {
            io::ErrorKind::AlreadyExists => "is there already, and no key is overwritten".into(),
            io::ErrorKind::NotFound => "cannot be made: its folder is not there (`mkdir` makes it)".into(),
            _ => source.to_string(),
        };
        error(file, reason)
    })?;
    open.write_all(text.as_bytes()).and_then(|()| open.sync_all()).map_err(|source| {
        // What was created a moment ago holds nothing of use.
        let _ = fs::remove_file(file);
        error(file, source.to_string())
    })
}

fn error(file: &Path, reason: impl Into<String>) -> KeyFileError {
    KeyFileError { file: file.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_no_key_of_a_node_is_named() {
        for (label, said) in [
            ("OPENSSH PRIVATE KEY", "a private key of OpenSSH, not one in PKCS #8: `ekiden keygen` makes one"),
            ("ENCRYPTED PRIVATE KEY", "an encrypted private key"),
            ("EC PRIVATE KEY", "not an Ed25519 key"),
            ("PUBLIC KEY", "a public key"),
            ("CERTIFICATE", "a certificate"),
            ("NOTHING", "holds no private key (PKCS #8 in PEM)"),
        ] {
            let pem = format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
            let error = Identity::from_pem(pem.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{label}: {error}");
        }
    }

    #[test]
    fn a_key_file_of_another_system_holds_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let [own, shared] = ["node.key", "line.key"].map(|name| folder.path().join(name));
        let made = Identity::generate(&own).unwrap();
        generate_shared(&shared).unwrap();
        let secret = load_shared(&shared).unwrap();
        for file in [&own, &shared] {
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, format!("\u{feff}{}", text.replace('\n', "\r\n"))).unwrap();
        }
        assert_eq!(Identity::load(&own).unwrap(), made);
        assert!(load_shared(&shared).unwrap() == secret);
    }

    #[test]
    fn a_key_is_known_by_the_same_fingerprint_every_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.key");
        let made = Identity::generate(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Identity::load(&file).unwrap(), made);
        let shown = made.fingerprint().to_string();
        assert_eq!(shown.parse(), Ok(made.fingerprint()));
        let before = fs::read(&file).unwrap();
        assert!(Identity::generate(&file).unwrap_err().to_string().contains("is there already"));
        assert_eq!(fs::read(&file).unwrap(), before);
        assert_ne!(Identity::generate(&folder.path().join("other.key")).unwrap(), made);
    }

    /// The key in RFC 8410 §10.3, with its public key from §10.1.
    #[test]
    fn the_fingerprint_is_of_the_subject_public_key_info() {
        let pem = b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
        let public = STANDARD.decode("MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=").unwrap();
        assert_eq!(Identity::from_pem(pem).unwrap().fingerprint(), Fingerprint::of(&public));
    }

    #[test]
    fn what_is_not_a_fingerprint_is_refused() {
        for text in ["", "sha256:", "sha256:00", "md5:00", &"0".repeat(64), &format!("sha256:{}", "g".repeat(64))] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }
}
