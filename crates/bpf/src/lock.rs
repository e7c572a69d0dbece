//! Machine-wide locks, as file locks. The kernel releases a lock when its process ends.

use std::fs::File;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Locked while a process reads events: a file that exists wherever the programs can be loaded.
const TRACE: &str = "/sys/kernel/btf/vmlinux";
/// Locked while a process changes pins or mounts bpffs.
const PINS: &str = "/sys/fs";

/// How long a process waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// A lock, until it is dropped.
#[derive(Debug)]
pub struct Lock {
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

/// The lock for changing pins; waits for it, but not for ever: any user can have it.
pub fn pins() -> io::Result<Lock> {
    let began = Instant::now();
    let mut file = File::open(PINS)?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => return Ok(Lock { _file: file }),
            Err((_, Errno::EWOULDBLOCK)) if began.elapsed() >= PATIENCE => {
                let who = format!("another process keeps {PINS} locked; `fuser {PINS}` shows which");
                return Err(io::Error::new(io::ErrorKind::WouldBlock, who));
            }
            Err((back, Errno::EWOULDBLOCK)) => file = back,
            Err((_, error)) => return Err(error.into()),
        }
        sleep(PAUSE);
    }
}
