//! Sockets with addresses that are not this machine's (IP_TRANSPARENT).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use socket2::SockRef;

use crate::option::set_int;

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
    // The client may have connections to several servers from this port, each of which uses it here too.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Whether `address` is one of this machine's own: the kernel connects to such an address from the same address.
pub fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a UDP socket sends no packet. The port may be any but 0.
    let chosen = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    chosen().is_ok_and(|chosen| chosen == address)
}

/// The addresses of this machine's network devices.
///
/// # Errors
/// The kernel's.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let ip = |address: SockaddrStorage| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
        (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
        _ => None,
    };
    Ok(getifaddrs()?.filter_map(|device| ip(device.address?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(!is_own([192, 0, 2, 1].into()));
        assert!(own_addresses().unwrap().contains(&[127, 0, 0, 1].into()));
    }
}
