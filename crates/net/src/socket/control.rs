//! Settings that decide how fast a connection sends.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use ekiden_units::Bytes;
use socket2::{Domain, SockRef, Socket, Type};

use crate::option::set_int;

/// Limits what the socket sends to `bytes_s` bytes of payload per second, evenly spaced (SO_MAX_PACING_RATE). The kernel
/// paces from then on, also below that rate.
///
/// # Errors
/// The kernel's.
pub fn limit_rate(socket: &impl AsFd, bytes_s: u64) -> io::Result<()> {
    // The largest number would mean that it does not pace.
    let bytes_s = bytes_s.min(u64::MAX - 1);
    // SAFETY: the pointer and the length describe `bytes_s`.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_s).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The limit that [`limit_rate`] has set, in bytes per second; the largest number without one.
///
/// # Errors
/// The kernel's.
pub fn rate_limit(socket: &impl AsFd) -> io::Result<u64> {
    let (mut bytes_s, mut size) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the pointers are to `bytes_s` and to its length.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw mut bytes_s).cast(),
            &raw mut size,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes_s) }
}

/// Gives a connection this congestion control. Its route's (`congctl`, ip-route(8)) replaces what was set on a socket before
/// it was connected, and what a listener has.
///
/// # Errors
/// The kernel's, also where the route locks its own.
pub fn set_congestion(socket: &impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

/// The congestion control that a connection has.
///
/// # Errors
/// If it is not a TCP socket.
pub fn congestion(socket: &impl AsFd) -> io::Result<String> {
    let name = SockRef::from(socket).tcp_congestion()?;
    // The kernel fills what is left with zeros.
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The congestion control that connections have which name none.
///
/// # Errors
/// If a socket cannot be made.
pub fn default_congestion() -> io::Result<String> {
    congestion(&Socket::new(Domain::IPV4, Type::STREAM, None)?)
}

/// Limits the window that the socket advertises to `bytes` (TCP_WINDOW_CLAMP). What was advertised before stays.
///
/// # Errors
/// The kernel's.
pub fn clamp_window(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let value = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_int(socket.as_fd().as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, value)
}

/// Makes reads wait until `bytes` bytes have arrived, or the read timeout has passed (SO_RCVLOWAT).
///
/// # Errors
/// The kernel's.
pub fn await_bytes(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let value = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_int(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value)
}

/// Gives a socket a receive window of `window` from the start. A receiver that awaits this many bytes gets the buffer for
/// them (`tcp_set_rcvlowat`), and keeps it when it awaits a single one again. Most kernels before 6.18 clamp the window
/// then, and the SYN's window scale would follow from that: so the clamp is taken back before the SYN.
pub(super) fn begin_with_window(socket: &Socket, window: Bytes) -> io::Result<()> {
    await_bytes(socket, u32::try_from(window.0).unwrap_or(u32::MAX))?;
    await_bytes(socket, 1)?;
    clamp_window(socket, 0)
}
