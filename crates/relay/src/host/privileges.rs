//! The capabilities that a node keeps after its start.

use ekiden_net::privileges::Capability;

use crate::config::{Config, Listener, ListenerKind, Tcp};

/// Listening on a lower port needs CAP_NET_BIND_SERVICE, unless `net.ipv4.ip_unprivileged_port_start` was changed (ip(7)).
const FIRST_FREE_PORT: u16 = 1024;

/// The capabilities that a node with this configuration needs after its start: for new connections, for its own end, and for
/// SIGHUP if the new configuration needs no others. CAP_SYS_ADMIN, which it needs to load congestion controls into the kernel,
/// is not among them: a process that has it can get all others.
pub fn needed(config: &Config) -> Vec<Capability> {
    let mut needed = Vec::new();
    let listeners = config.listeners.values().map(|listener| &listener.tcp);
    let mut tcps = listeners.chain(config.peers.values().map(|peer| &peer.tcp)).chain([&config.tcp]);
    let transparent = |listener: &Listener| matches!(listener.kind, ListenerKind::Transparent { .. });
    let is_transparent = config.listeners.values().any(transparent) || !config.exit.client_addresses.is_empty();
    // CAP_NET_ADMIN allows congestion controls that are restricted, and buffers beyond the system's limit.
    let is_special = |tcp: &Tcp| {
        let options = &tcp.options;
        options.congestion.is_some() || options.send_buffer.is_some() || options.receive_buffer.is_some()
    };
    if is_transparent || tcps.any(is_special) {
        needed.push(Capability::CAP_NET_ADMIN);
    }
    if config.listeners.values().any(|listener| (1..FIRST_FREE_PORT).contains(&listener.address.port())) {
        needed.push(Capability::CAP_NET_BIND_SERVICE);
    }
    needed
}
