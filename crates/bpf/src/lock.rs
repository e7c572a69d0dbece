//! What only one process of the machine may do at a time. A lock ends with its process, however that ends.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Locked while one process reads events: a file that is there wherever the programs can be loaded.
const TRACE: &str = "/sys/kernel/btf/vmlinux";
/// Locked while pins and their file system come and go.
const PINS: &str = "/sys/fs";

/// A lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
}

/// The lock of whoever reads events; `None` if someone has it.
pub(crate) fn trace() -> io::Result<Option<Lock>> {
    match Flock::lock(File::open(TRACE)?, FlockArg::LockExclusiveNonblock) {
        Ok(file) => Ok(Some(Lock { _file: file })),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

/// The lock of whoever changes pins, after waiting for it.
pub(crate) fn pins() -> io::Result<Lock> {
    let file = Flock::lock(File::open(PINS)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    Ok(Lock { _file: file })
}
