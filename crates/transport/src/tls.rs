//! TLS 1.3 between nodes (RFC 8446). A node is known by its key alone, which is sent as a raw public key (RFC 7250). Sessions
//! are not resumed, and no data is sent before the handshake ends.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ekiden_keys::{Fingerprint, Identity};
use indexmap::IndexMap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, UnbufferedServerConnection};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError, ServerConfig,
    SignatureScheme,
};

use crate::session::{self, Session};

/// Why a node's key was refused, as a line for this node's operator.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PeerKeyError {
    /// The node that was dialled has another key than the pinned one.
    #[error(
        "it has presented the key {presented}, but the fingerprint given for it is {pinned}: replace that if `ekiden keygen --show` says so there"
    )]
    Other {
        /// The fingerprint of the key that it has.
        presented: Fingerprint,
        /// The fingerprint that was given for it.
        pinned: Fingerprint,
    },
    /// The node that was dialled has the key of this one.
    #[error(
        "it has presented the key of this node itself: the address leads to this node, or both have the same key file"
    )]
    Own,
    /// The node that was dialled has no pinned key.
    #[error(
        "its fingerprint is not pinned; it has presented {0}: add that to the peer if `ekiden keygen --show` says so there"
    )]
    NotPinned(Fingerprint),
    /// The node that connects has none of the keys that may.
    #[error(
        "it has presented the key {0}, which is none of this listener's nodes; if `ekiden keygen --show` says so on a node that may connect, add it: if [overlay] is set here, to the members file, or with `ekiden overlay admit`; else with `ekiden peer allow`, or in a tunnel's file as `fingerprint` in a [peer.NAME]"
    )]
    NotAllowed(Fingerprint),
}

/// The TLS settings that all sessions with a peer, or of a listener, share. They are made for the first session, from the keys
/// beside this in the configuration, and anew when these have changed: nodes of an overlay come and go. So they do not count when
/// configurations are compared: any two are equal.
#[derive(Clone, Default)]
pub struct Prepared(Arc<Common>);

#[derive(Default)]
struct Common {
    client: Made<ClientConfig>,
    server: Made<ServerConfig>,
}

/// Settings, and the keys for which they were made: this node's own, and those that the other node may have.
struct Made<T>(Mutex<Option<Keyed<T>>>);
type Keyed<T> = (Fingerprint, Vec<Fingerprint>, Arc<T>);

impl<T> Default for Made<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Made<T> {
    fn get<'a>(
        &self,
        identity: &Identity,
        keys: impl Iterator<Item = &'a Fingerprint> + Clone,
        make: impl FnOnce(Vec<Fingerprint>) -> Result<T, Error>,
    ) -> Result<Arc<T>, Error> {
        let own = identity.fingerprint();
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, others, config)) = &*made
            && *before == own
            && others.iter().eq(keys.clone())
        {
            return Ok(config.clone());
        }
        let keys: Vec<_> = keys.copied().collect();
        let config = Arc::new(make(keys.clone())?);
        *made = Some((own, keys, config.clone()));
        Ok(config)
    }
}

impl Prepared {
    /// A session with the node that was dialled, which must have the `pinned` key.
    pub fn dial(&self, identity: &Identity, pinned: Option<Fingerprint>) -> Result<Session, Error> {
        let config = self.0.client.get(identity, pinned.iter(), |_| client(identity, pinned))?;
        // TLS asks for a server's name. It has no meaning here, because nodes are known by their keys.
        let name = ServerName::try_from("ekiden").map_err(|_| Error::General("the name of a node".into()))?;
        Ok(Session::client(UnbufferedClientConnection::new(config, name)?))
    }

    /// A session with a node that has connected, which must have one of the keys in `nodes`.
    pub fn accept(&self, identity: &Identity, nodes: &IndexMap<String, Fingerprint>) -> Result<Session, Error> {
        let config = self.0.server.get(identity, nodes.values(), |allowed| server(identity, allowed))?;
        Ok(Session::server(UnbufferedServerConnection::new(config)?))
    }
}

impl PartialEq for Prepared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Prepared {}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}

fn client(identity: &Identity, pinned: Option<Fingerprint>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { pinned, own: identity.fingerprint() }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.key())));
    config.alpn_protocols = session::protocols();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// What a node accepts with.
pub(crate) fn server(identity: &Identity, allowed: Vec<Fingerprint>) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let mut config = builder
        .with_client_cert_verifier(Arc::new(Allowed(allowed)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.key())));
    config.alpn_protocols = session::protocols();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(ring::default_provider())).clone()
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider().signature_verification_algorithms
}

/// The dialled node's key must be this one.
#[derive(Debug)]
struct Pinned {
    pinned: Option<Fingerprint>,
    /// This node's.
    own: Fingerprint,
}

/// The connecting node's key must be one of these.
#[derive(Debug)]
struct Allowed(Vec<Fingerprint>);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = Fingerprint::of(key);
        match self.pinned {
            // Nodes may share a key.
            Some(pinned) if pinned == presented => Ok(ServerCertVerified::assertion()),
            _ if presented == self.own => Err(refused(PeerKeyError::Own)),
            Some(pinned) => Err(refused(PeerKeyError::Other { presented, pinned })),
            None => Err(refused(PeerKeyError::NotPinned(presented))),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Allowed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let presented = Fingerprint::of(key);
        match self.0.contains(&presented) {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(refused(PeerKeyError::NotAllowed(presented))),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn verify(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, &algorithms())
}

fn refused(error: PeerKeyError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

fn only_tls13() -> Error {
    Error::General("only TLS 1.3 is spoken here".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sessions_have_in_common_is_made_once_for_the_same_keys() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::generate(&directory.path().join("key.pem")).unwrap();
        let prepared = Prepared::default();
        fn made<T>(of: &Made<T>) -> Option<Arc<T>> {
            of.0.lock().unwrap().as_ref().map(|(.., made)| made.clone())
        }
        let is_as_before = |pinned, nodes: &IndexMap<String, Fingerprint>| {
            let before = (made(&prepared.0.client), made(&prepared.0.server));
            prepared.dial(&identity, pinned).unwrap();
            prepared.clone().accept(&identity, nodes).unwrap();
            let after = (made(&prepared.0.client).unwrap(), made(&prepared.0.server).unwrap());
            (
                before.0.is_some_and(|before| Arc::ptr_eq(&before, &after.0)),
                before.1.is_some_and(|before| Arc::ptr_eq(&before, &after.1)),
            )
        };
        let (none, some) = (IndexMap::new(), IndexMap::from([("a".to_owned(), identity.fingerprint())]));
        assert_eq!(is_as_before(None, &none), (false, false));
        assert_eq!(is_as_before(None, &none), (true, true));
        assert_eq!(is_as_before(None, &some), (true, false));
        assert_eq!(is_as_before(Some(identity.fingerprint()), &some), (false, true));
        assert_eq!(is_as_before(Some(identity.fingerprint()), &none), (true, false));
    }
}
