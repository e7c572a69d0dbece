//! Sockets with addresses that are not this machine's (IP_TRANSPARENT).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use socket2::SockRef;

use crate::socket::set_int;

/// Lets `socket`, of the family of `address`, have any address. Needs CAP_NET_ADMIN.
///
/// # Errors
/// EPERM, mostly.
pub fn allow_foreign(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
    }
}

/// Gives a socket that is to connect the address `client`, with its port or, without `same_port`, one that the kernel
/// chooses when it connects.
///
/// # Errors
/// EADDRINUSE, if a listener here has the port; EPERM without CAP_NET_ADMIN.
pub fn bind_as(socket: &impl AsFd, client: SocketAddr, same_port: bool) -> io::Result<()> {
    allow_foreign(socket, client)?;
    let mut address = client;
    if !same_port {
        address.set_port(0);
        // Both families have the option at this level.
        set_int(socket.as_fd().as_raw_fd(), libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
    }
    let socket = SockRef::from(socket);
    // The port is in use as often as the client has connections with it to different servers.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Whether `address` is one of this machine's own: the kernel reaches those from themselves.
pub fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // No packet is sent. The port only must not be 0.
    let chosen = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    chosen().is_ok_and(|chosen| chosen == address)
}

/// Whether connections with addresses that are not this machine's were closed by their process and have still to
/// deliver what was written to them, or their end.
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn has_undelivered() -> io::Result<bool> {
    for file in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        let list = match std::fs::read_to_string(file) {
            Ok(list) => list,
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if list.lines().skip(1).filter_map(undelivered).any(|local| !is_own(local)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The local address of a line of /proc/net/tcp (proc_pid_net(5)), if it is of a connection that is on its way out
/// without a process.
fn undelivered(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?.split(':').next()?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    // FIN_WAIT1, LAST_ACK, CLOSING: the end was not acknowledged yet.
    if inode != "0" || !matches!(state, "04" | "09" | "0B") {
        return None;
    }
    let word = |at: usize| Some(u32::from_str_radix(local.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    if local.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (i, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        chunk.copy_from_slice(&word(i * 8)?);
    }
    Some(Ipv6Addr::from(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(!is_own([192, 0, 2, 1].into()));
    }

    #[test]
    fn only_orphans_that_wait_for_an_acknowledgement_count() {
        let line = |state: &str, inode: &str| {
            format!(
                "   1: {:08X}:1F90 0200010A:9C41 {state} 00000000:00000000 01:0000 00000000     0        0 {inode} 1 0",
                u32::from_ne_bytes([10, 3, 0, 2])
            )
        };
        assert_eq!(undelivered(&line("04", "0")), Some([10, 3, 0, 2].into()));
        assert_eq!(undelivered(&line("0B", "0")), Some([10, 3, 0, 2].into()));
        assert_eq!(undelivered(&line("01", "0")), None);
        assert_eq!(undelivered(&line("04", "4711")), None);
        assert_eq!(undelivered("garbage"), None);
    }
}
