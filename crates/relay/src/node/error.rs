//! Why a node does not start.

use std::io;
use std::path::Path;

use ekiden_files::{FileKind, line_of};
use ekiden_net::socket::SocketError;
use ekiden_registry::RegistryError;

use crate::host::congestion::CongestionUnavailable;
use crate::host::rules::RulesError;

/// Why a node did not start, or why a new configuration was not taken.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be set up.
    #[error("[listen.{name}]: {source}")]
    Listen {
        /// The listener's name.
        name: String,
        /// What went wrong.
        source: SocketError,
    },
    /// The listeners of a process that stops could not be taken over.
    #[error("{0}")]
    TakeOver(io::Error),
    /// A congestion control is not available, and the configuration names no fallback.
    #[error(transparent)]
    Congestion(#[from] CongestionUnavailable),
    /// A buffer is larger than this process may have.
    #[error("{place}: {source}")]
    Buffer {
        /// Which table of the configuration names it.
        place: String,
        /// What went wrong.
        source: SocketError,
    },
    /// The packet filter or the routing does not do what a transparent listener or exit needs.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The node cannot register in etcd by what its configuration says.
    #[error("[overlay.etcd]: {0}")]
    Registry(#[from] RegistryError),
    /// What the node does not need could not be given up.
    #[error("cannot give up the capabilities that are not needed any more: {0}")]
    Privileges(io::Error),
    /// A thread or event loop could not be made.
    #[error("cannot start a worker thread: {0}")]
    Thread(#[from] io::Error),
}

impl StartError {
    /// Where in `file`, a configuration, the key stands that this is about: `FILE:LINE`.
    pub fn place_in(&self, file: &Path) -> Option<String> {
        let path: Vec<&str> = match self {
            Self::Listen { name, source: SocketError::Bind { .. } } => vec!["listen", name, "address"],
            Self::Listen { name, .. } => vec!["listen", name],
            Self::Rules(RulesError::NoInterface { listener, .. }) => vec!["listen", listener, "interfaces"],
            Self::Congestion(CongestionUnavailable { place, key, .. })
            | Self::Buffer { place, source: SocketError::Buffer { key, .. } } => {
                let table = place.strip_prefix('[')?.strip_suffix(']')?;
                // The key of a buffer has its table before it.
                let tables = table.splitn(2, '.').chain((table != "tcp").then_some("tcp"));
                tables.chain(key.rsplit('.').next()).collect()
            }
            _ => return None,
        };
        let text = ekiden_files::read(file, FileKind::Config).ok()?;
        Some(format!("{}:{}", file.display(), line_of(&text, &path)?))
    }

    /// Whether the machine lacks something: a privilege, such as the one to bind a port below 1024, a congestion control,
    /// descriptors, or what transparent connections need.
    pub fn is_lack(&self) -> bool {
        match self {
            Self::Listen { source: SocketError::Bind { source, .. }, .. } => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            Self::Listen { source, .. } => {
                // That the host has no more descriptors or memory for one, or no IPv6, comes as an error of a call.
                matches!(
                    source,
                    SocketError::ForbiddenCongestion { .. } | SocketError::Transparent { .. } | SocketError::Io(_)
                )
            }
            Self::Congestion(_) | Self::Buffer { .. } | Self::TakeOver(_) | Self::Thread(_) => true,
            Self::Rules(error) => !matches!(error, RulesError::NameInUse { .. }),
            Self::Registry(_) | Self::Privileges(_) => false,
        }
    }

    /// Whether an address may be had later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Listen { source, .. } if source.may_pass())
    }

    /// Whether the process lacks a privilege that the node may have had when it started: a new start may then help.
    pub(crate) fn is_privilege(&self) -> bool {
        match self {
            Self::Congestion(CongestionUnavailable { reason, .. }) => reason.is_privilege(),
            Self::Rules(error) => matches!(error, RulesError::NotAllowed { .. } | RulesError::Refused { .. }),
            Self::Listen { source: SocketError::Io(_), .. } | Self::Thread(_) => false,
            _ => self.is_lack(),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_host_without_descriptors_lacks_something_but_no_privilege() {
        let none = || io::Error::from(Errno::EMFILE);
        let listen = StartError::Listen { name: "s".into(), source: SocketError::Io(none()) };
        for error in [listen, StartError::Thread(none())] {
            assert!(error.is_lack() && !error.is_privilege(), "{error}");
        }
    }
}
