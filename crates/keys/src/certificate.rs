//! Certificates in files (X.509, as PEM): what a listener for clients shows, and who signs those of its clients.
//!
//! A listener without a file shows one that its node signs with its own key: a client knows it by the fingerprint of that key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ekiden_files::{FileKind, ReadError};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, RootCertStore};

use crate::Identity;
use crate::identity::{ENCRYPTED, KeyFileError, read_key};

mod der;
mod own;

use der::{Parts, date};
pub use der::{has_odd_common_name, subject_name};

/// A certificate that ends so soon is told beforehand, or in the last tenth of its time if that is shorter.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// A certificate with those that vouch for it, and its private key, which is not printed.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    file: Option<PathBuf>,
}

/// The authorities that sign certificates of clients.
#[derive(Clone)]
pub struct Authorities {
    roots: Arc<RootCertStore>,
    certificates: Arc<[CertificateDer<'static>]>,
    file: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file of a certificate, or of authorities.
    #[error("certificate file {}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The file of its private key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
}

impl Certificate {
    /// Reads the certificates in `file`, the listener's own first, and the private key in `key_file`.
    ///
    /// # Errors
    /// One of the two cannot be used, or they do not belong together.
    pub fn load(file: &Path, key_file: &Path) -> Result<Self, CertificateError> {
        let chain = read(file)?;
        let key = private_key(key_file)?;
        let signing = any_supported_type(&key).map_err(|_| key_error(key_file, UNUSABLE))?;
        let key = Arc::new(CertifiedKey::new(chain, signing));
        match key.keys_match() {
            Err(TlsError::InconsistentKeys(_)) => Err(error(file, of_another_key(&key, key_file))),
            Err(TlsError::InvalidCertificate(why)) => {
                Err(error(file, format!("its first certificate cannot be used: it {}", why_unusable(&why))))
            }
            Err(other) => Err(error(file, format!("its first certificate cannot be used: {other}"))),
            Ok(()) => {
                in_order(&key.cert).map_err(|reason| error(file, reason))?;
                Ok(Self { key, file: Some(file.into()) })
            }
        }
    }

    /// The certificate that a node called `name` signs for itself. It does not end.
    ///
    /// # Errors
    /// The key signs nothing.
    pub fn of(identity: &Identity, name: &str) -> Result<Self, TlsError> {
        let own = identity.key();
        let certificate = CertificateDer::from(own::signed(&own, name)?);
        Ok(Self { key: Arc::new(CertifiedKey::new(vec![certificate], own.key.clone())), file: None })
    }

    /// With its key, as the TLS library wants it.
    pub fn key(&self) -> Arc<CertifiedKey> {
        self.key.clone()
    }

    /// Its own, without those that vouch for it.
    pub fn der(&self) -> &[u8] {
        self.key.cert.first().map_or(&[], |own| own.as_ref())
    }

    /// What its operator should know of its time at `now`.
    pub fn untimely(&self, now: SystemTime) -> Option<String> {
        untimely(self.file.as_ref()?, &self.key.cert, now)
    }
}

impl Authorities {
    /// Reads the certificates in `file`.
    ///
    /// # Errors
    /// It holds none, or one that is none of an authority.
    pub fn load(file: &Path) -> Result<Self, CertificateError> {
        let certificates: Arc<[_]> = read(file)?.into();
        let mut roots = RootCertStore::empty();
        for (at, certificate) in certificates.iter().enumerate() {
            if Parts::of(certificate).is_some_and(|parts| !parts.is_authority()) {
                return Err(error(file, of_no_authority(at + 1)));
            }
            // They have been parsed once.
            roots.add(certificate.clone()).map_err(|why| error(file, why.to_string()))?;
        }
        Ok(Self { roots: Arc::new(roots), certificates, file: file.into() })
    }

    /// As the TLS library wants them.
    pub fn roots(&self) -> Arc<RootCertStore> {
        self.roots.clone()
    }

    /// The file that they were read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What their operator should know of their time at `now`.
    pub fn untimely(&self, now: SystemTime) -> Option<String> {
        untimely(&self.file, &self.certificates, now)
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }
}

impl Eq for Certificate {}

impl PartialEq for Authorities {
    fn eq(&self, other: &Self) -> bool {
        self.certificates == other.certificates
    }
}

impl Eq for Authorities {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({:?})", self.file)
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({:?})", self.file)
    }
}

const UNUSABLE: &str =
    "holds a private key that cannot be used: RSA with 2048 to 8192 bits, ECDSA on P-256 or P-384, and Ed25519 can";

/// The certificates in a text in PEM, at least one. The error is a predicate of the file.
///
/// # Errors
/// There is none, or something is damaged.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found: Vec<CertificateDer<'static>> = Vec::new();
    for item in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = item.map_err(damaged)?;
        if RootCertStore::empty().add(certificate.clone()).is_err() {
            return Err(format!("is damaged: certificate {} in it cannot be parsed", found.len() + 1));
        }
        found.push(certificate);
    }
    if found.is_empty() {
        return Err(no_certificate(text));
    }
    Ok(found)
}

fn damaged(error: PemError) -> String {
    match error {
        PemError::MissingSectionEnd { .. } => "is cut off: a section of PEM has no line that ends it".into(),
        PemError::IllegalSectionStart { .. } => "is damaged: a line that begins a section of PEM is not whole".into(),
        PemError::Base64Decode(_) => "is damaged: a section of PEM is not Base64".into(),
        _ => "is no PEM".into(),
    }
}

/// Why there is no certificate, by what the file begins with (RFC 7468).
fn no_certificate(text: &str) -> String {
    let label = text.lines().find_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    match label {
        Some(label) if label.ends_with("PRIVATE KEY") => {
            "holds no certificate in PEM but a private key: the file with the certificate is wanted here".into()
        }
        Some("CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") => {
            "holds a request for a certificate, which an authority has yet to sign".into()
        }
        _ => "holds no certificate in PEM".into(),
    }
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = ekiden_files::read(file, FileKind::Certificates).map_err(|why| error(file, unread(&why)))?;
    certificates(&text).map_err(|reason| error(file, reason))
}

/// What is no text is mostly DER.
fn unread(why: &ReadError) -> String {
    match why {
        ReadError::NotText { .. } => {
            "is no text: certificates are read as PEM, which `openssl x509 -inform DER -in IT` makes of DER, and \
             `openssl pkcs12 -nokeys -in IT` of PKCS #12 (.p12, .pfx)"
                .into()
        }
        _ => why.to_string(),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, KeyFileError> {
    let (text, exposed) = read_key(file)?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| key_error(file, no_private_key(&text)))?;
    exposed.map_err(|exposed| key_error(file, exposed.to_string()))?;
    Ok(key)
}

fn no_private_key(text: &str) -> &'static str {
    let has = |label: &str| text.contains(&format!("-----BEGIN {label}-----"));
    // The second is that of RFC 1421, which `openssl rsa -aes256 -traditional` writes.
    if has("ENCRYPTED PRIVATE KEY") || text.lines().any(|line| line.trim_end() == "Proc-Type: 4,ENCRYPTED") {
        ENCRYPTED
    } else if has("OPENSSH PRIVATE KEY") {
        "holds a private key of OpenSSH, which is none of TLS"
    } else if has("CERTIFICATE") {
        "holds a certificate and no private key: that is the file for certificate_file"
    } else {
        "holds no private key (PKCS #8, SEC1 or PKCS #1, in PEM)"
    }
}

/// Why a certificate cannot be used, as a predicate of it.
pub fn why_unusable(why: &rustls::CertificateError) -> String {
    use rustls::CertificateError as E;
    match why {
        E::ExpiredContext { not_after, .. } => format!("ended on {}", date(not_after.as_secs() as i64)),
        E::NotValidYetContext { not_before, .. } => {
            format!("is not valid before {}", date(not_before.as_secs() as i64))
        }
        E::UnknownIssuer => "was signed by no authority that is known here".into(),
        E::BadSignature => "has a wrong signature".into(),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "is not for this end of a connection (extendedKeyUsage)".into()
        }
        // The library has no names for these. What it prints is a word.
        E::Other(other) => match other.to_string().as_str() {
            "UnsupportedCertVersion" => {
                "is of X.509 version 1: sign it with extensions, such as those that `openssl req -addext subjectAltName=DNS:NAME` asks for and `openssl x509 -req -copy_extensions copy` keeps"
                    .into()
            }
            "CaUsedAsEndEntity" => {
                "is that of an authority, or signed by itself: one that an authority has signed is wanted".into()
            }
            word => format!("is refused: {word}"),
        },
        other => format!("is refused: {other}"),
    }
}

fn of_no_authority(number: usize) -> String {
    format!(
        "certificate {number} in it is none of an authority (CA:TRUE is not in its basicConstraints): that of whoever signs the \
         clients' certificates is wanted here"
    )
}

/// The first certificate is not that of the key.
fn of_another_key(key: &CertifiedKey, key_file: &Path) -> String {
    let public = key.key.public_key();
    let is_of_key = |der: &CertificateDer<'_>| {
        Parts::of(der).is_some_and(|parts| public.as_ref().is_some_and(|public| public.as_ref() == parts.public_key))
    };
    match key.cert.iter().position(is_of_key) {
        Some(at) => format!(
            "its certificates are in the wrong order: the one of the key in {} is number {}, and must be the first",
            key_file.display(),
            at + 1
        ),
        None => format!("is not the certificate of the key in {}: they were not made together", key_file.display()),
    }
}

/// Whether each certificate is signed by the next, as clients of TLS 1.2 want it (RFC 5246 §7.4.2).
fn in_order(chain: &[CertificateDer<'_>]) -> Result<(), String> {
    for (at, pair) in chain.windows(2).enumerate() {
        let (Some(one), Some(next)) = (Parts::of(&pair[0]), Parts::of(&pair[1])) else { continue };
        if one.issuer != next.subject {
            return Err(format!(
                "its certificates are in the wrong order: number {} was not signed by number {}. First comes the server's own, \
                 then the one that signed it, and so on",
                at + 1,
                at + 2
            ));
        }
    }
    Ok(())
}

/// What is to be said of the first of these that has a wrong time, or soon will.
fn untimely(file: &Path, certificates: &[CertificateDer<'_>], now: SystemTime) -> Option<String> {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    certificates.iter().enumerate().find_map(|(at, certificate)| {
        let [from, until] = Parts::of(certificate)?.validity;
        let soon = (SOON.as_secs() as i64).min((until - from) / 10);
        let which = if certificates.len() == 1 { "it".into() } else { format!("certificate {}", at + 1) };
        let what = if now < from {
            format!("{which} is not valid before {}: is this host's clock right?", date(from))
        } else if now > until {
            format!("{which} has expired on {}: renew it and send SIGHUP", date(until))
        } else if now > until - soon {
            format!("{which} expires on {}: renew it and send SIGHUP", date(until))
        } else {
            return None;
        };
        Some(format!("certificate file {}: {what}", file.display()))
    })
}

fn error(file: &Path, reason: impl Into<String>) -> CertificateError {
    CertificateError::File { file: file.into(), reason: reason.into() }
}

fn key_error(file: &Path, reason: impl Into<String>) -> KeyFileError {
    KeyFileError { file: file.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
