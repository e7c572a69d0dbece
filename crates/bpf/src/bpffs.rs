//! The file system in which what the kernel has outlives its process.
#![allow(unsafe_code)] // Two system calls that libbpf-rs wraps for its own objects only.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, umount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::geteuid;

/// The usual mount point.
pub const PLACE: &str = "/sys/fs/bpf";
/// The source name of ekiden's own mount in /proc/mounts.
const SOURCE: &str = "ekiden";
/// Files that the kernel itself puts into every bpffs.
const KERNELS_OWN: [&str; 2] = ["maps.debug", "progs.debug"];

/// Where ekiden's pins are.
pub fn directory() -> PathBuf {
    Path::new(PLACE).join("ekiden")
}

/// Makes the folder of ekiden's pins, and mounts the file system if it is not mounted.
pub fn prepare() -> io::Result<()> {
    if !is_mounted() {
        mount()?;
    }
    match fs::create_dir(directory()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => is_prepared().map(drop),
        made => made,
    }
}

/// Whether the folder exists. In most bpffs anyone may make files: files that belong neither to root nor to this user are
/// ignored.
///
/// # Errors
/// If it is another user's, or this one may not look.
pub fn is_prepared() -> io::Result<bool> {
    match fs::symlink_metadata(directory()) {
        Ok(found) if found.is_dir() && [0, geteuid().as_raw()].contains(&found.uid()) => Ok(true),
        Ok(found) => {
            let whose = format!("user {} has put something else at {}; remove it", found.uid(), directory().display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, whose))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn mount() -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(nix::mount::mount(Some(SOURCE), PLACE, Some("bpf"), flags, Some("mode=0700"))?)
}

/// Removes the folder if it is empty, and unmounts an empty file system that `mount` mounted.
pub fn tidy() {
    // Neither succeeds while other files are there.
    if fs::remove_dir(directory()).is_ok() && is_our_mount() && has_no_pins() {
        let _ = umount(PLACE);
    }
}

/// Pins a program, a map or a link.
pub fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let name = name(path)?;
    // SAFETY: a descriptor that lives, and a string that ends.
    match unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), name.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// What is pinned there.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let name = name(path)?;
    // SAFETY: a string that ends.
    let fd = unsafe { libbpf_sys::bpf_obj_get(name.as_ptr()) };
    match fd {
        // SAFETY: the descriptor is new, so nobody else owns it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn name(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn is_mounted() -> bool {
    statfs(PLACE).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}

fn is_our_mount() -> bool {
    let mounts = fs::read("/proc/mounts").unwrap_or_default();
    // Other mounts' places may be any bytes.
    String::from_utf8_lossy(&mounts).lines().any(|line| line.starts_with(&format!("{SOURCE} {PLACE} bpf ")))
}

fn has_no_pins() -> bool {
    let is_kernels_own = |name: &OsStr| name.to_str().is_some_and(|name| KERNELS_OWN.contains(&name));
    fs::read_dir(PLACE).is_ok_and(|entries| entries.flatten().all(|entry| is_kernels_own(&entry.file_name())))
}
