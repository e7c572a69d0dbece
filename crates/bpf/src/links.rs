//! The kernel's eBPF links, listed by id.
#![allow(unsafe_code)] // Two system calls; libbpf-rs wraps one in an iterator that hides refusals, and not the other.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

/// How often to try to open a link that is being created, and how long to wait in between.
const TRIES: u32 = 20;
const WAIT: Duration = Duration::from_millis(5);

/// Checks that this process may list the kernel's eBPF links.
pub(crate) fn may_list() -> io::Result<()> {
    next(0).map(drop)
}

/// All links at this moment.
pub(crate) fn all() -> io::Result<Vec<OwnedFd>> {
    let mut links = Vec::new();
    let mut last = 0;
    while let Some(id) = next(last)? {
        links.extend(open(id)?);
        last = id;
    }
    Ok(links)
}

/// The least id of a link above `last`.
fn next(last: u32) -> io::Result<Option<u32>> {
    let mut id = 0;
    // SAFETY: takes a number and writes one to a place that lives.
    let result = unsafe { libbpf_sys::bpf_link_get_next_id(last, &raw mut id) };
    match result {
        0 => Ok(Some(id)),
        error if error == -nix::libc::ENOENT => Ok(None),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The link with this id; `None` if it no longer exists.
fn open(id: u32) -> io::Result<Option<OwnedFd>> {
    for _ in 0..TRIES {
        // SAFETY: takes a number and returns a new descriptor, or minus the error's number.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
        match fd {
            // SAFETY: the descriptor is new, so nobody else owns it.
            0.. => return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
            error if error == -nix::libc::ENOENT => return Ok(None),
            // It is being created.
            error if error == -nix::libc::EAGAIN => sleep(WAIT),
            error => return Err(io::Error::from_raw_os_error(-error)),
        }
    }
    Ok(None)
}
