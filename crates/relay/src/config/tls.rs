//! TLS on listeners for clients: what a listener shows, and which clients it takes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use ekiden_config::path;
use ekiden_keys::{Authorities, Certificate};
use ekiden_transport::HostTls;

use super::{Config, Listener};

/// TLS on a listener for clients.
#[derive(Debug, Clone)]
pub struct ListenerTls {
    pub(super) certificate: Certificate,
    /// The files of the certificate and of its key. Without them it is one that the node has signed with its own key.
    pub(super) files: Option<[PathBuf; 2]>,
    /// Who signs the certificates of its clients. `None`: they are asked for none.
    pub authorities: Option<Authorities>,
    /// The same, ready for connections.
    pub ready: HostTls,
}

/// By what clients and operators see of it.
impl PartialEq for ListenerTls {
    fn eq(&self, other: &Self) -> bool {
        (&self.certificate, &self.files, &self.authorities) == (&other.certificate, &other.files, &other.authorities)
    }
}

impl Eq for ListenerTls {}

/// As the configuration has it.
impl fmt::Display for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [certificate, key] = match &self.files {
            Some([certificate, key]) => [Some(certificate.as_path()), Some(key.as_path())],
            None => [None, None],
        };
        let authorities = self.authorities.as_ref().map(Authorities::file);
        let files = [("certificate_file", certificate), ("key_file", key), ("client_ca_file", authorities)];
        let named = files.into_iter().filter_map(|(key, file)| Some(format!("{key} = {}", path(file?))));
        write!(f, "{{ {} }}", named.collect::<Vec<_>>().join(", "))
    }
}

impl Listener {
    /// Whether a connection that was secured as `before` says may still ask: the listener asks its clients for the same as then.
    pub fn takes_clients_of(&self, before: Option<&Arc<ListenerTls>>) -> bool {
        if let (Some(before), Some(now)) = (before, &self.tls)
            && Arc::ptr_eq(before, now)
        {
            return true;
        }
        let asks = |tls: Option<&Arc<ListenerTls>>| tls.map(|tls| tls.authorities.clone());
        asks(before) == asks(self.tls.as_ref())
    }

    /// Whether its clients must show a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.authorities.is_some())
    }
}

impl Config {
    /// A line for each certificate that is not valid `now`, or not for long.
    pub fn untimely(&self, now: SystemTime) -> Vec<String> {
        let of = |(name, listener): (&String, &Listener)| {
            let tls = listener.tls.as_ref()?;
            let told = [tls.certificate.untimely(now), tls.authorities.as_ref().and_then(|those| those.untimely(now))];
            Some(told.into_iter().flatten().map(|told| format!("[listen.{name}] {told}")).collect::<Vec<_>>())
        };
        self.listeners.iter().filter_map(of).flatten().collect()
    }
}
