//! What can go wrong with the kernel.

use std::io;

use ekiden_congestion::{Algorithm, ParameterError};

/// The kind of an [`Error`], for callers that act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The kernel lacks a feature, or the process a capability.
    Unavailable,
    /// The request is wrong.
    Invalid,
    /// Something else failed.
    Failed,
}

/// Why a congestion control could not be brought into the kernel, changed or traced.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux), which eBPF congestion control needs: CONFIG_DEBUG_INFO_BTF, Linux 6.4 or newer"
    )]
    NoBtf,
    /// The process lacks capabilities.
    #[error(
        "eBPF congestion control needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN in the first user namespace: run it as root, or 'ekiden congestion load' as root before"
    )]
    Capabilities,
    /// The kernel refuses the programs.
    #[error("this kernel refuses the eBPF congestion controls (Linux 6.4 or newer is needed): {0}")]
    Refused(String),
    /// Nobody has registered it.
    #[error("{0} is not in the kernel; 'ekiden congestion load' loads it")]
    NotThere(Algorithm),
    /// The running program was loaded by an ekiden with other parameters.
    #[error(
        "{0} was loaded by another version of ekiden; end that one, or 'ekiden congestion unload', and load it anew"
    )]
    OtherVersion(Algorithm),
    /// A trace of nothing.
    #[error("none of ekiden's congestion controls is in the kernel, so there is nothing to trace")]
    NothingToTrace,
    /// Someone else reads the events.
    #[error("another trace is running on {0}; only one can read its events")]
    Traced(Algorithm),
    /// Wrong parameters.
    #[error(transparent)]
    Invalid(#[from] ParameterError),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoBtf | Self::Capabilities | Self::Refused(_) => ErrorKind::Unavailable,
            Self::NotThere(_) | Self::NothingToTrace | Self::Invalid(_) | Self::Traced(_) => ErrorKind::Invalid,
            Self::OtherVersion(_) | Self::System { .. } => ErrorKind::Failed,
        }
    }
}

/// Says what failed, or that capabilities are missing.
pub(crate) fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
    |error| {
        let source = error.into();
        match source.raw_os_error() {
            Some(nix::libc::EPERM) => Error::Capabilities,
            _ => Error::System { what: what.into(), source },
        }
    }
}

/// The same for libbpf's errors.
pub(crate) fn libbpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Error {
    |error| {
        if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && crate::links::may_list().is_err() {
            return Error::Capabilities;
        }
        Error::System { what: what.into(), source: io::Error::other(format!("{error:#}")) }
    }
}
