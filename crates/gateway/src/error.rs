//! Why a gateway does not start, or cannot go on.

use std::io;
use std::path::Path;

use ekiden_files::{FileKind, line_of};
use ekiden_net::privileges::Capability;
use ekiden_service::status_socket::{self, Holder};

use crate::kernel::GatewayError;
use crate::status::socket_name;

/// Why a gateway did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such device.
    #[error("there is no network device '{0}' here; `ip link` shows those of this network namespace")]
    NoDevice(String),
    /// It is not there any more.
    #[error("the device '{0}' is gone: it has been removed, renamed or moved, and this gateway ends")]
    DeviceGone(String),
    /// A device is there, but without the programs.
    #[error(
        "the programs are not on the device '{0}' any more: it has been made anew, or they were removed; this gateway ends"
    )]
    ProgramsGone(String),
    /// Another one does.
    #[error("a gateway runs on the device '{0}' already; `ekiden gateway status {0}` shows it")]
    Runs(String),
    /// Another program has the name of its socket.
    #[error("{}", name_taken(device, *user))]
    NameTaken {
        /// The device.
        device: String,
        /// The number of the user whose program it is, if it tells.
        user: Option<u32>,
    },
    /// The process lacks these capabilities.
    #[error("the gateway lacks {}; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON to start: run it as root", names(.0))]
    Lacks(Vec<Capability>),
    /// The kernel refuses the programs; what the verifier said is in the file.
    #[error("{reason}; all that it said is in {file}")]
    Refused {
        /// What the kernel said last.
        reason: String,
        /// The file with the rest.
        file: String,
    },
    /// The kernel does not do what is asked of it.
    #[error(transparent)]
    Kernel(#[from] GatewayError),
    /// Capabilities that are not needed could not be given up.
    #[error("cannot give up the capabilities that are not needed any more: {0}")]
    Privileges(io::Error),
    /// The event loop could not be made.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// Why no programs were removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// Its process runs.
    #[error("a gateway runs on the device '{0}': end its process first")]
    Runs(String),
    /// Another program has the name of its socket.
    #[error("{}", name_taken(device, *user))]
    NameTaken {
        /// The device.
        device: String,
        /// The number of the user whose program it is, if it tells.
        user: Option<u32>,
    },
    /// There are none.
    #[error("no gateway has left programs on the device '{0}' here")]
    Nothing(String),
    /// The kernel refuses.
    #[error(transparent)]
    Kernel(#[from] GatewayError),
    /// Something else failed.
    #[error("cannot look for programs: {0}")]
    Io(#[from] io::Error),
}

/// `A`, `A and B`, or `A, B and C`.
fn names(capabilities: &[Capability]) -> String {
    let names: Vec<String> = capabilities.iter().map(Capability::to_string).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

fn name_taken(device: &str, user: Option<u32>) -> String {
    let whose = user.map_or("a program that does not answer".into(), |user| format!("a program of user {user}"));
    format!("{whose} has taken the name of this device's gateway, @{}; `ss -xap` shows it: end it", socket_name(device))
}

/// Why the name for this device is taken.
pub(crate) fn taken(device: String) -> StartError {
    match status_socket::holder(&socket_name(&device)) {
        Holder::Own => StartError::Runs(device),
        Holder::Stranger(user) => StartError::NameTaken { device, user: Some(user) },
        Holder::Unknown => StartError::NameTaken { device, user: None },
    }
}

impl StartError {
    /// Where in `file`, a configuration, the key stands that this is about: `FILE:LINE`.
    pub fn place_in(&self, file: &Path) -> Option<String> {
        let key = match self {
            Self::NoDevice(_) | Self::Runs(_) | Self::Kernel(GatewayError::NotEthernet(_)) => "device",
            // The larger table; one of IPv6 takes a little more for each stream.
            Self::Kernel(GatewayError::Memory { streams4, streams6, .. }) if streams6 >= streams4 => "ipv6_streams",
            Self::Kernel(GatewayError::Memory { .. }) => "ipv4_streams",
            Self::Kernel(GatewayError::PinsNeedTcx) => "restart_within",
            _ => return None,
        };
        let text = ekiden_files::read(file, FileKind::Config).ok()?;
        Some(format!("{}:{}", file.display(), line_of(&text, &[key])?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_table_is_named_when_memory_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, "device = \"wan0\"\nipv4_streams = 5\nipv6_streams = 6\n").unwrap();
        for (streams4, streams6, line) in [(5, 6, 3), (6, 5, 2)] {
            let error = StartError::from(GatewayError::Memory { streams4, streams6, megabytes: 1 });
            assert_eq!(error.place_in(&file), Some(format!("{}:{line}", file.display())));
        }
    }
}
