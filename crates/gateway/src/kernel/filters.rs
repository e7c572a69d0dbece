//! The filters that a device has under clsact (rtnetlink(7)).

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

const GET_FILTERS: u16 = 46;
const FILTER: u16 = 44;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST_ALL: u16 = 0x301;
/// Of clsact's ingress and egress.
const PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
const HEADER: usize = 16;
/// Where a filter's handle stands in its message (`tcm_handle`).
const HANDLE: std::ops::Range<usize> = 24..28;

/// How many there are, in both directions.
pub(super) fn count(ifindex: i32) -> io::Result<usize> {
    Ok(under(ifindex, PARENTS[0])? + under(ifindex, PARENTS[1])?)
}

fn under(ifindex: i32, parent: u32) -> io::Result<usize> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    let mut request = Vec::new();
    request.extend(36_u32.to_ne_bytes());
    request.extend(GET_FILTERS.to_ne_bytes());
    request.extend(REQUEST_ALL.to_ne_bytes());
    request.extend([0; 8 + 4]);
    request.extend(ifindex.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    request.extend(parent.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut buffer = vec![0; 1 << 16];
    let mut filters = 0;
    loop {
        let size = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..size];
        while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            match u16::from_ne_bytes([header[4], header[5]]) {
                // A message without a handle is of their priority.
                FILTER => filters += usize::from(rest.get(HANDLE).is_some_and(|handle| handle != [0; 4])),
                DONE => return Ok(filters),
                ERROR => return Err(io::Error::other("the kernel lists no filters")),
                _ => {}
            }
            rest = rest.get(length.max(HEADER).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
