//! TLS with a host that connects to a listener for clients (RFC 8446, RFC 5246): what such a listener shows, and whom it asks for a
//! certificate. Sessions are not resumed: what a new configuration asks for holds for each connection from then on.
//!
//! A stranger's messages are bounded as those of a node that has not proven its key; a certificate that it was asked for may be longer.

use std::fmt;
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
use crate::session::{CERTIFICATE_MOST, Session};
use crate::tls::provider;

/// What a listener for clients shows, and whom it asks for a certificate: ready for connections.
#[derive(Clone)]
pub struct HostTls {
    config: Arc<ServerConfig>,
    asks: bool,
}

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
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities.roots(), provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|why| Error::General(why.to_string()))?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.key())));
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), asks: authorities.is_some() })
    }

    pub(crate) fn session(&self) -> Result<Session, Error> {
        Ok(Session::host(UnbufferedServerConnection::new(self.config.clone())?))
    }

    /// The memory that a host may hold until its handshake is over.
    pub fn unproven_bytes(&self) -> usize {
        UNPROVEN_BYTES + if self.asks { CERTIFICATE_MOST } else { 0 }
    }
}

impl fmt::Debug for HostTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostTls")
    }
}

/// Makes a TLS connection of `socket`, which a host has made. Returns when the handshake is over.
///
/// # Errors
/// The handshake failed.
pub async fn accept_host(socket: TcpStream, tls: &HostTls) -> Result<Connection, Unsecured> {
    let mut holding = Holding::default();
    holding.set(tls.unproven_bytes());
    match tls.session() {
        Ok(session) => Connection::start_tls_of_host(socket, session).await,
        Err(why) => Err(Unsecured { why: invalid(why), socket }),
    }
}
