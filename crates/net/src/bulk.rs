//! Sends and receives bytes that nobody reads, at the least cost: measuring needs their number only.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};

use socket2::SockRef;

use crate::option::set_int;

/// Bytes that do not compress, in memory of the kernel's page cache.
#[derive(Debug)]
pub struct Payload {
    file: File,
    bytes: Vec<u8>,
}

impl Payload {
    /// How many there are. They are sent again and again.
    pub const BYTES: usize = 1 << 20;

    /// Makes them from `seed`.
    ///
    /// # Errors
    /// If the kernel has no memory for them.
    pub fn new(seed: u64) -> io::Result<Self> {
        // SAFETY: the name is a C string, and the result is checked.
        let fd = unsafe { libc::memfd_create(c"payload".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let mut file = unsafe { File::from_raw_fd(fd) };
        // xorshift64: only that it does not compress matters.
        let mut state = seed | 1;
        let mut bytes = Vec::with_capacity(Self::BYTES);
        while bytes.len() < Self::BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        file.write_all(&bytes)?;
        Ok(Self { file, bytes })
    }

    /// Sends up to `most` bytes without copying them (sendfile(2)); waits as the socket does. Returns how many were taken.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&self, socket: &impl AsFd, most: u64) -> io::Result<usize> {
        let mut offset: libc::off_t = 0;
        let most = most.min(Self::BYTES as u64) as usize;
        // SAFETY: both descriptors are open for the call, and `offset` outlives it.
        let sent = unsafe { libc::sendfile(socket.as_fd().as_raw_fd(), self.file.as_raw_fd(), &raw mut offset, most) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Sends up to `most` bytes as one write, which copies them.
    ///
    /// # Errors
    /// The socket's.
    pub fn write(&self, socket: &impl AsFd, most: u64) -> io::Result<usize> {
        let most = most.min(Self::BYTES as u64) as usize;
        // SAFETY: the pointer and the length lie within `bytes`.
        let sent =
            unsafe { libc::send(socket.as_fd().as_raw_fd(), self.bytes.as_ptr().cast(), most, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Takes up to `most` bytes from a TCP socket and forgets them, without copying them (MSG_TRUNC of tcp(7)); waits as the socket does.
/// 0 is the end of the stream.
///
/// # Errors
/// The socket's.
pub fn discard(socket: &impl AsFd, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC the kernel writes nothing, so that no buffer is needed (tcp(7)).
    let taken = unsafe { libc::recv(socket.as_fd().as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC) };
    usize::try_from(taken).map_err(|_| io::Error::last_os_error())
}

/// A socket's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// SO_SNDBUF.
    Send,
    /// SO_RCVBUF.
    Receive,
}

/// Gives a socket a buffer of `bytes`, which the kernel doubles: beyond net.core.*mem_max, where the process may (CAP_NET_ADMIN).
/// The kernel no longer tunes that buffer then.
///
/// # Errors
/// If the kernel refuses, or gives less than that.
pub fn set_buffer(socket: &impl AsFd, buffer: Buffer, bytes: u64) -> io::Result<()> {
    let value = i32::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let (force, plain, name) = match buffer {
        Buffer::Send => (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, "wmem_max"),
        Buffer::Receive => (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, "rmem_max"),
    };
    let fd = socket.as_fd().as_raw_fd();
    if set_int(fd, libc::SOL_SOCKET, force, value).is_ok() {
        return Ok(());
    }
    set_int(fd, libc::SOL_SOCKET, plain, value)?;
    let of = SockRef::from(socket);
    let given = match buffer {
        Buffer::Send => of.send_buffer_size()?,
        Buffer::Receive => of.recv_buffer_size()?,
    };
    if (given as u64) < bytes.saturating_mul(2) {
        let why =
            format!("{bytes} bytes need CAP_NET_ADMIN, or net.core.{name} of at least that; given: {}", given / 2);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// The socket advertises no window above `bytes` (TCP_WINDOW_CLAMP). What was advertised before stays.
///
/// # Errors
/// The kernel's.
pub fn clamp_window(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let value = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_int(socket.as_fd().as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, value)
}

/// The processor time of the calling thread, in microseconds.
pub fn thread_cpu_us() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD);
    usage.map_or(0, |usage| {
        let of = |time: nix::sys::time::TimeVal| time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64;
        of(usage.user_time()) + of(usage.system_time())
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread;

    use super::*;

    #[test]
    fn what_is_sent_is_counted_by_who_discards_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let sent = thread::spawn(move || {
            let payload = Payload::new(7).unwrap();
            let mut sent = 0;
            while sent < 10_000_000 {
                sent += payload.send(&sender, 10_000_000 - sent as u64).unwrap();
            }
            sent += payload.write(&sender, 1_234).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let mut received = 0;
        loop {
            match discard(&receiver, 1 << 20).unwrap() {
                0 => break,
                taken => received += taken,
            }
        }
        assert_eq!(received, sent.join().unwrap());
    }
}
