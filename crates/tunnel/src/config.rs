//! A tunnel's configuration: one TOML file, read once into [`Config`] with every default in place.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

pub use ekiden_config::ConfigError;
use ekiden_config::load;
use ekiden_congestion::Tunables;
use ekiden_keys::{Fingerprint, Identity};
use ekiden_net::socket::TcpOptions;
use ekiden_queue::{Pull, Queue};
use ekiden_transport::Security;
use ekiden_transport::segments::Segments;
use ekiden_units::{BitRate, Time};
use indexmap::IndexMap;
use ipnet::IpNet;

use crate::allowed::Allowed;
use crate::classes::Classes;

mod raw;
mod resolve;
mod show;

pub use raw::sections;

/// A tunnel's configuration, resolved and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// This node's name, as the peers' logs show it.
    pub name: String,
    /// This node's own key. `None`: all connections are plain.
    pub identity: Option<Identity>,
    /// The file that it was read from.
    pub key_file: Option<PathBuf>,
    /// The TUN device.
    pub device: Device,
    /// Where peers connect. `None`: this node connects to all of them.
    pub listen: Option<Listen>,
    /// Of the TCP connections.
    pub tcp: TcpOptions,
    /// The maximum rate of each connection.
    pub pacing: Option<BitRate>,
    /// Parameters of ekiden's own congestion controls. `None`: the defaults.
    pub congestion: Option<Box<Tunables>>,
    /// The queue before each connection.
    pub queue: QueueSettings,
    /// The silence after which an end sends a keep-alive. After four times this time the other end counts as gone.
    pub keepalive: Time,
    /// The nodes at the other ends, by name.
    pub peers: IndexMap<String, Peer>,
    /// The addresses of each peer.
    pub allowed: Allowed,
}

/// Where peers connect.
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// How a node that connects is authenticated.
    pub security: Security<IndexMap<String, Fingerprint>>,
}

/// The network device of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its addresses, each with the network around it.
    pub addresses: Vec<IpNet>,
    /// Its MTU, in bytes.
    pub mtu: u16,
    /// Whether it takes super-packets, if the kernel can give them.
    pub offload: bool,
}

impl Device {
    /// The device's address in the same network as this one: that network is reached through the device.
    pub fn network_of(&self, address: IpAddr) -> Option<IpNet> {
        self.addresses.iter().find(|own| own.contains(&address)).copied()
    }
}

/// The queue before each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Its limit.
    pub limit: Queue,
    /// `None`: drop tail, from which packets go into the send buffer while that has room.
    pub pull: Option<Pull>,
}

/// The node at another end.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Where it listens: a host and a port. `None`: it connects to this node.
    pub address: Option<(String, u16)>,
    /// How it is authenticated.
    pub security: Security<Option<Fingerprint>>,
    /// The HTTP proxy by which it is reached.
    pub http_proxy: Option<HttpProxy>,
    /// The TCP connections, and what each carries.
    pub classes: Classes,
    /// The maximum length of segments to it, as far as that was found out. It is not a setting.
    pub segments: Segments,
}

/// An HTTP proxy on the way to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProxy {
    /// Its host and port.
    pub address: (String, u16),
    /// The login that it asks for.
    pub login: Option<Login>,
}

/// A user and a password. The password is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
    /// The file that the password was read from.
    pub file: PathBuf,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).field("file", &self.file).finish_non_exhaustive()
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        let settings = |peer: &Self| (peer.address.clone(), peer.security.clone(), peer.http_proxy.clone());
        settings(self) == settings(other) && self.classes == other.classes
    }
}

impl Config {
    /// Reads a configuration, and the key that it names.
    ///
    /// # Errors
    /// If something in it cannot be used: with the line.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        load(file, resolve::parse)
    }

    /// Whether a file is a tunnel's configuration rather than another command's: its device is a table.
    pub fn is_in(file: &Path) -> bool {
        let text = ekiden_files::read_config(file).unwrap_or_default();
        toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.get("device").is_some_and(toml::Value::is_table))
    }

    /// The networks of the peers: each with the peer's name.
    pub fn networks(&self) -> impl Iterator<Item = (IpNet, &str)> {
        let peers = self.peers.keys().enumerate();
        peers.flat_map(|(number, name)| self.allowed.of(number).map(move |network| (network, &name[..])))
    }

    #[cfg(test)]
    fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        resolve::parse(ekiden_config::Source { text, file })
    }
}

#[cfg(test)]
mod tests;
