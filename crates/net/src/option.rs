//! Socket options for which no library has a name.
#![allow(unsafe_code)] // One system call.

use std::io;
use std::os::fd::RawFd;

/// Sets an option that is a whole number.
pub(crate) fn set_int(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and the size describe `value`, which outlives the call.
    match unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
