//! Packets whose headers are not in their first part, as some devices deliver them.
#![allow(unsafe_code)] // Socket options and an address that no library here wraps.

use std::io;
use std::os::fd::AsRawFd;

use nix::libc;
use socket2::{Domain, Socket, Type};

/// Sends a frame of more than a page on this device so that only its Ethernet header is in the first part.
pub fn send_in_parts(device: u32, frame: &[u8]) -> io::Result<()> {
    assert!(frame.len() > 4096, "a shorter one is sent in one part");
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let on: libc::c_int = 1;
    // SAFETY: a number that lives, and its size.
    let result = unsafe {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, (&raw const on).cast(), size)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // A virtio header without offloads: no flags, no segments, one byte of headers, which the kernel makes Ethernet's.
    let mut bytes = vec![0; 10];
    bytes[2..4].copy_from_slice(&1_u16.to_ne_bytes());
    bytes.extend(frame);
    // SAFETY: all zero is a valid one.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = device as i32;
    address.sll_halen = 6;
    // SAFETY: a slice, and an address of the size that is told.
    let sent = unsafe {
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        libc::sendto(socket.as_raw_fd(), start, length, 0, (&raw const address).cast(), size)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
