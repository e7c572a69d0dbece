//! Where programs can stand on a device, its egress and its ingress: by tcx, and by a clsact queueing discipline.
#![allow(unsafe_code)] // System calls that libbpf-rs does not wrap, or whose answer it hides.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::{TC_EGRESS, TC_INGRESS};
use libbpf_sys::bpf_attach_type;

/// `BPF_F_BEFORE` without another program: before all.
const BEFORE: u32 = 1 << 3;

fn clsact(ifindex: i32) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex,
        attach_point: TC_INGRESS | TC_EGRESS,
        ..Default::default()
    }
}

/// Makes a clsact queueing discipline on a device; returns whether there was none.
///
/// # Errors
/// If the kernel refuses.
pub fn make_clsact(ifindex: i32) -> io::Result<bool> {
    let mut hook = clsact(ifindex);
    // SAFETY: a structure of the size that it names.
    match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) } {
        0 => Ok(true),
        error if error == -nix::libc::EEXIST => Ok(false),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Removes it, with all filters.
pub fn remove_clsact(ifindex: i32) {
    let mut hook = clsact(ifindex);
    // SAFETY: a structure of the size that it names.
    unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) };
}

/// Links a program to a device by tcx, before all others there, until the link is dropped.
///
/// # Errors
/// If the kernel refuses; EINVAL if it has no tcx.
pub fn link(program: BorrowedFd<'_>, ifindex: i32, point: bpf_attach_type) -> io::Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: BEFORE,
        ..Default::default()
    };
    options.__bindgen_anon_1.tcx = Default::default();
    // SAFETY: a descriptor that lives, and a structure of the size that it names.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, point, &raw const options) };
    match fd {
        // SAFETY: the descriptor is new, so nobody else owns it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// How many programs tcx has there; 0 without tcx.
///
/// # Errors
/// If the kernel does not tell.
pub fn attached(ifindex: i32, point: bpf_attach_type) -> io::Result<usize> {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: a structure of the size that it names, without places for what is not asked.
    match unsafe { libbpf_sys::bpf_prog_query_opts(ifindex, point, &raw mut options) } {
        // SAFETY: both members are the same number.
        0 => Ok(unsafe { options.__bindgen_anon_1.count } as usize),
        // Without tcx.
        error if error == -nix::libc::EINVAL => Ok(0),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

mod ioctl {
    nix::ioctl_read_bad!(hardware_address, nix::libc::SIOCGIFHWADDR, nix::libc::ifreq);
}

/// The kind of a device's hardware (`ARPHRD_…`), by any socket and the device's name.
///
/// # Errors
/// If there is no such device.
pub fn hardware(socket: BorrowedFd<'_>, name: &[u8]) -> io::Result<u16> {
    // SAFETY: all zero is a valid one.
    let mut request: nix::libc::ifreq = unsafe { std::mem::zeroed() };
    for (into, from) in request.ifr_name.iter_mut().zip(name) {
        *into = *from as std::ffi::c_char;
    }
    // SAFETY: the socket lives, and the request is of the type that the call fills.
    unsafe { ioctl::hardware_address(socket.as_raw_fd(), &raw mut request) }?;
    // SAFETY: the call has filled this member.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}
