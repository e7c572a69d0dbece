//! What a node may do, once it has started, that other processes may not.

use ekiden_net::privileges::Capability;

use crate::config::{Config, Listener, ListenerKind, Tcp};

/// Listening below this needs a capability (ip(7), `net.ipv4.ip_unprivileged_port_start` unless it was changed).
const FIRST_FREE_PORT: u16 = 1024;

/// What a node with this configuration goes on using: for each new connection, and for its own end and SIGHUP as long as
/// the configuration then asks for nothing of another kind. Not what brings congestion controls into the kernel: that needs
/// CAP_SYS_ADMIN, with which all others are to be had.
pub fn needed(config: &Config) -> Vec<Capability> {
    let mut needed = Vec::new();
    let listeners = config.listeners.values().map(|listener| &listener.tcp);
    let mut tcps = listeners.chain(config.peers.values().map(|peer| &peer.tcp)).chain([&config.tcp]);
    let transparent = |listener: &Listener| matches!(listener.kind, ListenerKind::Transparent { .. });
    let is_transparent = config.listeners.values().any(transparent) || !config.exit.client_addresses.is_empty();
    // Congestion controls that not everyone may use, and buffers beyond what everyone may have.
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
