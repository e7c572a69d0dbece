//! The congestion controls that a configuration names: ekiden's own are brought into the kernel, and for each it is said why it
//! cannot be used, if it cannot.

mod parameters;

use std::sync::{Arc, Mutex, PoisonError};

use ekiden_congestion::{Algorithm, CongestionParameters, Tunables};
use ekiden_net::socket::{self, SocketError, TcpOptions};

use crate::{Error, Registration};

pub use parameters::{RawCongestion, sections, show, tunables};

/// Why a congestion control is not available.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Reason {
    /// It could not be brought into the kernel.
    #[error("{0}")]
    Load(Arc<Error>),
    /// The kernel does not have it.
    #[error("this kernel does not have it (available: {available}; ekiden loads {}){}", own(), hint(name))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What the kernel has, separated by spaces.
        available: String,
    },
    /// The kernel has it but does not let this process use it.
    #[error("it needs CAP_NET_ADMIN here (allowed without: {allowed})")]
    Forbidden {
        /// What is allowed, separated by spaces.
        allowed: String,
    },
    /// A system call failed.
    #[error("{0}")]
    Socket(Arc<SocketError>),
}

impl Reason {
    /// Whether a privilege is missing.
    pub fn is_privilege(&self) -> bool {
        match self {
            Self::Forbidden { .. } => true,
            Self::Load(error) => matches!(**error, Error::Capabilities),
            Self::Unknown { .. } | Self::Socket(_) => false,
        }
    }
}

/// Brings those of `names` that are ekiden's own into the kernel, with these parameters or else the defaults, except those that
/// are `held` already. Returns the new registrations, which the caller must keep beside `held`, and which of the names cannot
/// be used. Logs which parameters are not in force.
pub fn register(
    names: &[String],
    tunables: Option<&Tunables>,
    held: &[Registration],
) -> (Vec<Registration>, Vec<(String, Reason)>) {
    let ours: Vec<Algorithm> = names.iter().filter_map(|name| loadable(name)).collect();
    let missing = ours.iter().copied().filter(|&one| !holds(held, one)).collect::<Vec<_>>();
    let registered = match (&missing[..], tunables) {
        ([], _) => Ok(Vec::new()),
        (_, Some(tunables)) => crate::register(&missing, tunables),
        (_, None) => crate::register(&missing, &Tunables::default()),
    };
    let (fresh, refusal) = match registered {
        Ok(fresh) => (fresh, None),
        Err(error) => (Vec::new(), Some(Arc::new(error))),
    };
    for one in held.iter().chain(&fresh).filter(|one| ours.contains(&one.algorithm())) {
        let is_as_wanted = compare(one, tunables.map(Tunables::parameters));
        if is_as_wanted && holds(&fresh, one.algorithm()) {
            tracing::info!("'{}' is in the kernel", one.algorithm());
        }
    }
    let mut unavailable = Vec::new();
    for name in names {
        let is_missing = refusal.is_some() && loadable(name).is_some_and(|one| missing.contains(&one));
        let reason = match (why_unavailable(name), &refusal) {
            (None, Some(error)) if is_missing => {
                let said = format!("'{name}' is used as another process has brought it into the kernel: {error}");
                if is_new(&said) {
                    tracing::info!("{said}");
                }
                None
            }
            (Some(Reason::Unknown { .. }), Some(error)) if is_missing => Some(Reason::Load(error.clone())),
            (reason, _) => reason,
        };
        unavailable.extend(reason.map(|reason| (name.clone(), reason)));
    }
    (fresh, unavailable)
}

/// Which of `names` cannot be used, and why. It loads nothing into the kernel, so it does not try ekiden's own.
pub fn unavailable(names: &[String]) -> Vec<(String, Reason)> {
    let others = names.iter().filter(|name| loadable(name).is_none());
    others.filter_map(|name| Some((name.clone(), why_unavailable(name)?))).collect()
}

/// Why this process cannot use this congestion control. `None` if it can.
pub fn why_unavailable(name: &str) -> Option<Reason> {
    let options = TcpOptions { congestion: Some(name.into()), ..TcpOptions::default() };
    match socket::check(&options).err()? {
        SocketError::UnknownCongestion { name, available } => Some(Reason::Unknown { name, available }),
        SocketError::ForbiddenCongestion { allowed, .. } => Some(Reason::Forbidden { allowed }),
        error => Some(Reason::Socket(Arc::new(error))),
    }
}

fn loadable(name: &str) -> Option<Algorithm> {
    Algorithm::LOADABLE.into_iter().find(|algorithm| algorithm.name() == name)
}

fn holds(held: &[Registration], algorithm: Algorithm) -> bool {
    held.iter().any(|one| one.algorithm() == algorithm)
}

/// Whether this process has not asked for the same text before. What is said at each reload is said once.
pub fn is_new(text: &str) -> bool {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = !said.iter().any(|before| before == text);
    if is_new {
        said.push(text.into());
    }
    is_new
}

/// Logs which parameters in the kernel differ from those of the configuration or, if it has none, from the defaults. Returns whether
/// none does.
fn compare(held: &Registration, wanted: Option<CongestionParameters>) -> bool {
    let name = held.algorithm().name();
    let found = match held.parameters() {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("the parameters of '{name}' are not known: {error}");
            return false;
        }
    };
    let mut differences = Vec::new();
    let expected = wanted.unwrap_or_default();
    let pairs = found.iter().zip(expected.iter());
    for ((key, found), (_, wanted)) in
        pairs.filter(|((key, found), (_, wanted))| held.algorithm().reads(key.name) && found != wanted)
    {
        differences.push(format!("{} is {found}, not {wanted}", key.name));
    }
    let differences = differences.join(", ");
    if differences.is_empty() {
        return true;
    }
    let is_new = is_new(&format!("{name}: {differences}"));
    if wanted.is_some() && is_new {
        tracing::warn!(
            "'{name}' was in the kernel with other parameters than [congestion] has, which stay: {differences} \
             ('ekiden congestion set' changes them)"
        );
    } else if is_new {
        tracing::info!("'{name}' was in the kernel with parameters that are not the defaults: {differences}");
    }
    false
}

/// The names of ekiden's own congestion controls.
fn own() -> String {
    Algorithm::LOADABLE.map(Algorithm::name).join(", ")
}

fn hint(name: &str) -> String {
    let full = format!("ekiden_{}", name.to_ascii_lowercase());
    match loadable(&full) {
        Some(algorithm) => format!("; did you mean {algorithm}?"),
        None => String::new(),
    }
}
