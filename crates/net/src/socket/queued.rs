//! How many bytes the kernel holds of a TCP connection, in each direction.

use std::os::fd::{AsFd, AsRawFd};

/// Whether the kernel holds bytes of a TCP connection that it has not sent yet: see [`unsent`].
pub fn has_unsent(socket: &impl AsFd) -> bool {
    unsent(socket) > 0
}

/// How many bytes of a TCP connection the kernel holds that it has not sent yet, because the receiver's window or the path does
/// not take them; 0 if it does not say. Once the connection has broken, the answer may stay what it was.
pub fn unsent(socket: &impl AsFd) -> u64 {
    // `linux/sockios.h`; tcp(7) has its sibling SIOCOUTQ.
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    queued(socket, SIOCOUTQNSD).unwrap_or_default()
}

/// The number of bytes that were sent on a TCP connection and are not acknowledged, or are still to be sent; 0 if the kernel does not say.
pub fn unacknowledged(socket: &impl AsFd) -> u64 {
    // SIOCOUTQ (tcp(7)).
    queued(socket, libc::TIOCOUTQ as _).unwrap_or_default()
}

/// The number of bytes that have arrived on a TCP connection and were not read; 0 if the kernel does not say.
pub fn unread(socket: &impl AsFd) -> u64 {
    queued(socket, libc::FIONREAD as _).unwrap_or_default()
}

/// Asks how many bytes are queued (ioctl(2)). `None` if the kernel does not say.
pub(super) fn queued(socket: &impl AsFd, request: libc::c_ulong) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int there, and nothing if it fails.
    let asked = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request as _, &raw mut bytes) };
    if asked == 0 { u64::try_from(bytes).ok() } else { None }
}
