//! Network namespaces, held by a descriptor. They have no name unless they are bound to a path, and end with their last holder.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::{panic, thread};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace.
#[derive(Debug, Clone)]
pub struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// Makes a new, empty namespace. The calling thread stays where it is.
    ///
    /// # Errors
    /// The kernel's, `EPERM` without `CAP_SYS_ADMIN`.
    pub fn create() -> io::Result<Self> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let file = File::open("/proc/thread-self/ns/net")?;
            Ok(Self { file: Arc::new(file) })
        })
    }

    /// Runs `work` on a thread inside the namespace. Descriptors opened there stay in it.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or `work` fails.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Moves the calling thread, and it alone, into the namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.file, CloneFlags::CLONE_NEWNET)?)
    }

    /// Makes `command` start in the namespace.
    pub fn attach(&self, command: &mut Command) {
        let file = Arc::clone(&self.file);
        // SAFETY: between fork and exec only setns(2) is called, which is async-signal-safe and allocates nothing.
        unsafe {
            command.pre_exec(move || Ok(setns(&file, CloneFlags::CLONE_NEWNET)?));
        }
    }

    /// The kernel's number of the namespace (`SO_NETNS_COOKIE`, Linux 5.14). It is the same for every process on this machine,
    /// and is never used again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn cookie(&self) -> io::Result<u64> {
        self.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            let mut cookie = 0_u64;
            let mut length = size_of::<u64>() as libc::socklen_t;
            // SAFETY: the option is a number of eight bytes, and that is what the pointer and the length are of.
            let result = unsafe {
                let place = std::ptr::from_mut(&mut cookie).cast();
                libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, place, &raw mut length)
            };
            if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
        })
    }

    /// Gives the namespace a name that `ip netns` knows: an empty file at `path` with the namespace mounted over it.
    ///
    /// # Errors
    /// If `path` exists or cannot be made or mounted on.
    pub fn bind_to(&self, path: &Path) -> io::Result<()> {
        File::create_new(path)?;
        let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        mount(Some(source.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        Ok(())
    }

    /// Removes a name given by [`Namespace::bind_to`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn unbind(path: &Path) -> io::Result<()> {
        umount2(path, MntFlags::MNT_DETACH)?;
        std::fs::remove_file(path)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A namespace is a property of the thread, so what changes it runs on a thread of its own.
fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".into()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|payload| panic::resume_unwind(payload))
    })
}
