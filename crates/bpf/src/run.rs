//! Test runs of a program, without a device.
#![allow(unsafe_code)] // libbpf-rs has test runs for the programs of its objects only, and this one is held by its descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Bytes of the kernel's `struct __sk_buff`, and where `gso_size` stands in it.
const CONTEXT: usize = 192;
const SEGMENT_AT: usize = 176;
/// Room for what a program adds, and more.
const ROOM: usize = 256;

/// The result for a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// What the program returned: -1 leaves the packet to the next one.
    pub returned: i32,
    /// The time of one run, the mean of all repetitions.
    pub time: Duration,
}

/// Runs a tc program `repeat` times on the same frame of Ethernet, with at least 14 bytes. `segment` is the payload of each
/// segment that offloads have put together in it; 0 without.
///
/// # Errors
/// If the kernel does not take the frame.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], segment: u32, repeat: u32) -> io::Result<Run> {
    let mut context = [0_u8; CONTEXT];
    context[SEGMENT_AT..SEGMENT_AT + 4].copy_from_slice(&segment.to_ne_bytes());
    let mut out = vec![0; frame.len() + ROOM];
    let too_long = || io::Error::from_raw_os_error(nix::libc::EMSGSIZE);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len()).map_err(|_| too_long())?,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: u32::try_from(out.len()).map_err(|_| too_long())?,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: CONTEXT as u32,
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        ..Default::default()
    };
    // SAFETY: a descriptor that lives, and buffers of the sizes that are named.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    out.truncate(options.data_size_out as usize);
    Ok(Run { frame: out, returned: options.retval as i32, time: Duration::from_nanos(options.duration.into()) })
}
