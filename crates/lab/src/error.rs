//! Errors of a lab, and their kinds.

use std::io;

/// Why a lab could not be built, or a run did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scenario asks for something that only the simulator has.
    #[error("{key}: only `ekiden simulate` can do this; for the lab, {instead}")]
    OnlySimulated {
        /// What asks for it: a key or a table.
        key: String,
        /// What to write instead.
        instead: String,
    },
    /// The machine lacks a privilege or the kernel a feature.
    #[error(transparent)]
    Sandbox(#[from] ekiden_net::sandbox::Error),
    /// The kernel lacks something that the scenario asks for.
    #[error(
        "node '{node}': this kernel has no congestion control '{name}' (it has: {available}); choose another in the scenario, or load its module"
    )]
    Congestion {
        /// The node.
        node: String,
        /// What the scenario asks for.
        name: String,
        /// What there is.
        available: String,
    },
    /// One of ekiden's own congestion controls cannot be brought into the kernel.
    #[error("the scenario uses {name}: {source}")]
    OwnCongestion {
        /// Which.
        name: String,
        /// Why.
        source: ekiden_bpf::Error,
    },
    /// The parameters of congestion controls that the scenario wants are not available.
    #[error("[congestion]: {reason}")]
    CongestionParameters {
        /// Why.
        reason: String,
    },
    /// A step of building the lab failed.
    #[error("cannot {what}: {source}")]
    Build {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The scenario has no such node.
    #[error("the scenario has no node '{name}'; it has: {known}")]
    NoSuchNode {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A program could not be started in a node.
    #[error("cannot start '{program}' in node '{node}': {source}")]
    Program {
        /// The node.
        node: String,
        /// The program.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program that a node needs is not on this machine.
    #[error("node '{node}': there is no '{program}' in PATH or /usr/sbin; Debian's package {package} has it")]
    NoProgram {
        /// The node.
        node: String,
        /// The program.
        program: &'static str,
        /// The package.
        package: &'static str,
    },
    /// A proxy or a tunnel did not come up.
    #[error("the {what} on node '{node}' did not start: {reason}")]
    Node {
        /// `proxy`, `tunnel` or another program.
        what: &'static str,
        /// The node.
        node: String,
        /// What it said, or that it said nothing.
        reason: String,
    },
    /// A flow was refused, broke or stalled.
    #[error("flow '{flow}' failed: {reason}")]
    Flow {
        /// The flow.
        flow: String,
        /// Why.
        reason: String,
    },
    /// The received data differs from the data sent.
    #[error("flow '{flow}': connection {connection} differs from what was sent at byte {at_bytes}")]
    Differs {
        /// The flow.
        flow: String,
        /// The connection, counted from 0.
        connection: u32,
        /// Offset of the first difference.
        at_bytes: u64,
    },
    /// The lab's accuracy is out of its bounds.
    #[error("{missed} of {checks} checks missed their tolerance")]
    Inaccurate {
        /// Checks that failed.
        missed: usize,
        /// Checks made.
        checks: usize,
    },
}

/// The kind of an [`Error`]; the command line has an exit code for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A privilege, kernel feature or program is missing.
    Missing,
    /// The caller asked for something that is not there.
    Usage,
    /// The scenario is not one for a lab.
    Scenario,
    /// The network inside the lab failed.
    Network,
    /// Data arrived changed, or a measurement missed its tolerance.
    Mismatch,
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Sandbox(_)
            | Self::Congestion { .. }
            | Self::OwnCongestion { .. }
            | Self::CongestionParameters { .. }
            | Self::Build { .. }
            | Self::NoProgram { .. }
            | Self::Program { .. } => ErrorKind::Missing,
            Self::NoSuchNode { .. } => ErrorKind::Usage,
            Self::OnlySimulated { .. } => ErrorKind::Scenario,
            Self::Node { .. } | Self::Flow { .. } => ErrorKind::Network,
            Self::Differs { .. } | Self::Inaccurate { .. } => ErrorKind::Mismatch,
        }
    }
}

/// Names the step that an I/O error interrupted.
pub(crate) fn building(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Build { what, source }
}
