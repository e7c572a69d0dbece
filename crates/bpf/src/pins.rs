//! Pins: registrations that outlive their process, as files in bpffs. A pin lasts until it is removed, or until a reboot.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use ekiden_congestion::Algorithm;

use crate::error::failed;
use crate::{Error, Registration, bpffs, lock};

fn path(algorithm: Algorithm) -> PathBuf {
    bpffs::directory().join(algorithm.name())
}

/// Whether [`pin`] has pinned the algorithm's registration.
pub fn is_pinned(algorithm: Algorithm) -> bool {
    bpffs::is_prepared().unwrap_or(false) && path(algorithm).exists()
}

/// Keeps a registration beyond the end of all processes, until [`unpin`] or a reboot. Mounts bpffs if it is not mounted.
///
/// # Errors
/// If this process may not.
pub fn pin(registration: &Registration) -> Result<(), Error> {
    let _lock = lock::pins().map_err(failed("lock the pins"))?;
    bpffs::prepare().map_err(failed(format!("prepare {}", bpffs::directory().display())))?;
    let path = path(registration.algorithm());
    if path.exists() {
        return Ok(());
    }
    bpffs::pin(registration.as_fd(), &path).map_err(failed(format!("pin {}", path.display())))
}

/// Removes the pin; returns whether there was one. The registration ends when no process has it either. Unmounts a bpffs that
/// [`pin`] mounted when it is empty.
///
/// # Errors
/// If this process may not.
pub fn unpin(algorithm: Algorithm) -> Result<bool, Error> {
    let _lock = lock::pins().map_err(failed("lock the pins"))?;
    if !bpffs::is_prepared().map_err(failed(format!("look into {}", bpffs::directory().display())))? {
        return Ok(false);
    }
    let path = path(algorithm);
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(format!("remove {}", path.display()))(error)),
    }
    bpffs::tidy();
    Ok(true)
}
