//! A node's configuration: one TOML file, read once into [`Config`] with every default in place.

pub mod address;
pub mod edit;
mod keys;
mod limits;
mod raw;
mod resolve;
pub mod route;
mod show;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ekiden_congestion::CongestionParameters;
use ekiden_files::{FileKind, ReadError};
use ekiden_keys::{Fingerprint, Identity};
use ekiden_net::socket::TcpOptions;
use ekiden_relay_proto::Target;
use ekiden_relay_proto::proxy_protocol::Version;
use ekiden_transport::Security;
use indexmap::IndexMap;
use ipnet::IpNet;

use crate::access::logins::Users;
use crate::config::route::{Pattern, Routes};
pub use keys::{Key, Section};
pub use limits::Limits;
pub use raw::sections;

/// Everything a node was told, resolved and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's name, as other nodes' logs show it.
    pub name: String,
    /// This node's own key. Present if it speaks TLS to another.
    pub identity: Option<Identity>,
    /// Worker threads, at least 1.
    pub threads: usize,
    /// The TCP settings of connections to destinations.
    pub tcp: Tcp,
    /// The parameters of the congestion controls that this node brings into the kernel; `None`: the defaults, or whatever
    /// another process has given them.
    pub congestion: Option<CongestionParameters>,
    /// Bounds on everything that others could make grow.
    pub limits: Limits,
    /// Where connections are accepted, by name.
    pub listeners: IndexMap<String, Listener>,
    /// The nodes this one connects to, by name.
    pub peers: IndexMap<String, Peer>,
    /// How a destination is reached.
    pub routes: Routes,
    /// What this node does where it connects to destinations.
    pub exit: Exit,
    /// Where the key was read from.
    key_file: Option<PathBuf>,
}

/// What a node does as the exit, where it connects to destinations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exit {
    /// For clients in these networks that a transparent listener has told of, here or at the other end of a chain, it
    /// connects from their own address and port.
    pub client_addresses: Vec<IpNet>,
    /// Destinations that it connects to though their addresses are private, loopback, link-local, multicast or this host's own.
    pub allow: Vec<Pattern>,
}

/// The TCP settings of a connection, and what to do without its congestion control.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tcp {
    /// What its sockets get.
    pub options: TcpOptions,
    /// The congestion control to use when the one in `options` cannot be had; `None`: the node does not start then.
    pub congestion_fallback: Option<String>,
}

/// One listening address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its name, by which errors and the log call it.
    pub name: String,
    /// What is spoken on it.
    pub kind: ListenerKind,
    /// Where.
    pub address: SocketAddr,
    /// Whether `[::]` leaves IPv4 to another listener with its port.
    pub only_v6: bool,
    /// When the client is told that its destination is reached.
    pub reply: Reply,
    /// Connections from these networks must begin with a PROXY protocol header, which tells who the client is.
    pub proxy_protocol_from: Vec<IpNet>,
    /// The TCP settings of connections accepted here.
    pub tcp: Tcp,
}

/// When the client is told that its destination is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// At once. Its first bytes travel with the request to the destination, and a failure is a reset.
    Early,
    /// When it is. A failure is told in the client's protocol, if it has a word for it.
    Connected,
}

/// What is spoken on a listener.
#[derive(Clone, PartialEq, Eq)]
pub enum ListenerKind {
    /// SOCKS5, with a password if there are users.
    Socks5 {
        /// Hashes of passwords by user name. Empty: no authentication.
        users: Users,
    },
    /// An HTTP proxy, with Basic authentication if there are users.
    Http {
        /// Hashes of passwords by user name. Empty: no authentication.
        users: Users,
    },
    /// Every connection goes to one destination.
    Forward {
        /// The destination.
        to: Target,
        /// The chain, instead of what the routes say.
        via: Option<Vec<String>>,
        /// How the destination is told who the client is, before the client's first byte.
        proxy_protocol: Option<Version>,
    },
    /// Other nodes: those whose keys are known here, by name.
    Leg(Security<IndexMap<String, Fingerprint>>),
    /// Connections to any destination that pass through this machine.
    Transparent {
        /// Those that come in by these.
        interfaces: Vec<String>,
        /// Whether these may come later than the node.
        late: bool,
        /// Those to these addresses and ports pass as if there were no listener.
        except: Vec<Pattern>,
        /// Whether this node connects to the destination itself when a node of the chain cannot be reached.
        bypass: bool,
    },
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where its leg listener is.
    pub address: Target,
    /// The TCP settings of connections to it.
    pub tcp: Tcp,
    /// How it is known. In TLS by its key; without one it is refused, and the refusal shows which key it has. A warm
    /// connection made otherwise is not taken.
    pub security: Security<Option<Fingerprint>>,
    /// How many idle connections to it are made before a stream wants them, and kept; at most [`Limits::pool`].
    pub warm: usize,
}

/// Why a configuration is refused: one line that says where and what.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", file.display(), Line(*line))]
pub struct ConfigError {
    /// The file at fault.
    pub file: PathBuf,
    /// The line in it, counted from 1, if there is one to name.
    pub line: Option<usize>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Config {
    /// Reads and checks a file that a node is to run from.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let config = Self::parse(&read(file)?, file)?;
        if config.listeners.is_empty() {
            let message = "there is no listener, so nothing would ever come to this node: add a [listen.NAME]".into();
            return Err(ConfigError { file: file.into(), line: None, message });
        }
        Ok(config)
    }

    /// Checks a text, which need not have a listener. `file` is what errors name and what the relative paths in it are relative to.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        resolve::resolve(text, file)
    }
}

/// The text of a configuration.
fn read(file: &Path) -> Result<String, ConfigError> {
    let failed = |error: ReadError| ConfigError { file: file.into(), line: None, message: error.to_string() };
    ekiden_files::read(file, FileKind::Config).map_err(failed)
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[listen.{}]", self.name)
    }
}

impl Listener {
    /// Whether who connects `from` there tells whose connection it is.
    pub fn is_told_by(&self, from: SocketAddr) -> bool {
        self.proxy_protocol_from.iter().any(|net| net.contains(&from.ip()))
    }
}

impl Exit {
    /// Whether connections for `client` are made from its own address.
    pub fn acts_as(&self, client: SocketAddr) -> bool {
        self.client_addresses.iter().any(|net| net.contains(&client.ip()))
    }
}

impl ListenerKind {
    /// The word for it in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Socks5 { .. } => "socks5",
            Self::Http { .. } => "http",
            Self::Forward { .. } => "forward",
            Self::Leg(_) => "leg",
            Self::Transparent { .. } => "transparent",
        }
    }
}

impl Reply {
    /// The word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Connected => "connected",
        }
    }
}

impl fmt::Debug for ListenerKind {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}
