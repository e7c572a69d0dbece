//! Why a tunnel does not start, or cannot go on.

use std::io;
use std::path::Path;

use ekiden_bpf::named::Reason;
use ekiden_files::{FileKind, line_of};
use ekiden_net::socket::SocketError;
use ipnet::IpNet;

/// Why a tunnel did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The name is taken.
    #[error("[device]: a device '{0}' is there already; `ip link show {0}` shows it")]
    DeviceInUse(String),
    /// The kernel has no TUN devices, or does not show them here.
    #[error(
        "/dev/net/tun is not there; `modprobe tun` loads it, and a container must be given it (--device /dev/net/tun)"
    )]
    NoTun,
    /// A capability is missing.
    #[error("cannot make the device '{name}': {source}; it needs CAP_NET_ADMIN")]
    Forbidden {
        /// The device.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The device cannot have an address.
    #[error("[device]: cannot give '{name}' the address {address}: {source}{}", hint(*address, source))]
    Address {
        /// With the network around it.
        address: IpNet,
        /// The device.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A peer's network cannot be routed to the device.
    #[error("[peer.{peer}]: cannot route {network} to '{name}': {source}{}", hint(*network, source))]
    Route {
        /// What the peer has.
        network: IpNet,
        /// The peer.
        peer: String,
        /// The device.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Anything else about the device.
    #[error("cannot {what} '{name}': {source}")]
    Device {
        /// What was to be done.
        what: String,
        /// The device.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Somebody has removed it, or taken it down.
    #[error(
        "the device '{0}' is gone: somebody has removed it or taken it down, and with it its routes; this tunnel ends"
    )]
    DeviceGone(String),
    /// A tunnel that runs has given up what this takes.
    #[error("{0}: what is new there only a start can take; restart it")]
    OnlyAtStart(&'static str),
    /// The listener could not be set up.
    #[error("[listen]: {0}")]
    Listen(SocketError),
    /// The TCP settings cannot be used here.
    #[error("[tcp]: {0}")]
    Tcp(SocketError),
    /// A congestion control is not available.
    #[error("[tcp]: congestion '{name}' is not available: {reason}")]
    Congestion {
        /// Its name.
        name: String,
        /// Why it is not available.
        reason: Reason,
    },
    /// What is not needed could not be given up.
    #[error("cannot give up the capabilities that are not needed any more: {0}")]
    Privileges(io::Error),
    /// The event loop could not be made.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

impl StartError {
    /// Where in `file`, a configuration, the key stands that this is about: `FILE:LINE`.
    pub fn place_in(&self, file: &Path) -> Option<String> {
        let path = match self {
            Self::DeviceInUse(_) => vec!["device", "name"],
            Self::Address { .. } => vec!["device", "addresses"],
            Self::Route { peer, .. } => vec!["peer", peer, "allowed"],
            Self::Listen(SocketError::Bind { .. }) => vec!["listen", "address"],
            Self::Congestion { .. } => vec!["tcp", "congestion"],
            Self::Tcp(SocketError::Buffer { key, .. }) => vec!["tcp", key.rsplit('.').next()?],
            _ => return None,
        };
        let text = ekiden_files::read(file, FileKind::Config).ok()?;
        Some(format!("{}:{}", file.display(), line_of(&text, &path)?))
    }

    /// Whether this machine lacks something, as opposed to the network.
    pub fn is_lack(&self) -> bool {
        !matches!(self, Self::Listen(SocketError::Bind { .. }))
    }
}

/// What to do about an address or a route that the kernel does not take.
fn hint(network: IpNet, error: &io::Error) -> String {
    let is_v6 = matches!(network, IpNet::V6(_));
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let family = if is_v6 { " -6" } else { "" };
            let network = network.trunc();
            format!("; a route to {network} is there already: `ip{family} route show {network}` shows it")
        }
        // CAP_NET_ADMIN has sufficed to make the device.
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported if is_v6 => {
            "; IPv6 is off here: `sysctl net.ipv6.conf.all.disable_ipv6` shows it, and 0 is on".into()
        }
        _ => String::new(),
    }
}
