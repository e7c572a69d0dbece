//! A node's configuration: one TOML file, read once into [`Config`] with every default in place.

pub mod address;
pub mod classes;
pub mod destinations;
pub mod edit;
pub mod join;
mod limits;
mod list;
pub mod overlay;
pub mod pattern;
mod raw;
mod resolve;
pub mod route;
mod show;
pub mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ekiden_congestion::Tunables;
pub use ekiden_files::ConfigError;
use ekiden_files::read_config;
use ekiden_keys::{Fingerprint, Identity};
use ekiden_net::socket::TcpOptions;
use ekiden_relay_proto::Target;
use ekiden_relay_proto::proxy_protocol::Version;
use ekiden_service::followed::Follow;
use ekiden_transport::Security;
use ekiden_units::HostPort;
use indexmap::IndexMap;
use ipnet::IpNet;

use crate::access::users::Users;
use crate::config::classes::Classes;
use crate::config::destinations::Destinations;
use crate::config::overlay::Overlay;
use crate::config::pattern::Pattern;
use crate::config::route::Routes;
use crate::config::tls::ListenerTls;
use ekiden_config::words;
pub use ekiden_config::{Key, Section};
pub use limits::Limits;
use raw::RawKind;
pub use raw::members::member_sections;
pub use raw::sections;

/// A node's configuration, resolved and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's name, as other nodes' logs show it.
    pub name: String,
    /// This node's own key. Present if it speaks TLS to another node.
    pub identity: Option<Identity>,
    /// Whether lines of the log about streams that failed name the client's address and the destination.
    pub log_addresses: bool,
    /// Worker threads, at least 1.
    pub threads: usize,
    /// The TCP settings of connections to destinations.
    pub tcp: Tcp,
    /// The parameters of the congestion controls that this node loads into the kernel, with what is computed from them.
    /// `None`: the defaults, or whatever another process has given them.
    pub congestion: Option<Box<Tunables>>,
    /// Limits on what clients and other nodes can make this node hold or do.
    pub limits: Limits,
    /// Where connections are accepted, by name.
    pub listeners: IndexMap<String, Listener>,
    /// The nodes this one connects to, by name.
    pub peers: IndexMap<String, Peer>,
    /// How a destination is reached.
    pub routes: Routes,
    /// What streams are for, and what they get of legs.
    pub classes: Classes,
    /// What this node does where it connects to destinations.
    pub exit: Exit,
    /// The overlay that this node is of.
    pub overlay: Option<Overlay>,
    /// Where the key was read from.
    key_file: Option<PathBuf>,
}

/// What a node does as the exit, where it connects to destinations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exit {
    /// The networks of clients whose own address and port it connects from. It learns these from a transparent listener, its
    /// own or that of another node of the chain.
    pub client_addresses: Vec<IpNet>,
    /// Destinations that it connects to although their addresses are private, loopback, link-local, multicast or this host's
    /// own.
    pub allow: Destinations,
}

/// Which congestion control connections have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Congestion {
    /// Legs have `ekiden_far` where this host can have it. All others have the kernel's.
    #[default]
    Auto,
    /// The kernel's: by the route, or the host's default.
    Kernel,
    /// The one of this name.
    Named(String),
}

impl Congestion {
    const AUTO: &str = "auto";
    const KERNEL: &str = "kernel";

    fn of(word: &str) -> Self {
        match word {
            Self::AUTO => Self::Auto,
            Self::KERNEL => Self::Kernel,
            name => Self::Named(name.into()),
        }
    }

    fn word(&self) -> &str {
        match self {
            Self::Auto => Self::AUTO,
            Self::Kernel => Self::KERNEL,
            Self::Named(name) => name,
        }
    }

    fn name(&self) -> Option<&String> {
        match self {
            Self::Named(name) => Some(name),
            _ => None,
        }
    }
}

/// The TCP settings of a connection, and what to do without its congestion control.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tcp {
    /// The options of its sockets. Their congestion control is that of `congestion`, if it is named, until the node starts.
    pub options: TcpOptions,
    /// Which congestion control it is to have.
    pub congestion: Congestion,
    /// The congestion control to use if the one in `options` is not available. With `None` the node then does not start.
    pub congestion_fallback: Option<String>,
}

/// One listening address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its name, as errors and the log show it.
    pub name: String,
    /// Its kind, with the settings that only this kind has.
    pub kind: ListenerKind,
    /// The address and port that it listens on.
    pub address: SocketAddr,
    /// Whether `[::]` means IPv6 only here. It does if another listener has an IPv4 address with the same port.
    pub only_v6: bool,
    /// When the client is told that its destination is reached.
    pub reply: Reply,
    /// Connections from these networks must begin with a PROXY protocol header, which says who the client is.
    pub proxy_protocol_from: Vec<IpNet>,
    /// The service class of its clients' streams.
    pub class: Option<String>,
    /// TLS with its clients.
    pub tls: Option<Arc<ListenerTls>>,
    /// The TCP settings of connections accepted here.
    pub tcp: Tcp,
}

words! {
    /// When the client is told that its destination is reached.
    Reply {
        /// At once. The client's first bytes travel together with the request to open the stream. A failure resets the client's
        /// connection.
        Early = "early",
        /// When it is reached. A failure is reported in the client's protocol, if that has a message for it.
        Connected = "connected",
    }
}

/// What a listener takes.
#[derive(Clone, PartialEq, Eq)]
pub enum ListenerKind {
    /// SOCKS5, with a password if there are users.
    Socks5 {
        /// `None`: clients need no password.
        users: Option<Users>,
    },
    /// An HTTP proxy, with Basic authentication if there are users.
    Http {
        /// `None`: clients need no password.
        users: Option<Users>,
    },
    /// SOCKS5, SOCKS4 and 4a, and an HTTP proxy: a client's first byte tells which it speaks. With users, SOCKS4 is refused.
    Mixed {
        /// `None`: clients need no password.
        users: Option<Users>,
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
    /// Other nodes. With TLS, those whose keys are known here, by name; without, all that have the shared key.
    Leg(Security<IndexMap<String, Fingerprint>>),
    /// Connections that pass through this machine, to any destination.
    Transparent {
        /// Only connections that come in by these network interfaces are taken.
        interfaces: Vec<String>,
        /// Whether these interfaces may appear after the node has started.
        late: bool,
        /// Connections to these addresses and ports pass as if there were no listener.
        except: Vec<Pattern>,
        /// Whether this node connects to the destination itself when a node of the chain cannot be reached.
        bypass: bool,
    },
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where its leg listener is.
    pub address: HostPort,
    /// The TCP settings of connections to it.
    pub tcp: Tcp,
    /// How the peer proves that it is the right one. With TLS it proves the key that has this fingerprint. Without a
    /// fingerprint it is refused, and the error shows the fingerprint of its key. A warm connection that was made under another
    /// setting is not used.
    pub security: Security<Option<Fingerprint>>,
    /// How many idle connections to it are made in advance and kept, at most [`Limits::pool`].
    pub warm: usize,
}

impl Config {
    /// Whether more than one use this node: nodes, by their keys, or clients of other listeners.
    pub fn serves_several(&self) -> bool {
        let users = self.listeners.values().map(|listener| match &listener.kind {
            ListenerKind::Leg(Security::Tls { known, .. }) => known.len(),
            _ => 1,
        });
        users.sum::<usize>() > 1
    }

    /// Refuses peers that have this node's own key: mostly the wrong fingerprint was copied. Nodes that share a key run all the same.
    ///
    /// # Errors
    /// There is such a peer.
    pub fn refuse_own_as_peer(&self, file: &Path) -> Result<(), ConfigError> {
        let Some(own) = self.identity.as_ref().map(Identity::fingerprint) else { return Ok(()) };
        let is_own = |peer: &Peer| matches!(&peer.security, Security::Tls { known: Some(known), .. } if *known == own);
        let Some((name, _)) = self.peers.iter().find(|(_, peer)| is_own(peer)) else { return Ok(()) };
        let message = format!(
            "[peer.{name}] fingerprint: {own} is the key of this node itself; that of '{name}' is what `ekiden keygen --show` prints there"
        );
        Err(ConfigError::whole(file, message))
    }

    /// A warning if this node is not in its own members file, so that the others would not know it; or is, and they cannot reach it.
    pub fn membership_warning(&self) -> Option<String> {
        let overlay = self.overlay.as_ref()?;
        let (file, node) = (overlay.members_file.as_ref()?.display(), &self.name);
        match overlay.members.get(node) {
            None => Some(format!(
                "this node, '{node}', is not in {file}: nodes that read the same file refuse its connections"
            )),
            Some(_) if !self.has_leg_listener() => Some(format!(
                "this node, '{node}', is in {file}, and no other reaches it: add a [listen.NAME] with kind = \"leg\""
            )),
            Some(_) => None,
        }
    }

    /// The files of users and destinations, which are read again when they change.
    pub fn followed(&self) -> Vec<Arc<dyn Follow>> {
        let users = self.listeners.values().filter_map(|listener| listener.kind.users()?.file());
        let lists = self.routes.iter().flat_map(|route| route.to.files()).chain(self.exit.allow.files());
        let users = users.map(|file| file.clone() as Arc<dyn Follow>);
        let mut files: Vec<_> = users.chain(lists.map(|file| file.clone() as Arc<dyn Follow>)).collect();
        // Several may have the same.
        files.sort_by_key(|file| Arc::as_ptr(file).cast::<()>());
        files.dedup_by_key(|file| Arc::as_ptr(file).cast::<()>());
        files
    }

    /// The name that a listener has for the node with this fingerprint.
    pub fn node_of_key(&self, fingerprint: &str) -> Option<&str> {
        let known = self.listeners.values().filter_map(|listener| match &listener.kind {
            ListenerKind::Leg(Security::Tls { known, .. }) => Some(known),
            _ => None,
        });
        known.flatten().find(|(_, key)| key.to_string() == fingerprint).map(|(name, _)| name.as_str())
    }

    /// Whether other nodes can connect to it.
    pub fn has_leg_listener(&self) -> bool {
        self.listeners.values().any(|listener| matches!(listener.kind, ListenerKind::Leg(_)))
    }

    /// Reads and checks a file that a node is to run from.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let config = Self::parse(&read_config(file)?, file)?;
        if config.listeners.is_empty() {
            let message = "there is no listener, so nothing would ever come to this node: add a [listen.NAME]";
            return Err(ConfigError::whole(file, message));
        }
        Ok(config)
    }

    /// What a file says of its node itself, whether or not the rest of it can be used yet.
    ///
    /// # Errors
    /// The file cannot be read, or is no configuration.
    pub fn own(file: &Path) -> Result<OwnNode, ConfigError> {
        resolve::own(&read_config(file)?, file)
    }

    /// Checks a text, which need not have a listener. Errors name `file`, and relative paths in the text start at its folder.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        resolve::resolve(text, file)
    }
}

/// What a file says of its node itself.
#[derive(Debug)]
pub struct OwnNode {
    /// The node's name.
    pub name: String,
    /// The fingerprint of its key, if it has one.
    pub key: Option<Fingerprint>,
    /// Whether other nodes can connect to it.
    pub has_leg_listener: bool,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[listen.{}]", self.name)
    }
}

impl Listener {
    /// Whether its clients say who they are.
    pub fn has_users(&self) -> bool {
        self.asks_for_certificates() || self.kind.users().is_some()
    }

    /// Whether a connection from this address must begin with a PROXY protocol header, which says who its client is.
    pub fn expects_proxy_header(&self, from: SocketAddr) -> bool {
        self.proxy_protocol_from.iter().any(|net| net.contains(&from.ip()))
    }
}

impl Exit {
    /// Whether connections for `client` are made from the client's own address.
    pub fn acts_as(&self, client: SocketAddr) -> bool {
        self.client_addresses.iter().any(|net| net.contains(&client.ip()))
    }
}

impl ListenerKind {
    /// Its users. `None`: its clients need no password.
    pub fn users(&self) -> Option<&Users> {
        match self {
            Self::Socks5 { users } | Self::Http { users } | Self::Mixed { users } => users.as_ref(),
            Self::Forward { .. } | Self::Leg(_) | Self::Transparent { .. } => None,
        }
    }

    /// The word for it in the configuration.
    pub fn word(&self) -> &'static str {
        let kind = match self {
            Self::Socks5 { .. } => RawKind::Socks5,
            Self::Http { .. } => RawKind::Http,
            Self::Mixed { .. } => RawKind::Mixed,
            Self::Forward { .. } => RawKind::Forward,
            Self::Leg(_) => RawKind::Leg,
            Self::Transparent { .. } => RawKind::Transparent,
        };
        kind.word()
    }
}

impl fmt::Debug for ListenerKind {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
