//! From one connection of a socket to its next.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use socket2::SockRef;

/// Makes a socket whose connection is over ready to connect again, by connecting it to no address (connect(2)). Its options
/// stay.
pub fn disconnect(socket: &impl AsFd) -> io::Result<()> {
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as _, sa_data: [0; 14] };
    let length = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `nowhere`.
    match unsafe { libc::connect(socket.as_fd().as_raw_fd(), &raw const nowhere, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Begins to connect a non-blocking socket. It becomes writable when it is connected, and has an error if that fails.
pub fn begin_connect(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    match SockRef::from(socket).connect(&address.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        other => other,
    }
}
