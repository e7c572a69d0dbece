//! Which measuring server a client asks, and with which keys.

use std::path::PathBuf;

use ekiden_keys::{Fingerprint, Identity};
use ekiden_measure::client::Server;
use ekiden_relay::Config;
use ekiden_transport::{Prepared, Security};
use ekiden_units::{AddressError, HostPort};

use crate::usage::misused;
use crate::whose::whose;

/// The port of a measuring server, unless told otherwise.
const PORT: u16 = 7100;

/// The server, on the command line.
#[derive(clap::Args)]
#[group(skip)]
pub struct Target {
    /// The server: HOST or HOST:PORT, or the name of a peer of --config, at its address and port 7100.
    #[arg(value_name = "SERVER")]
    server: String,
    /// A node's configuration: its key, and its peers with their fingerprints.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This client's key, as `ekiden keygen` makes it.
    #[arg(long, value_name = "FILE", conflicts_with = "config", requires = "fingerprint")]
    key: Option<PathBuf>,
    /// The fingerprint of the server's key.
    #[arg(long, value_name = "FINGERPRINT", requires = "key", conflicts_with = "config")]
    fingerprint: Option<Fingerprint>,
    /// The server serves everyone: no keys, and nothing says who it is.
    #[arg(long, conflicts_with_all = ["config", "key"])]
    open: bool,
}

impl Target {
    /// The server as the user has written it.
    pub fn name(&self) -> &str {
        &self.server
    }

    /// The server, with keys.
    pub fn server(&self, command: &'static str) -> anyhow::Result<Server> {
        if self.open {
            return Ok(Server { name: with_port(&self.server, PORT), security: None, via: None });
        }
        if let Some(key) = &self.key {
            let identity = Identity::load(key)?;
            let security = Security::Tls { identity, known: self.fingerprint, prepared: Prepared::default() };
            return Ok(Server { name: with_port(&self.server, PORT), security: Some(security), via: None });
        }
        let Some(file) = &self.config else {
            misused("with which key? Give --config, --key with --fingerprint, or --open for a server that is open");
        };
        let config = Config::load(file).map_err(|error| whose(file, command, error))?;
        let (name, written) = match self.server.split_once(':') {
            Some((name, port)) if config.peers.contains_key(name) => (name, Some(port)),
            _ => (self.server.as_str(), None),
        };
        let peer = config.peers.get(name).ok_or_else(|| {
            let names: Vec<_> = config.peers.keys().map(String::as_str).collect();
            let peers = match names.is_empty() {
                true => "it has no peers".into(),
                false => format!("there are: {}", names.join(", ")),
            };
            NoPeer { file: file.clone(), name: name.into(), peers }
        })?;
        let port = match written.map(|port| (port, port.parse::<u16>())) {
            None => PORT,
            Some((_, Ok(port @ 1..))) => port,
            Some((port, _)) => {
                misused(&AddressError::Port { text: self.server.clone(), port: port.into() }.to_string())
            }
        };
        let host = &peer.address.host;
        match &peer.security {
            security @ Security::Tls { .. } => {
                Ok(Server { name: format!("{host}:{port}"), security: Some(security.clone()), via: None })
            }
            Security::Plain(_) => Err(PlainPeer { file: file.clone(), name: name.into() }.into()),
        }
    }
}

/// A name that no peer has.
#[derive(Debug, thiserror::Error)]
#[error("{}: no peer is called '{name}'; {peers}. For another server give --key and --fingerprint", file.display())]
pub struct NoPeer {
    file: PathBuf,
    name: String,
    peers: String,
}

/// A peer without a key of its own.
#[derive(Debug, thiserror::Error)]
#[error("{}: peer '{name}' has a shared key, and measuring needs a key of its own: give --key and --fingerprint", file.display())]
pub struct PlainPeer {
    file: PathBuf,
    name: String,
}

/// The address with its port, or else with `standard`. Ends the program if it is none.
pub fn with_port(server: &str, standard: u16) -> String {
    match HostPort::with_default(server, standard) {
        Ok(place) => place.to_string(),
        Err(error) => misused(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_left_out_is_7100() {
        for (server, expected) in [
            ("city.example", "city.example:7100"),
            ("192.0.2.1:7000", "192.0.2.1:7000"),
            ("2001:db8::1", "[2001:db8::1]:7100"),
            ("[2001:db8::1]", "[2001:db8::1]:7100"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
        ] {
            assert_eq!(with_port(server, PORT), expected);
        }
    }

    #[test]
    fn a_peers_server_is_at_the_peers_address() {
        let folder = tempfile::tempdir().unwrap();
        let fingerprint = Identity::generate(&folder.path().join("other.key")).unwrap().fingerprint();
        Identity::generate(&folder.path().join("node.key")).unwrap();
        let file = folder.path().join("node.toml");
        for (address, server, expected) in [
            ("[2001:db8::1]:7000", "city", "[2001:db8::1]:7100"),
            ("[fe80::1%eth0]:7000", "city:7", "[fe80::1%eth0]:7"),
            ("192.0.2.1:7000", "city", "192.0.2.1:7100"),
        ] {
            let peer = format!("[peer.city]\naddress = \"{address}\"\nfingerprint = \"{fingerprint}\"\n");
            let listener = "[listen.x]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";
            std::fs::write(&file, format!("key_file = \"node.key\"\n{listener}{peer}")).unwrap();
            let config = Some(file.clone());
            let target = Target { server: server.into(), config, key: None, fingerprint: None, open: false };
            assert_eq!(target.server("measure client").unwrap().name, expected);
        }
    }
}
