//! TLS with a host that connects to a listener for clients (RFC 8446, RFC 5246): what such a listener shows, and whom it asks for a
//! certificate. Sessions are not resumed: what a new configuration asks for holds for each connection from then on.
//!
//! A stranger's hello is bounded as that of a node that has not proven its key; behind it there may be a whole record. What the host holds
//! once the handshake is over counts by its connection, and so do the certificates that it has shown.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ekiden_keys::{Authorities, Certificate};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{Error, ServerConfig};
use tokio::net::TcpStream;

use crate::budget::Holding;
use crate::connection::{Connection, Unsecured};
use crate::frames::invalid;
use crate::handshake::UNPROVEN_BYTES;
use crate::handshake_turns::in_turns;
use crate::session::{CERTIFICATE_MOST, Session};
use crate::tls::provider;

/// The memory that a host may hold until its handshake is over: that of a node, and a record behind its hello.
pub const UNPROVEN_HOST_BYTES: usize = UNPROVEN_BYTES + CERTIFICATE_MOST;

/// Clients are told the names of the authorities if these take at most so many bytes: half of what the list of them can hold. Without them a client
/// chooses its certificate by itself (RFC 5246 §7.4.4).
const NAMES_MOST: usize = 1 << 15;

/// What a listener for clients shows, and whom it asks for a certificate: ready for connections.
#[derive(Clone)]
pub struct HostTls(Arc<ServerConfig>);

impl HostTls {
    /// A listener that shows `certificate` and speaks `protocols` (ALPN), or with none does not say which. With `authorities`, clients must
    /// have a certificate that one of these has signed.
    ///
    /// # Errors
    /// The TLS library refuses something of it.
    pub fn new(
        certificate: &Certificate,
        authorities: Option<&Authorities>,
        protocols: &[&str],
    ) -> Result<Self, Error> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let builder = match authorities {
            Some(authorities) => {
                let roots = authorities.roots();
                // Each name stands behind its length (RFC 8446 §4.2.4).
                let names: usize = roots.subjects().iter().map(|name| 2 + name.as_ref().len()).sum();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = if names > NAMES_MOST { verifier.clear_root_hint_subjects() } else { verifier };
                builder.with_client_cert_verifier(verifier.build().map_err(|why| Error::General(why.to_string()))?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.key())));
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn session(&self) -> Result<Session, Error> {
        Ok(Session::host(UnbufferedServerConnection::new(self.0.clone())?))
    }
}

impl fmt::Debug for HostTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostTls")
    }
}

/// Makes a TLS connection of `socket`, which a host has made from this address. Returns when the handshake is over, whose steps take
/// turns with those of others.
///
/// # Errors
/// The handshake failed.
pub async fn accept_host(socket: TcpStream, tls: &HostTls, from: IpAddr) -> Result<Connection, Unsecured> {
    let mut holding = Holding::default();
    holding.set(UNPROVEN_HOST_BYTES);
    match tls.session() {
        Ok(session) => in_turns(from, Connection::start_tls_of_host(socket, session)).await,
        Err(why) => Err(Unsecured { why: invalid(why), socket }),
    }
}
