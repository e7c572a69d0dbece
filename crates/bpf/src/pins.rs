//! Pins: registrations that outlive their process, as files in bpffs.
#![allow(unsafe_code)] // One system call that libbpf-rs wraps for its own links only.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ekiden_congestion::Algorithm;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::error::failed;
use crate::{Error, Registration, lock};

/// The usual mount point of bpffs.
const FILE_SYSTEM: &str = "/sys/fs/bpf";
/// The source name of ekiden's own mount in /proc/mounts.
const SOURCE: &str = "ekiden";
/// Files that the kernel itself puts into every bpffs.
const KERNELS_OWN: [&str; 2] = ["maps.debug", "progs.debug"];

fn directory() -> PathBuf {
    Path::new(FILE_SYSTEM).join("ekiden")
}

fn path(algorithm: Algorithm) -> PathBuf {
    directory().join(algorithm.name())
}

/// Whether [`pin`] has pinned the algorithm's registration.
pub fn is_pinned(algorithm: Algorithm) -> bool {
    path(algorithm).exists()
}

/// Keeps a registration beyond the end of all processes, until [`unpin`] or a reboot. Mounts bpffs if it is not mounted.
///
/// # Errors
/// If this process may not.
pub fn pin(registration: &Registration) -> Result<(), Error> {
    let _lock = lock::pins().map_err(failed("lock the pins"))?;
    if !is_mounted() {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some(SOURCE), FILE_SYSTEM, Some("bpf"), flags, Some("mode=0700"))
            .map_err(failed(format!("mount {FILE_SYSTEM}")))?;
    }
    let path = path(registration.algorithm());
    if path.exists() {
        return Ok(());
    }
    fs::create_dir_all(directory()).map_err(failed(format!("make {}", directory().display())))?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(failed("name the pin"))?;
    // SAFETY: a descriptor that lives, and a string that ends.
    let result = unsafe { libbpf_sys::bpf_obj_pin(registration.as_raw_fd(), name.as_ptr()) };
    match result {
        0 => Ok(()),
        error => Err(failed(format!("pin {}", path.display()))(io::Error::from_raw_os_error(-error))),
    }
}

/// Removes the pin; returns whether there was one. The registration ends when no process has it either. Unmounts a bpffs that
/// [`pin`] mounted when it is empty.
///
/// # Errors
/// If this process may not.
pub fn unpin(algorithm: Algorithm) -> Result<bool, Error> {
    let _lock = lock::pins().map_err(failed("lock the pins"))?;
    let path = path(algorithm);
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(format!("remove {}", path.display()))(error)),
    }
    // Neither succeeds while other files are there.
    if fs::remove_dir(directory()).is_ok() && is_our_mount() && has_no_pins() {
        let _ = umount(FILE_SYSTEM);
    }
    Ok(true)
}

fn is_mounted() -> bool {
    statfs(FILE_SYSTEM).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}

fn is_our_mount() -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.starts_with(&format!("{SOURCE} {FILE_SYSTEM} bpf ")))
}

fn has_no_pins() -> bool {
    let is_kernels_own = |name: &OsStr| name.to_str().is_some_and(|name| KERNELS_OWN.contains(&name));
    fs::read_dir(FILE_SYSTEM).is_ok_and(|entries| entries.flatten().all(|entry| is_kernels_own(&entry.file_name())))
}
