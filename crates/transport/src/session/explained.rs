//! Errors of TLS as lines for a node's operator.

use std::io;

use ekiden_keys::why_unusable;
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
        Error::InvalidCertificate(why) => {
            io::Error::new(PermissionDenied, format!("its certificate {}", why_unusable(why)))
        }
        Error::AlertReceived(
            alert @ (A::UnknownCA
            | A::BadCertificate
            | A::CertificateUnknown
            | A::CertificateExpired
            | A::CertificateRevoked
            | A::UnsupportedCertificate
            | A::AccessDenied),
        ) => io::Error::new(PermissionDenied, format!("it does not accept this listener's certificate ({alert:?})")),
        // TLS 1.1 has no such extension.
        Error::PeerIncompatible(
            PeerIncompatible::SignatureAlgorithmsExtensionRequired | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => io::Error::new(InvalidData, "it speaks no TLS newer than 1.1: TLS 1.2 and 1.3 are spoken here"),
        Error::NoApplicationProtocol => {
            io::Error::new(InvalidData, "it offers other protocols alone (ALPN): http/1.1 is spoken here")
        }
        other => io::Error::new(InvalidData, format!("TLS: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_hosts_certificate_or_version_that_is_too_old_is_told_in_words() {
        let day = |days: u64| UnixTime::since_unix_epoch(Duration::from_secs(days * 86_400));
        let expired = CertificateError::ExpiredContext { time: day(20_000), not_after: day(19_000) };
        let early = CertificateError::NotValidYetContext { time: day(19_000), not_before: day(20_000) };
        let old = PeerIncompatible::SignatureAlgorithmsExtensionRequired;
        for (error, said) in [
            (Error::InvalidCertificate(expired), "its certificate ended on 2022-01-08 at 00:00 UTC"),
            (Error::InvalidCertificate(early), "its certificate is not valid before 2024-10-04 at 00:00 UTC"),
            (Error::PeerIncompatible(old), "it speaks no TLS newer than 1.1: TLS 1.2 and 1.3 are spoken here"),
        ] {
            assert_eq!(explained_of_host(&error).to_string(), said);
        }
    }
}
