//! Moving bytes between two sockets inside the kernel, through pooled pipes.
//!
//! A stream has a pipe only while the pipe holds data. So a process needs as many pipes as it has blocked receivers, not as
//! many as connections. Without CAP_SYS_RESOURCE the kernel bounds the slots of all pipes of a user together (pipe(7)),
//! whether they are used or not. So a pipe is large only while a piece passes through it. One that has to wait for its receiver
//! keeps as many slots as its data takes, and the more of these there are, the smaller the next ones are.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The largest pipe, in bytes. Larger pipes mean fewer calls; beyond this nothing is gained.
const PIPE_BYTES: usize = 1 << 20;

/// A pipe has a slot for each of its pages. But a slot takes a whole part of a packet, up to 32 KiB if packets arrive joined
/// (GRO).
const PAGE: usize = 4096;
const LEAST_BYTES: usize = 2 * PAGE;

/// The default size of a pipe (pipe(7)), which is also about as much as is moved through memory at a time.
const USUAL_BYTES: usize = 64 << 10;

/// Spare pipes a thread keeps.
const MAX_SPARE: usize = 64;

/// After the kernel has refused to enlarge a pipe, none is enlarged for this time: other processes of the user share the quota.
const REFUSED_FOR: Duration = Duration::from_millis(100);

/// One pipe takes at most this part of what the process has left. A pipe is fitted again whenever it is taken, so that `n` full
/// ones come to have about an even share each.
const PART: usize = 32;

/// Pipes of this process, in use or spare, and the bytes of all of them.
static PIPES: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The most pipes that this process may have.
static MOST: AtomicUsize = AtomicUsize::new(1024);

/// When the kernel last refused to enlarge one, in milliseconds since [`started`]; 0: never.
static REFUSED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SPARE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// Sets the most pipes that this process may have. Each takes two descriptors and, when it is full, up to 1 MiB of memory.
pub fn limit(pipes: usize) {
    MOST.store(pipes, Ordering::Relaxed);
}

/// A pipe between two splices. Dropping it returns it to its thread's pool if it is empty.
#[derive(Debug)]
pub struct PooledPipe {
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    held: u32,
    /// Whether it has given up the slots that it does not need.
    is_waiting: bool,
}

/// Counted in [`PIPES`] while it lives.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// How large it is.
    bytes: u32,
}

impl PooledPipe {
    /// An empty pipe. `None` if the process has as many as it may have, or the kernel refuses. Then bytes must be moved through
    /// memory.
    pub fn take() -> Option<Self> {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let mut pipe = match spare {
            Some(pipe) => pipe,
            None => Pipe::new()?,
        };
        pipe.fit();
        Some(Self { pipe: Some(pipe), held: 0, is_waiting: false })
    }

    /// Bytes in the pipe.
    pub fn held(&self) -> usize {
        self.held as usize
    }

    /// Whether it is smaller than what is usually moved through memory at once.
    pub fn is_small(&self) -> bool {
        self.pipe().bytes() < USUAL_BYTES
    }

    /// Moves up to `most` bytes from `socket` into the pipe, which must be empty: only then does
    /// [`io::ErrorKind::WouldBlock`] mean that the socket has nothing. 0 is the end of the stream.
    pub fn fill(&mut self, socket: &impl AsFd, most: usize) -> io::Result<usize> {
        debug_assert_eq!(self.held, 0);
        let n = splice(socket.as_fd().as_raw_fd(), self.pipe().write.as_raw_fd(), most.min(PIPE_BYTES))?;
        self.held = n as u32;
        Ok(n)
    }

    /// The bytes in it have to wait for their receiver: it keeps the slots that they take, and leaves the rest to other pipes.
    /// Returns how many there are.
    pub fn wait(&mut self) -> usize {
        let held = self.held();
        let Some(pipe) = self.pipe.as_mut().filter(|_| held > 0 && !self.is_waiting) else { return held };
        self.is_waiting = true;
        // How many slots are taken is not told. The kernel refuses to take away one that is.
        let mut size = share(BYTES.load(Ordering::Relaxed).saturating_sub(pipe.bytes())).min(USUAL_BYTES);
        while size < pipe.bytes() && pipe.resize(size).is_err() {
            size *= 4;
        }
        held
    }

    /// Moves what the pipe holds to `socket`, or part of it.
    pub fn drain(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        // With the exact length: if more were asked for, the kernel would hold back the last packet to wait for it.
        let n = splice(self.pipe().read.as_raw_fd(), socket.as_fd().as_raw_fd(), self.held())?;
        self.held -= n as u32;
        Ok(n)
    }

    fn pipe(&self) -> &Pipe {
        self.pipe.as_ref().expect("only drop takes the pipe")
    }
}

impl Drop for PooledPipe {
    fn drop(&mut self) {
        let Some(pipe) = self.pipe.take().filter(|_| self.held == 0) else { return };
        // The pool is gone while its thread ends: then the pipe is simply closed.
        let _ = SPARE.try_with(|spare| keep(pipe, &mut spare.borrow_mut()));
    }
}

impl Pipe {
    fn new() -> Option<Self> {
        if PIPES.load(Ordering::Relaxed) >= MOST.load(Ordering::Relaxed) {
            return None;
        }
        let mut fds = [-1; 2];
        // SAFETY: `fds` has room for the two descriptors.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } != 0 {
            return None;
        }
        // SAFETY: both are fresh descriptors that nothing else owns.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        // Beyond the user's quota the kernel gives a pipe only two pages, so its size is asked for.
        // SAFETY: F_GETPIPE_SZ takes no argument and touches no memory of ours.
        let bytes = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ) };
        let bytes = u32::try_from(bytes).unwrap_or(LEAST_BYTES as u32);
        PIPES.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as usize, Ordering::Relaxed);
        Some(Self { read, write, bytes })
    }

    fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Resizes an empty pipe to about its share, if its size is far from it.
    fn fit(&mut self) {
        let mut size = share(BYTES.load(Ordering::Relaxed).saturating_sub(self.bytes()));
        if self.bytes() > 2 * size {
            // A smaller size is never refused to an empty pipe.
            let _ = self.resize(size);
        }
        let is_small = 2 * self.bytes() < size || (self.bytes() < size && size == PIPE_BYTES);
        if !is_small || was_refused() {
            return;
        }
        while size > self.bytes() && self.resize(size).is_err() {
            REFUSED.store(started().elapsed().as_millis().max(1) as u64, Ordering::Relaxed);
            size /= 2;
        }
    }

    fn resize(&mut self, size: usize) -> io::Result<()> {
        // SAFETY: F_SETPIPE_SZ takes an int and touches no memory of ours.
        if unsafe { libc::fcntl(self.write.as_raw_fd(), libc::F_SETPIPE_SZ, size as libc::c_int) } < 0 {
            return Err(io::Error::last_os_error());
        }
        BYTES.fetch_add(size, Ordering::Relaxed);
        BYTES.fetch_sub(self.bytes(), Ordering::Relaxed);
        self.bytes = size as u32;
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
        BYTES.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

/// Keeps an empty pipe for the next piece of this thread: one that is large on top, the others below it and small.
fn keep(mut pipe: Pipe, spare: &mut Vec<Pipe>) {
    let is_large = |pipe: &Pipe| pipe.bytes() > USUAL_BYTES;
    if is_large(&pipe) && spare.last().is_none_or(|top| !is_large(top)) {
        spare.push(pipe);
    } else if spare.len() < MAX_SPARE && (!is_large(&pipe) || pipe.resize(USUAL_BYTES).is_ok()) {
        spare.insert(spare.len().saturating_sub(1), pipe);
    }
}

/// How large a pipe may be if the others have `others` bytes. Together they stay within three quarters of the user's quota: the
/// rest is left to other processes, and to pipes of the least size.
fn share(others: usize) -> usize {
    let left = (quota() / 4 * 3).saturating_sub(others) / PART;
    left.checked_ilog2().map_or(LEAST_BYTES, |power| (1 << power).clamp(LEAST_BYTES, PIPE_BYTES))
}

/// The bytes that all pipes of a user may have before the kernel gives new ones next to nothing. If there is no limit, the
/// kernel's default.
fn quota() -> usize {
    const USUAL_PAGES: usize = 16384;
    static QUOTA: OnceLock<usize> = OnceLock::new();
    *QUOTA.get_or_init(|| {
        let pages = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").ok();
        let pages = pages.and_then(|pages| pages.trim().parse().ok()).filter(|&pages| pages > 0);
        pages.unwrap_or(USUAL_PAGES).saturating_mul(PAGE)
    })
}

fn was_refused() -> bool {
    let refused = REFUSED.load(Ordering::Relaxed);
    refused > 0 && started().elapsed() < Duration::from_millis(refused) + REFUSED_FOR
}

fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

fn splice(from: RawFd, to: RawFd, most: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: null offsets are what sockets and pipes take; no memory of ours is touched.
    let n = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), most, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn full_pipes_leave_some_of_the_quota() {
        assert_eq!((share(0), share(usize::MAX)), (PIPE_BYTES, LEAST_BYTES));
        let mut used = 0;
        for pipe in 1..=1000 {
            let next = share(used);
            used += next;
            assert!(used <= quota() && (pipe > 80 || next >= USUAL_BYTES), "{pipe} pipes with {used} bytes");
        }
    }

    #[test]
    fn full_pipes_that_are_taken_again_come_to_have_an_even_share() {
        let mut sizes = vec![0; 1000];
        for _ in 0..4 {
            for pipe in 0..sizes.len() {
                let others = sizes.iter().sum::<usize>() - sizes[pipe];
                sizes[pipe] = share(others);
            }
        }
        let even = quota() / sizes.len();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(even / 9 <= *least && *most <= 4 * even, "{least} to {most} beside {even}");
    }

    /// The counts are of the whole process: one test at a time has pipes.
    static ALONE: Mutex<()> = Mutex::new(());

    fn size(pipe: &PooledPipe) -> usize {
        // SAFETY: F_GETPIPE_SZ takes no argument and touches no memory of ours.
        unsafe { libc::fcntl(pipe.pipe().write.as_raw_fd(), libc::F_GETPIPE_SZ) as usize }
    }

    #[test]
    fn a_spare_pipe_is_fitted_when_it_is_taken() {
        let _alone = ALONE.lock();
        let first = PooledPipe::take().unwrap();
        let alone = size(&first);
        assert_eq!(alone, PIPE_BYTES);
        drop(first);
        let many: Vec<_> = (0..200).map(|_| PooledPipe::take().unwrap()).collect();
        drop(many);
        let again = PooledPipe::take().unwrap();
        // Most of the many were closed.
        assert!(size(&again) >= alone / 2, "{}", size(&again));
    }

    #[test]
    fn pipes_that_wait_leave_the_next_its_size_and_lose_nothing() {
        const WAITING: usize = 400;
        let _alone = ALONE.lock();
        let (mut from, into) = UnixStream::pair().unwrap();
        let (out, mut to) = UnixStream::pair().unwrap();
        let piece: Vec<u8> = (0..20_000).map(|i| i as u8).collect();
        let mut fill = || {
            from.write_all(&piece).unwrap();
            let mut pipe = PooledPipe::take().unwrap();
            assert_eq!(pipe.fill(&into, usize::MAX).unwrap(), piece.len());
            pipe.wait();
            pipe
        };
        let waiting: Vec<_> = (0..WAITING).map(|_| fill()).collect();
        assert!(waiting.iter().all(|pipe| size(pipe) <= USUAL_BYTES && size(pipe) == pipe.pipe().bytes()));
        let mut next = PooledPipe::take().unwrap();
        // They are a third of the quota. When each kept what it was given, the next had an eighth of this.
        assert!(size(&next) >= PIPE_BYTES / 2, "{}", size(&next));
        for mut pipe in waiting {
            let mut got = vec![0; piece.len()];
            while pipe.held() > 0 {
                pipe.drain(&out).unwrap();
            }
            to.read_exact(&mut got).unwrap();
            assert!(got == piece);
        }
        // The pool keeps one large one.
        assert!(SPARE.with_borrow(|spare| spare.iter().filter(|pipe| pipe.bytes() > USUAL_BYTES).count()) <= 1);
        from.write_all(&piece).unwrap();
        assert_eq!(next.fill(&into, usize::MAX).unwrap(), piece.len());
    }
}
