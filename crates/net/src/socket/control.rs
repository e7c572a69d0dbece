//! What decides how fast a connection sends.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use ekiden_units::BitRate;
use socket2::SockRef;

use crate::option::set_int;

/// Bounds the rate at which a connection sends (SO_MAX_PACING_RATE). The kernel spreads its segments accordingly.
///
/// # Errors
/// The kernel's.
pub fn limit_rate(socket: &impl AsFd, rate: BitRate) -> io::Result<()> {
    let bytes_s = i32::try_from(rate.0 / 8).unwrap_or(i32::MAX).max(1);
    set_int(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_s)
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
