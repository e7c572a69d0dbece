//! Errors of TLS as lines for a node's operator.

use std::io;

use ekiden_relay_proto::leg::VERSIONS;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// The other node's refusal of this one's key.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("it does not take this node's key")]
pub struct OwnKeyRefusedError;

/// Whether a handshake failed because the other node refused this one, and not this one the other.
pub fn is_own_key_refused(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<OwnKeyRefusedError>())
}

/// Turns an error of TLS into one for a node's operator. [`io::ErrorKind::PermissionDenied`]: one of the two nodes refuses
/// the other's key. [`io::ErrorKind::Unsupported`]: the other one takes no keys. [`io::ErrorKind::InvalidData`]: anything
/// else. `is_known`: the other side may have seen this one's key.
pub fn explained(error: &Error, is_known: bool) -> io::Error {
    use io::ErrorKind::{InvalidData, PermissionDenied};
    let versions = VERSIONS.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let plain = "it does not speak TLS: it has a plain_key_file, or is no ekiden node";
    match error {
        Error::InvalidCertificate(CertificateError::Other(error)) => {
            io::Error::new(PermissionDenied, error.to_string())
        }
        Error::AlertReceived(AlertDescription::CertificateUnknown) if is_known => {
            io::Error::new(PermissionDenied, OwnKeyRefusedError)
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) | Error::NoApplicationProtocol => io::Error::new(
            InvalidData,
            format!("it speaks no version of the leg protocol that this node does ({versions}), or is no ekiden node"),
        ),
        // With this alert a listener for clients answers TLS.
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            io::Error::new(InvalidData, "it refuses to speak TLS: its address is not that of a leg listener")
        }
        // With this alert a measuring server without keys answers TLS.
        Error::AlertReceived(AlertDescription::AccessDenied) => {
            io::Error::new(io::ErrorKind::Unsupported, "it serves without keys")
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => io::Error::new(InvalidData, plain),
        Error::PeerIncompatible(
            PeerIncompatible::IncorrectCertificateTypeExtension | PeerIncompatible::UnsolicitedCertificateTypeExtension,
        ) => io::Error::new(InvalidData, "it speaks TLS but is no ekiden node"),
        other => io::Error::new(InvalidData, format!("TLS: {other}")),
    }
}

/// The same of a host's. [`io::ErrorKind::PermissionDenied`]: one of the two refuses the other's certificate.
pub fn explained_of_host(error: &Error) -> io::Error {
    use AlertDescription as A;
    use io::ErrorKind::{InvalidData, PermissionDenied};
    match error {
        Error::NoCertificatesPresented => io::Error::new(PermissionDenied, "it has shown no certificate"),
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            io::Error::new(PermissionDenied, "its certificate was signed by none of client_ca_file")
        }
        Error::InvalidCertificate(why) => io::Error::new(PermissionDenied, format!("its certificate: {why}")),
        Error::AlertReceived(
            alert @ (A::UnknownCA | A::BadCertificate | A::CertificateUnknown | A::CertificateExpired),
        ) => io::Error::new(PermissionDenied, format!("it does not accept this listener's certificate ({alert:?})")),
        Error::NoApplicationProtocol => {
            io::Error::new(InvalidData, "it offers other protocols alone (ALPN): http/1.1 is spoken here")
        }
        other => io::Error::new(InvalidData, format!("TLS: {other}")),
    }
}
