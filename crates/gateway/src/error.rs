//! Why a gateway does not start, or cannot go on.

use std::io;
use std::path::Path;

use ekiden_bpf::gateway::GatewayError;
use ekiden_files::{FileKind, line_of};

/// Why a gateway did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such device.
    #[error("there is no network device '{0}' here; `ip link` shows those of this network namespace")]
    NoDevice(String),
    /// Somebody has removed it.
    #[error("the device '{0}' is gone: somebody has removed it, and this gateway ends")]
    DeviceGone(String),
    /// Another one does.
    #[error("a gateway runs on the device '{0}' already; `ekiden gateway status {0}` shows it")]
    Runs(String),
    /// The kernel refuses the programs; what the verifier said is in the file.
    #[error("{reason}; all that it said is in {file}")]
    Refused {
        /// What the kernel said last.
        reason: String,
        /// Where the rest is.
        file: String,
    },
    /// The kernel does not do what is asked of it.
    #[error(transparent)]
    Kernel(#[from] GatewayError),
    /// What is not needed could not be given up.
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

impl StartError {
    /// Where in `file`, a configuration, the key stands that this is about: `FILE:LINE`.
    pub fn place_in(&self, file: &Path) -> Option<String> {
        let key = match self {
            Self::NoDevice(_) | Self::Runs(_) | Self::Kernel(GatewayError::NotEthernet(_)) => "device",
            Self::Kernel(GatewayError::Memory { .. }) => "ipv4_streams",
            Self::Kernel(GatewayError::PinsNeedTcx) => "restart_within",
            _ => return None,
        };
        let text = ekiden_files::read(file, FileKind::Config).ok()?;
        Some(format!("{}:{}", file.display(), line_of(&text, &[key])?))
    }
}
