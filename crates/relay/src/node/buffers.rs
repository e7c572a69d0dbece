//! Whether this process may have the buffers that a configuration names.

use ekiden_net::socket::{self, SocketError, TcpOptions};

use super::StartError;
use crate::config::{Config, Tcp};

/// Tries them on a socket.
///
/// # Errors
/// [`StartError::Buffer`].
pub fn check(config: &Config) -> Result<(), StartError> {
    let try_one = |place: String, tcp: &Tcp| {
        let TcpOptions { send_buffer, receive_buffer, .. } = tcp.options;
        let options = TcpOptions { send_buffer, receive_buffer, ..TcpOptions::default() };
        match socket::check(&options) {
            Err(source @ SocketError::Buffer { .. }) => Err(StartError::Buffer { place, source }),
            // Anything else shows where a socket is needed.
            _ => Ok(()),
        }
    };
    // The first is named in errors, and the others may have it from there.
    try_one("[tcp]".into(), &config.tcp)?;
    for (name, listener) in &config.listeners {
        try_one(format!("[listen.{name}]"), &listener.tcp)?;
    }
    config.peers.iter().try_for_each(|(name, peer)| try_one(format!("[peer.{name}]"), &peer.tcp))
}
