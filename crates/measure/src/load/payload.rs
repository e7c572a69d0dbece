//! The bytes that loads send: nobody looks at them, and they do not compress.

use std::io;
use std::net::TcpStream;

use ekiden_net::blocking::Block;
use socket2::SockRef;

/// Bytes that are sent again and again.
pub(super) struct Payload {
    block: Block,
    bytes: Vec<u8>,
}

impl Payload {
    /// How many there are.
    const BYTES: usize = 1 << 20;

    pub fn new(seed: u64) -> io::Result<Self> {
        // xorshift64: only that it does not compress matters.
        let mut state = seed | 1;
        let mut bytes = Vec::with_capacity(Self::BYTES);
        while bytes.len() < Self::BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        Ok(Self { block: Block::new(&bytes)?, bytes })
    }

    /// Sends up to `most` bytes without copying them, as long as the socket waits. Returns how many were taken.
    pub fn send(&self, socket: &TcpStream, most: u64) -> io::Result<usize> {
        self.block.send(socket, 0, most.min(Self::BYTES as u64) as usize)
    }

    /// Sends up to `most` bytes as one write, which copies them.
    pub fn write(&self, socket: &TcpStream, most: u64) -> io::Result<usize> {
        let most = most.min(Self::BYTES as u64) as usize;
        SockRef::from(socket).send_with_flags(&self.bytes[..most], libc::MSG_NOSIGNAL)
    }
}
