//! All elements of a hash map, in few system calls.
#![allow(unsafe_code)] // One system call. libbpf-rs takes a batch that is not full for the last, which it need not be.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapHandle};

/// Elements that are read at a time. A bucket of the map has fewer.
const BATCH: u32 = 4096;

/// A pass through a map. Elements that come or go meanwhile may be among them or not.
#[derive(Debug)]
pub struct Batches<'a> {
    map: &'a MapHandle,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Where the next batch begins; the kernel needs no more than a key for it.
    place: Vec<u8>,
    is_first: bool,
    is_over: bool,
}

impl<'a> Batches<'a> {
    /// One that begins.
    pub fn new(map: &'a MapHandle) -> Self {
        let (key_size, value_size) = (map.key_size() as usize, map.value_size() as usize);
        Self {
            map,
            keys: vec![0; key_size * BATCH as usize],
            values: vec![0; value_size * BATCH as usize],
            place: vec![0; key_size.max(8)],
            is_first: true,
            is_over: false,
        }
    }

    /// Calls `each` with the next keys and values; returns whether there were any more to read.
    pub fn next(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        let options = libbpf_sys::bpf_map_batch_opts {
            sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let (count, result) = loop {
            let mut count = BATCH;
            let from = if self.is_first { std::ptr::null_mut() } else { self.place.as_mut_ptr().cast() };
            // SAFETY: a descriptor that lives, and buffers for as many keys and values as are asked for.
            let result = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    self.map.as_fd().as_raw_fd(),
                    from,
                    self.place.as_mut_ptr().cast(),
                    self.keys.as_mut_ptr().cast(),
                    self.values.as_mut_ptr().cast(),
                    &raw mut count,
                    &raw const options,
                )
            };
            match -result {
                0 | nix::libc::ENOENT => break (count as usize, result),
                nix::libc::EINTR => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        };
        let keys = self.keys.chunks_exact(self.map.key_size() as usize);
        let values = self.values.chunks_exact(self.map.value_size() as usize);
        keys.zip(values).take(count).for_each(|(key, value)| each(key, value));
        self.is_first = false;
        self.is_over = result != 0;
        Ok(true)
    }
}

/// Calls `each` with every key and value.
pub fn for_each(map: &MapHandle, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let mut batches = Batches::new(map);
    while batches.next(&mut each)? {}
    Ok(())
}
