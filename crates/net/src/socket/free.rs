//! Whether an address is free to listen on, and waiting until it is.

use std::net::SocketAddr;
use std::time::Instant;

use socket2::{Domain, Protocol, Socket, Type};

use super::SocketError;
use crate::patience::patiently;

/// Fails if another program listens on `address`. With SO_REUSEPORT alone, the port would silently be shared with another
/// process of the same user. Does not listen itself: a client that connected at that moment would be reset.
pub fn ensure_free(address: SocketAddr, only_v6: bool) -> Result<(), SocketError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.bind(&address.into()).map_err(|source| SocketError::Bind { address, source })
}

/// Whether listeners at these addresses would be in each other's way.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (any || one.ip() == other.ip())
}

/// As [`ensure_free`], but waits for what may pass (see [`SocketError::may_pass`]) up to `until`; `waits` is told that it does.
/// Blocks the thread.
pub fn await_free(
    address: SocketAddr,
    only_v6: bool,
    until: Instant,
    waits: impl FnOnce(&SocketError),
) -> Result<(), SocketError> {
    patiently(until, || ensure_free(address, only_v6), SocketError::may_pass, waits)
}
