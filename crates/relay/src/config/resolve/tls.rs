//! `tls` of a listener: its files, read and checked.

use std::path::PathBuf;
use std::sync::Arc;

use ekiden_keys::{Authorities, Certificate, CertificateError};
use ekiden_transport::HostTls;
use serde_spanned::Spanned;

use super::{OwnKey, Resolver, Result};
use crate::config::raw::{RawKind, RawListen, RawTls};
use crate::config::tls::ListenerTls;

/// What HTTP's clients are told of the listener (RFC 7301).
const HTTP: &[&str] = &["http/1.1"];

impl RawKind {
    /// Whether its clients may speak TLS.
    fn has_tls(self) -> bool {
        matches!(self, Self::Socks5 | Self::Http | Self::Mixed)
    }
}

impl Resolver<'_> {
    /// The TLS of a listener of the node called `node`.
    pub(super) fn listener_tls(
        &self,
        raw: &RawListen,
        own: Option<&OwnKey>,
        node: &str,
    ) -> Result<Option<Arc<ListenerTls>>> {
        let Some(spanned) = &raw.tls else { return Ok(None) };
        if !raw.kind.has_tls() {
            let message = format!("a {} listener has no 'tls'", raw.kind.word());
            return Err(self.error(Some(spanned.span()), message));
        }
        let tls = spanned.get_ref();
        let (certificate, files) = self.certificate(spanned, own, node)?;
        let authorities = tls.client_ca_file.as_ref().map(|file| self.authorities(file)).transpose()?;
        let protocols = if raw.kind == RawKind::Socks5 { &[] } else { HTTP };
        let ready = HostTls::new(&certificate, authorities.as_ref(), protocols)
            .map_err(|why| self.error(Some(spanned.span()), format!("TLS: {why}")))?;
        Ok(Some(Arc::new(ListenerTls { certificate, files, authorities, ready })))
    }

    fn certificate(
        &self,
        spanned: &Spanned<RawTls>,
        own: Option<&OwnKey>,
        node: &str,
    ) -> Result<(Certificate, Option<[PathBuf; 2]>)> {
        let raw = spanned.get_ref();
        let (file, key_file) = match (&raw.certificate_file, &raw.key_file) {
            (Some(file), Some(key_file)) => (file, key_file),
            (Some(file), None) => {
                let message = "certificate_file needs key_file beside it, the file with its private key";
                return Err(self.error(Some(file.span()), message.into()));
            }
            (None, Some(key_file)) => {
                let message = "key_file needs certificate_file beside it; without both, clients are shown a certificate of \
                               the node's own key";
                return Err(self.error(Some(key_file.span()), message.into()));
            }
            (None, None) => return Ok((self.own_certificate(spanned, own, node)?, None)),
        };
        let files = [self.beside(file), self.beside(key_file)];
        let certificate = Certificate::load(&files[0], &files[1]).map_err(|error| {
            let of = if matches!(error, CertificateError::Key(_)) { key_file } else { file };
            self.error(Some(of.span()), error.to_string())
        })?;
        Ok((certificate, Some(files)))
    }

    fn own_certificate(&self, spanned: &Spanned<RawTls>, own: Option<&OwnKey>, node: &str) -> Result<Certificate> {
        let Some((identity, _)) = own else {
            let message = "tls without certificate_file needs this node's own key: make one with `ekiden keygen FILE`, and say \
                           key_file = \"FILE\" at the top";
            return Err(self.error(Some(spanned.span()), message.into()));
        };
        Certificate::of(identity, node).map_err(|why| self.error(Some(spanned.span()), format!("TLS: {why}")))
    }

    fn authorities(&self, file: &Spanned<String>) -> Result<Authorities> {
        Authorities::load(&self.beside(file)).map_err(|error| self.error(Some(file.span()), error.to_string()))
    }
}
