//! Brings the congestion controls that a configuration names into the kernel, or replaces them by their fallbacks; and the one that
//! legs have by default, where this host can have it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use ekiden_bpf::Registration;
use ekiden_bpf::named::{self, Reason, is_new, unavailable, why_unavailable};
use ekiden_net::socket::{self, SocketError, TcpOptions};

use crate::config::{Config, Congestion, ListenerKind, Tcp};

/// What legs have by default.
const LEGS: &str = "ekiden_far";

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

/// Brings those of ekiden's congestion controls that `config` names into the kernel, with its parameters, except those that are
/// `held` already. Returns the configuration with every unavailable congestion control replaced by its fallback, with that of legs by
/// default, and the new registrations, which the caller must keep beside `held`. Logs every difference from what the configuration
/// asks for.
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
    check_fallbacks(&mut config)?;
    let (mut fresh, unavailable) = named::register(&names, config.congestion.as_deref(), held);
    for (name, reason) in unavailable {
        replace(&mut config, &name, &reason)?;
    }
    fresh.extend(give_legs_theirs(&mut config, held));
    Ok((config, fresh))
}

/// Gives the legs that name no congestion control the default of legs, if it can be had. It is brought in apart from those that are
/// named: a kernel may take the one and refuse the other. Returns what the caller must keep.
fn give_legs_theirs(config: &mut Config, held: &[Registration]) -> Vec<Registration> {
    if legs(config).next().is_none() {
        return Vec::new();
    }
    let (fresh, unavailable) = named::register(&[LEGS.to_owned()], config.congestion.as_deref(), held);
    if let Some((_, reason)) = unavailable.first() {
        info_once(&format!("legs have the kernel's congestion control, for '{LEGS}' is not available: {reason}"));
        return fresh;
    }
    legs(config).for_each(|tcp| tcp.options.congestion = Some(LEGS.into()));
    fresh
}

/// Checks whether the kernel's congestion controls that `config` names are available. It loads nothing into the kernel, so it
/// does not check ekiden's own.
///
/// # Errors
/// As for [`register_or_fall_back`].
pub fn check(config: &Config) -> Result<(), CongestionUnavailable> {
    let mut config = config.clone();
    check_fallbacks(&mut config)?;
    let names: Vec<String> = tables(&mut config).filter_map(|(_, tcp)| tcp.options.congestion.clone()).collect();
    unavailable(&names).into_iter().try_for_each(|(name, reason)| replace(&mut config, &name, &reason))
}

/// A non-blocking socket ready to connect to `address`. A congestion control that another process has loaded may have gone
/// since the start: then the socket has the fallback.
pub fn outgoing(address: SocketAddr, tcp: &Tcp) -> Result<OwnedFd, SocketError> {
    let error = match socket::outgoing(address, &tcp.options) {
        Err(error @ (SocketError::UnknownCongestion { .. } | SocketError::ForbiddenCongestion { .. })) => error,
        other => return other,
    };
    match (&tcp.congestion_fallback, &tcp.congestion) {
        (_, Congestion::Auto) => {
            warn_once(&format!("legs have the kernel's congestion control while it is gone: {error}"))
        }
        (Some(fallback), _) => warn_once(&format!("'{fallback}' is used while it is gone: {error}")),
        (None, _) => {
            warn_once(&format!("connections fail: {error}"));
            return Err(error);
        }
    }
    let congestion = tcp.congestion_fallback.clone().filter(|_| tcp.congestion != Congestion::Auto);
    socket::outgoing(address, &TcpOptions { congestion, ..tcp.options.clone() })
}

/// Gives a connection its congestion control where its route names another, which the kernel takes when it connects. A route that locks
/// its own keeps it.
pub fn connected(stream: &impl AsFd, tcp: &Tcp) {
    let Some(name) = &tcp.options.congestion else { return };
    if socket::congestion(stream).is_ok_and(|has| has == *name) {
        return;
    }
    if let Err(error) = socket::set_congestion(stream, name) {
        tracing::debug!("a connection does not have the congestion control '{name}': {error}");
    }
}

/// The settings of legs that name no congestion control.
fn legs(config: &mut Config) -> impl Iterator<Item = &mut Tcp> {
    let is_leg = |kind: &ListenerKind| matches!(kind, ListenerKind::Leg(_));
    let listeners = config.listeners.values_mut().filter(move |one| is_leg(&one.kind)).map(|one| &mut one.tcp);
    let all = listeners.chain(config.peers.values_mut().map(|peer| &mut peer.tcp));
    all.filter(|tcp| tcp.congestion == Congestion::Auto)
}

/// All TCP settings of a configuration, each with the name of its table.
fn tables(config: &mut Config) -> impl Iterator<Item = (String, &mut Tcp)> {
    let listeners = config.listeners.iter_mut().map(|(name, listener)| (format!("[listen.{name}]"), &mut listener.tcp));
    let peers = config.peers.iter_mut().map(|(name, peer)| (format!("[peer.{name}]"), &mut peer.tcp));
    // `[tcp]` comes first, so that errors name it: the others may have their settings from there.
    std::iter::once(("[tcp]".to_owned(), &mut config.tcp)).chain(listeners).chain(peers)
}

/// Checks every fallback, so that one that does not work is noticed before it is needed.
fn check_fallbacks(config: &mut Config) -> Result<(), CongestionUnavailable> {
    for (place, tcp) in tables(config) {
        let Some(name) = tcp.congestion_fallback.clone() else { continue };
        if let Some(reason) = why_unavailable(&name) {
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

/// Warns, unless the same has been said before.
fn warn_once(text: &str) {
    if is_new(text) {
        tracing::warn!("{text}");
    }
}

/// Says so, unless the same has been said before.
fn info_once(text: &str) {
    if is_new(text) {
        tracing::info!("{text}");
    }
}
