//! How many files, sockets among them, this process may have open.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises this process's limit of open files to the most it may have, and returns it.
pub fn raise_open_files() -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// How many files this process may have open.
pub fn open_files() -> io::Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}
