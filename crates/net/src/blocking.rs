//! Connections that a thread of their own serves: connecting within a time, and moving bytes without looking at them.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use socket2::Socket;

/// Connects a socket of [`outgoing`](crate::socket::outgoing) to `address`, and makes it blocking. Closing it ends the connection as
/// usual, with what was sent before.
///
/// # Errors
/// If the connection is refused, or is not there after `patience`.
pub fn connect(socket: OwnedFd, address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = Socket::from(socket);
    socket.connect_timeout(&address.into(), patience)?;
    socket.set_linger(None)?;
    Ok(socket.into())
}

/// Takes up to `most` bytes out of a TCP socket without copying them, and says how many; 0 is the end of the stream. Waits as long as
/// the socket's read timeout says.
///
/// # Errors
/// If the connection is broken; `WouldBlock` after the timeout.
pub fn discard(socket: &impl AsFd, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing (tcp(7)), so that no memory is named.
    let n = unsafe { libc::recv(socket.as_fd().as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A block of bytes in the kernel's memory that sockets send without copying it.
#[derive(Debug)]
pub struct Block(File);

impl Block {
    /// A block of these bytes.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create(c"ekiden-block", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(bytes)?;
        Ok(Self(file))
    }

    /// Sends up to `length` bytes of the block, from byte `from` on, and says how many. Waits as long as the socket's write timeout
    /// says.
    ///
    /// # Errors
    /// If the connection is broken; `WouldBlock` after the timeout.
    pub fn send(&self, socket: &impl AsFd, from: usize, length: usize) -> io::Result<usize> {
        let mut at = libc::off_t::try_from(from).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: both descriptors are open, and the kernel moves the one offset that it is given.
        let n = unsafe { libc::sendfile(socket.as_fd().as_raw_fd(), self.0.as_raw_fd(), &raw mut at, length) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;
    use crate::socket::{TcpOptions, outgoing};

    #[test]
    fn a_block_arrives_and_can_be_discarded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = outgoing(address, &TcpOptions::default()).unwrap();
        let client = connect(socket, address, Duration::from_secs(5)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let block = Block::new(b"0123456789").unwrap();
        assert_eq!(block.send(&client, 2, 5).unwrap(), 5);
        assert_eq!(block.send(&client, 8, 5).unwrap(), 2);
        drop(client);
        let mut taken = 0;
        while taken < 4 {
            taken += discard(&server, 4 - taken).unwrap();
        }
        let mut rest = String::new();
        server.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "689");
        assert_eq!(discard(&server, 10).unwrap(), 0);
    }

    #[test]
    fn nobody_is_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let socket = outgoing(address, &TcpOptions::default()).unwrap();
        let refused = connect(socket, address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
