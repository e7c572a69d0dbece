//! Machine-wide locks, as file locks. The kernel releases a lock when its process ends.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Locked while a process reads events: a file that exists wherever the programs can be loaded.
const TRACE: &str = "/sys/kernel/btf/vmlinux";
/// Locked while a process changes pins or mounts bpffs.
const PINS: &str = "/sys/fs";

/// A lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
}

/// The lock for reading events; `None` if another process has it.
pub(crate) fn trace() -> io::Result<Option<Lock>> {
    match Flock::lock(File::open(TRACE)?, FlockArg::LockExclusiveNonblock) {
        Ok(file) => Ok(Some(Lock { _file: file })),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

/// The lock for changing pins; waits for it.
pub(crate) fn pins() -> io::Result<Lock> {
    let file = Flock::lock(File::open(PINS)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    Ok(Lock { _file: file })
}
