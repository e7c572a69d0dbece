//! All elements of a hash map, in few system calls.
#![allow(unsafe_code)] // One system call. libbpf-rs takes a batch that is not full for the last, which it need not be.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapHandle};

/// Elements that are read at a time. A bucket of the map has fewer.
const BATCH: u32 = 4096;

/// Calls `each` with every key and value. Elements that come or go meanwhile may be among them or not.
pub(super) fn for_each(map: &MapHandle, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let (key_size, value_size) = (map.key_size() as usize, map.value_size() as usize);
    let mut keys = vec![0_u8; key_size * BATCH as usize];
    let mut values = vec![0_u8; value_size * BATCH as usize];
    let options = libbpf_sys::bpf_map_batch_opts {
        sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // Where the next batch begins; the kernel needs no more than a key for it.
    let mut place = vec![0_u8; key_size.max(8)];
    let mut is_first = true;
    loop {
        let mut count = BATCH;
        let from = if is_first { std::ptr::null_mut() } else { place.as_mut_ptr().cast() };
        // SAFETY: a descriptor that lives, and buffers for as many keys and values as are asked for.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                from,
                place.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        match -result {
            0 | nix::libc::ENOENT => {}
            nix::libc::EINTR => continue,
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        keys.chunks_exact(key_size)
            .zip(values.chunks_exact(value_size))
            .take(count as usize)
            .for_each(|(k, v)| each(k, v));
        if result != 0 {
            return Ok(());
        }
        is_first = false;
    }
}
