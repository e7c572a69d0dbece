//! Brings the congestion controls that a configuration names into the kernel, or replaces them by their fallbacks.

use std::fmt::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_bpf::Registration;
use ekiden_congestion::{Algorithm, CongestionParameters, Tunables};
use ekiden_net::socket::{self, SocketError, TcpOptions};

use crate::config::{Config, Tcp};

/// A congestion control is not available and has no fallback, or is itself the fallback.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {key} '{name}' is not available: {reason}")]
pub struct CongestionUnavailable {
    /// The table of the configuration that names it.
    pub place: String,
    /// The key that names it.
    pub key: &'static str,
    /// Its name.
    pub name: String,
    /// Why it is not available.
    pub reason: Reason,
}

/// Why a congestion control is not available.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Reason {
    /// It could not be brought into the kernel.
    #[error("{0}")]
    Load(Arc<ekiden_bpf::Error>),
    /// The kernel does not have it.
    #[error("this kernel does not have it (available: {available}; ekiden brings {}){}", own(), hint(name))]
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

/// Brings those of ekiden's congestion controls that `config` names into the kernel, with its parameters, except those that are
/// `held` already. Returns the configuration with every unavailable congestion control replaced by its fallback, and the new
/// registrations, which the caller must keep beside `held`. Logs every difference from what the configuration asks for.
///
/// # Errors
/// A congestion control is not available and has no fallback, or a fallback is not available.
pub fn register_or_fall_back(
    config: &Config,
    held: &[Registration],
) -> Result<(Config, Vec<Registration>), CongestionUnavailable> {
    let mut config = config.clone();
    let mut names: Vec<String> = Vec::new();
    for (_, tcp) in tables(&mut config) {
        names.extend(tcp.options.congestion.clone().filter(|name| !names.contains(name)));
    }
    let ours: Vec<Algorithm> = names.iter().filter_map(|name| loadable(name)).collect();
    check_fallbacks(&mut config)?;
    let missing = ours.iter().copied().filter(|&one| !holds(held, one)).collect::<Vec<_>>();
    let registered = match (&missing[..], &config.congestion) {
        ([], _) => Ok(Vec::new()),
        (_, Some(tunables)) => ekiden_bpf::register(&missing, tunables),
        (_, None) => ekiden_bpf::register(&missing, &Tunables::default()),
    };
    let (fresh, refusal) = match registered {
        Ok(fresh) => (fresh, None),
        Err(error) => (Vec::new(), Some(Arc::new(error))),
    };
    for one in held.iter().chain(&fresh).filter(|one| ours.contains(&one.algorithm())) {
        compare(one, config.congestion.as_ref().map(|tunables| tunables.parameters()));
    }
    for name in &names {
        let is_missing = refusal.is_some() && loadable(name).is_some_and(|one| missing.contains(&one));
        let reason = match (trial(name), &refusal) {
            (None, Some(error)) if is_missing => {
                tracing::info!("'{name}' is used as another process has brought it into the kernel: {error}");
                None
            }
            (Some(Reason::Unknown { .. }), Some(error)) if is_missing => Some(Reason::Load(error.clone())),
            (reason, _) => reason,
        };
        if let Some(reason) = reason {
            replace(&mut config, name, &reason)?;
        }
    }
    Ok((config, fresh))
}

/// Checks whether the kernel's congestion controls that `config` names are available. It brings nothing into the kernel, so it
/// does not check ekiden's own.
///
/// # Errors
/// As for [`register_or_fall_back`].
pub fn check(config: &Config) -> Result<(), CongestionUnavailable> {
    let mut config = config.clone();
    check_fallbacks(&mut config)?;
    let mut names: Vec<String> = tables(&mut config).filter_map(|(_, tcp)| tcp.options.congestion.clone()).collect();
    names.retain(|name| loadable(name).is_none());
    names
        .iter()
        .filter_map(|name| Some((name, trial(name)?)))
        .try_for_each(|(name, reason)| replace(&mut config, name, &reason))
}

/// A non-blocking socket ready to connect to `address`. A congestion control that another process has loaded may have gone
/// since the start: then the socket has the fallback.
pub fn outgoing(address: SocketAddr, tcp: &Tcp) -> Result<OwnedFd, SocketError> {
    let error = match socket::outgoing(address, &tcp.options) {
        Err(error @ (SocketError::UnknownCongestion { .. } | SocketError::ForbiddenCongestion { .. })) => error,
        other => return other,
    };
    let Some(fallback) = &tcp.congestion_fallback else {
        once(&format!("connections fail: {error}"));
        return Err(error);
    };
    once(&format!("'{fallback}' is used while it is gone: {error}"));
    let options = TcpOptions { congestion: Some(fallback.clone()), ..tcp.options.clone() };
    socket::outgoing(address, &options)
}

/// All TCP settings of a configuration, each with the name of its table.
fn tables(config: &mut Config) -> impl Iterator<Item = (String, &mut Tcp)> {
    let listeners = config.listeners.iter_mut().map(|(name, listener)| (format!("[listen.{name}]"), &mut listener.tcp));
    let peers = config.peers.iter_mut().map(|(name, peer)| (format!("[peer.{name}]"), &mut peer.tcp));
    // `[tcp]` comes first, so that errors name it: the others may have their settings from there.
    std::iter::once(("[tcp]".to_owned(), &mut config.tcp)).chain(listeners).chain(peers)
}

fn loadable(name: &str) -> Option<Algorithm> {
    Algorithm::LOADABLE.into_iter().find(|algorithm| algorithm.name() == name)
}

fn holds(held: &[Registration], algorithm: Algorithm) -> bool {
    held.iter().any(|one| one.algorithm() == algorithm)
}

/// Why this process cannot use this congestion control. `None` if it can.
fn trial(name: &str) -> Option<Reason> {
    let options = TcpOptions { congestion: Some(name.into()), ..TcpOptions::default() };
    match socket::check(&options).err()? {
        SocketError::UnknownCongestion { name, available } => Some(Reason::Unknown { name, available }),
        SocketError::ForbiddenCongestion { allowed, .. } => Some(Reason::Forbidden { allowed }),
        error => Some(Reason::Socket(Arc::new(error))),
    }
}

/// Checks every fallback, so that one that does not work is noticed before it is needed.
fn check_fallbacks(config: &mut Config) -> Result<(), CongestionUnavailable> {
    for (place, tcp) in tables(config) {
        let Some(name) = tcp.congestion_fallback.clone() else { continue };
        if let Some(reason) = trial(&name) {
            return Err(CongestionUnavailable { place, key: "congestion_fallback", name, reason });
        }
    }
    Ok(())
}

fn replace(config: &mut Config, name: &str, reason: &Reason) -> Result<(), CongestionUnavailable> {
    let mut said: Vec<String> = Vec::new();
    for (place, tcp) in tables(config).filter(|(_, tcp)| tcp.options.congestion.as_deref() == Some(name)) {
        let Some(fallback) = tcp.congestion_fallback.clone() else {
            let (key, name) = ("congestion", name.to_owned());
            return Err(CongestionUnavailable { place, key, name, reason: reason.clone() });
        };
        if !said.contains(&fallback) {
            tracing::warn!(
                "congestion control '{fallback}' is used instead of '{name}', which is not available: {reason}"
            );
            said.push(fallback.clone());
        }
        tcp.options.congestion = Some(fallback);
    }
    Ok(())
}

/// Logs which parameters in the kernel differ from those of the configuration or, if it has none, from the defaults.
fn compare(held: &Registration, wanted: Option<CongestionParameters>) {
    let name = held.algorithm().name();
    let found = match held.parameters() {
        Ok(found) => found,
        Err(error) => return tracing::warn!("the parameters of '{name}' are not known: {error}"),
    };
    let mut differences = String::new();
    let expected = wanted.unwrap_or_default();
    let pairs = found.iter().zip(expected.iter());
    for ((key, found), (_, wanted)) in
        pairs.filter(|((key, found), (_, wanted))| held.algorithm().reads(key.name) && found != wanted)
    {
        let _ = write!(differences, ", {} is {found}, not {wanted}", key.name);
    }
    if differences.is_empty() {
        tracing::info!("'{name}' is in the kernel");
    } else if wanted.is_some() {
        tracing::warn!(
            "'{name}' was in the kernel with other parameters than [congestion] has, which stay{differences} \
             ('ekiden congestion set' changes them)"
        );
    } else {
        tracing::info!("'{name}' was in the kernel with parameters that are not the defaults{differences}");
    }
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

/// Warns, unless the same has been said before.
fn once(text: &str) {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.iter().any(|before| before == text) {
        tracing::warn!("{text}");
        said.push(text.into());
    }
}
