//! Settings of a network device for which there is no netlink message, or none in wide use.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::kernel_text::kernel_text;

/// The longest interface name the kernel takes, in bytes.
pub const NAME_BYTES_MOST: usize = 15;

/// Turns transmit checksum offload off, as `ethtool -K DEVICE tx off`, and with it segmentation offload.
///
/// Packets taken from a veth by a packet socket then carry finished checksums and are no larger than the MTU.
///
/// # Errors
/// If there is no such device in this namespace, or it may not be changed.
pub fn disable_transmit_offload(device: &str) -> io::Result<()> {
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut value = EthtoolValue { command: ETHTOOL_STXCSUM, data: 0 };
    let mut request = InterfaceRequest { name: name(device)?, data: &raw mut value, padding: [0; 16] };
    // SAFETY: `request` is an ifreq (16 bytes of name, then a union whose pointer member SIOCETHTOOL uses, padded to
    // the union's size); it and `value` outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The index of `device` in the namespace of the calling thread.
///
/// # Errors
/// If there is no such device.
pub fn index(device: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(device)?)
}

/// The index of the interface that the zone of an IPv6 address names, by its name or its number (RFC 4007 section 11.2).
///
/// # Errors
/// If there is no such interface in the namespace of the calling thread.
pub fn zone_index(zone: &str) -> io::Result<u32> {
    match zone.parse() {
        // Without such an interface nix gives an empty name.
        Ok(number) => match nix::net::if_::if_indextoname(number) {
            Ok(name) if !name.is_empty() => Ok(number),
            _ => Err(io::Error::other(format!("there is no network interface of number {number}"))),
        },
        Err(_) => index(zone).map_err(|_| io::Error::other(format!("there is no network interface '{zone}'"))),
    }
}

/// How many packets of this host `device` has dropped before they were taken from it, in the namespace of the calling thread.
///
/// # Errors
/// If there is no such device, or /proc cannot be read.
pub fn dropped(device: &str) -> io::Result<u64> {
    // Columns: those of reception, eight of them, then bytes, packets, errors and drops of transmission (proc_pid_net(5)).
    const COLUMN: usize = 11;
    let text = kernel_text("/proc/thread-self/net/dev")?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let columns = lines.find(|(name, _)| name.trim() == device).map(|(_, columns)| columns);
    let count = columns.and_then(|columns| columns.split_whitespace().nth(COLUMN)?.parse().ok());
    count.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The devices that are up and running, without loopback, and the MTU of each in bytes: in the namespace of the calling thread.
///
/// # Errors
/// If the kernel does not tell.
pub fn running() -> io::Result<Vec<(String, u32)>> {
    const WANTED: i32 = libc::IFF_UP | libc::IFF_RUNNING;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut found = Vec::new();
    for interface in &nix::net::if_::if_nameindex()? {
        let device = interface.name().to_string_lossy();
        // One that goes meanwhile is not there.
        let Ok(flags) = ask(&socket, &device, libc::SIOCGIFFLAGS as _) else { continue };
        let Ok(mtu) = ask(&socket, &device, libc::SIOCGIFMTU as _) else { continue };
        // Flags are a short (netdevice(7)).
        let flags = flags & 0xffff;
        if flags & WANTED == WANTED && flags & libc::IFF_LOOPBACK == 0 {
            found.push((device.into_owned(), mtu.unsigned_abs()));
        }
    }
    Ok(found)
}

/// What the kernel writes behind the name in an ifreq, as an integer.
fn ask(socket: &Socket, device: &str, command: libc::Ioctl) -> io::Result<i32> {
    let mut request = NumberRequest { name: name(device)?, number: 0, padding: [0; 20] };
    // SAFETY: `request` is an ifreq (16 bytes of name, then a union of 24), of which these commands write an int or a short.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), command, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request.number) }
}

/// Whether this error of a TUN device's descriptor says that somebody has removed the device.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    data: *mut EthtoolValue,
    padding: [u8; 16],
}

#[repr(C)]
struct NumberRequest {
    name: [u8; 16],
    number: i32,
    padding: [u8; 20],
}

fn name(device: &str) -> io::Result<[u8; 16]> {
    if device.is_empty() || device.len() > NAME_BYTES_MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("'{device}' is not an interface name")));
    }
    let mut name = [0; 16];
    name[..device.len()].copy_from_slice(device.as_bytes());
    Ok(name)
}
