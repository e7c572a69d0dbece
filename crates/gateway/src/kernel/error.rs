//! What can go wrong with a gateway.

use std::io;

/// Why a gateway could not be loaded, attached or read.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The process lacks capabilities.
    #[error("the gateway needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON in the first user namespace: run it as root")]
    Capabilities,
    /// The kernel refuses the programs.
    #[error("this kernel refuses the gateway's programs (Linux 5.17 or newer is needed): {reason}")]
    Refused {
        /// The last that was said.
        reason: String,
        /// All that libbpf and the verifier said.
        log: String,
    },
    /// The process may not open any more.
    #[error("too many open files for this process: `ulimit -n` shows how many it may have, and raises that")]
    OpenFiles,
    /// The tables are too large.
    #[error(
        "the kernel has no memory for tables of {streams4} streams of IPv4 and {streams6} of IPv6, about {megabytes} MB"
    )]
    Memory {
        /// The places for streams of IPv4.
        streams4: u32,
        /// And of IPv6.
        streams6: u32,
        /// What they take, in 10⁶ bytes.
        megabytes: u64,
    },
    /// A table without a place.
    #[error("a table of 0 streams holds none; at least 1 is needed, for IPv4 as for IPv6")]
    NoPlaces,
    /// Too many groups, or none.
    #[error("{0} groups: there may be 1 to 64")]
    GroupCount(usize),
    /// A group has no networks that a stream could be between.
    #[error("group {0} has no source network and destination network of the same IP version")]
    NoNetworks(usize),
    /// Neither of two groups is the more specific one. Their numbers, from 0.
    #[error("groups {0} and {1} overlap, and neither is the more specific one for all that both match")]
    Overlap(usize, usize),
    /// A window scale out of its range.
    #[error("group {0} assumes a window scale of {1}; the largest is 14")]
    Scale(usize, u8),
    /// There is no such device in this network namespace.
    #[error("there is no network device of number {0} here")]
    NoDevice(i32),
    /// A device whose packets do not begin with an Ethernet header.
    #[error("{0} carries no Ethernet frames, which is all that the gateway reads")]
    NotEthernet(String),
    /// The kernel has no tcx, and pins need it.
    #[error("pinning needs programs attached by tcx (Linux 6.6 or newer)")]
    PinsNeedTcx,
    /// Something is pinned there.
    #[error("a gateway is pinned as '{0}' already")]
    Pinned(String),
    /// Nothing is pinned there.
    #[error("no gateway is pinned as '{0}'")]
    NotPinned(String),
    /// It was pinned by another version of ekiden.
    #[error("the gateway pinned as '{0}' was loaded by another version of ekiden; remove it, and load it anew")]
    OtherVersion(String),
    /// A name that cannot be a file's.
    #[error("'{0}' cannot be the name of a pinned gateway: letters, digits, '-' and '_' can")]
    Name(String),
    /// The pins are another user's.
    #[error(
        "cannot {what}: this user may not, and the pins in {place} are needed for `restart_within` and `remove`: run it as root",
        place = ekiden_bpf::bpffs::PLACE
    )]
    MayNotPin {
        /// What was tried.
        what: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Says what failed, or that capabilities are missing.
pub(crate) fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> GatewayError {
    |error| {
        let source = error.into();
        match source.raw_os_error() {
            Some(nix::libc::EPERM) => GatewayError::Capabilities,
            Some(nix::libc::EMFILE) => GatewayError::OpenFiles,
            _ => GatewayError::System { what: what.into(), source },
        }
    }
}

/// The same for libbpf's errors.
pub(crate) fn libbpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> GatewayError {
    |error| match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => GatewayError::Capabilities,
        _ if is_of_open_files(&error) => GatewayError::OpenFiles,
        _ => GatewayError::System { what: what.into(), source: io::Error::other(format!("{error:#}")) },
    }
}

/// libbpf-rs has no kind for it, and hides the number.
pub(super) fn is_of_open_files(error: &libbpf_rs::Error) -> bool {
    format!("{error:#}").contains(&io::Error::from_raw_os_error(nix::libc::EMFILE).to_string())
}
