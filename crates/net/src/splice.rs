//! Moving bytes between two sockets inside the kernel, through pooled pipes.
//!
//! A pipe is held only while it holds data: a thread needs as many as it has blocked receivers, not as many
//! as it has connections.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What is asked of the kernel for a pipe, in bytes. Larger pipes mean fewer calls; beyond this nothing is gained.
pub const PIPE_BYTES: usize = 1 << 20;

/// Pipes one thread may have, held and spare. Each takes two descriptors and up to [`PIPE_BYTES`] of memory.
const MAX_PIPES: usize = 128;

/// Spare pipes a thread keeps.
pub const MAX_SPARE: usize = 16;

/// Below this a pipe is worse than a buffer: the user's pipe pages are used up.
const MIN_PIPE_BYTES: usize = 64 << 10;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { spare: Vec::new(), all: 0 }) };
}

struct Pool {
    spare: Vec<Pipe>,
    /// Pipes of this thread, in use or spare.
    all: usize,
}

/// A pipe between two splices. Dropping it returns it to its thread's pool if it is empty.
#[derive(Debug)]
pub struct PooledPipe {
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    held: usize,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl PooledPipe {
    /// An empty pipe. `None` if this thread has its share in use or the kernel gives no large one; then
    /// bytes must be moved through memory.
    pub fn take() -> Option<Self> {
        POOL.with_borrow_mut(|pool| {
            if let Some(pipe) = pool.spare.pop() {
                return Some(Self { pipe: Some(pipe), held: 0 });
            }
            if pool.all >= MAX_PIPES {
                return None;
            }
            let pipe = Pipe::new().ok()?;
            pool.all += 1;
            Some(Self { pipe: Some(pipe), held: 0 })
        })
    }

    /// Bytes in the pipe.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Moves up to `most` bytes from `socket` into the pipe, which must be empty: only then does
    /// [`io::ErrorKind::WouldBlock`] mean that the socket has nothing. 0 is the end of the stream.
    pub fn fill(&mut self, socket: &impl AsFd, most: usize) -> io::Result<usize> {
        debug_assert_eq!(self.held, 0);
        let n = splice(socket.as_fd().as_raw_fd(), self.pipe().write.as_raw_fd(), most.min(PIPE_BYTES))?;
        self.held = n;
        Ok(n)
    }

    /// Moves what the pipe holds to `socket`, or part of it.
    pub fn drain(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        // The exact length: asking for more makes the kernel wait for it before it pushes the last packet.
        let n = splice(self.pipe().read.as_raw_fd(), socket.as_fd().as_raw_fd(), self.held)?;
        self.held -= n;
        Ok(n)
    }

    fn pipe(&self) -> &Pipe {
        self.pipe.as_ref().expect("only drop takes the pipe")
    }
}

impl Drop for PooledPipe {
    fn drop(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        let empty = self.held == 0;
        // The pool is gone while its thread ends: then the pipe is simply closed.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if empty && pool.spare.len() < MAX_SPARE {
                pool.spare.push(pipe);
            } else {
                pool.all = pool.all.saturating_sub(1);
            }
        });
    }
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let mut fds = [-1; 2];
        // SAFETY: `fds` has room for the two descriptors.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are fresh descriptors that nothing else owns.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        let mut size = PIPE_BYTES;
        while set_size(&write, size).is_err() {
            size /= 2;
            if size < MIN_PIPE_BYTES {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        Ok(Self { read, write })
    }
}

fn set_size(pipe: &OwnedFd, size: usize) -> io::Result<()> {
    // SAFETY: F_SETPIPE_SZ takes an int and touches no memory of ours.
    match unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, size as libc::c_int) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn splice(from: RawFd, to: RawFd, most: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: null offsets are what sockets and pipes take; no memory of ours is touched.
    let n = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), most, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
