//! Gateways that outlive their process: files in the folder gateway-NAME of bpffs, one for each program, map and link.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ekiden_bpf::{bpffs, lock};
use libbpf_rs::{MapCore, MapHandle};

use super::error::{GatewayError, failed, libbpf};
use super::hook::Hook;
use super::layout::{GROUP_VALUE, STREAM_VALUE};
use super::object::{MAPS, Maps, PROGRAM_NAMES, Programs};

/// What the folders are called, before the name.
const FOLDER: &str = "gateway-";
/// What the links are called, before their number.
const LINK: &str = "link-";

pub(super) fn pin(name: &str, programs: &Programs, maps: &Maps, hooks: &[Hook]) -> Result<(), GatewayError> {
    let folder = folder(name)?;
    let links: Option<Vec<_>> = hooks.iter().map(Hook::links).collect();
    let links = links.ok_or(GatewayError::PinsNeedTcx)?;
    let _lock = lock::pins().map_err(failed("lock the pins"))?;
    bpffs::prepare().map_err(may_not(format!("prepare {}", bpffs::directory().display())))?;
    match fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(GatewayError::Pinned(name.to_owned()));
        }
        result => result.map_err(may_not(format!("make {}", folder.display())))?,
    }
    let programs = PROGRAM_NAMES.iter().map(|name| (*name).to_owned()).zip(programs.all());
    let maps = MAPS.iter().map(|name| file(name)).zip(maps.all().map(AsFd::as_fd));
    let links = links.into_iter().flatten().enumerate().map(|(number, link)| (format!("{LINK}{number}"), link.as_fd()));
    for (name, fd) in programs.chain(maps).chain(links) {
        let path = folder.join(name);
        if let Err(error) = bpffs::pin(fd, &path) {
            remove(&folder)?;
            return Err(may_not(format!("pin {}", path.display()))(error));
        }
    }
    Ok(())
}

pub(super) fn open(name: &str) -> Result<(Programs, Maps, Vec<Hook>), GatewayError> {
    let folder = folder(name)?;
    // What this user may not see is as if it were not there: nothing of it can be opened.
    if !exists(name)? {
        return Err(GatewayError::NotPinned(name.to_owned()));
    }
    let get = |file: &str| match bpffs::open(&folder.join(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(GatewayError::OtherVersion(name.to_owned())),
        result => result.map_err(may_not(format!("open {}", folder.join(file).display()))),
    };
    let programs = Programs::from(get)?;
    let maps = Maps::from(|map| {
        // Somebody was killed while it pinned, or unpinned.
        if !folder.join(file(map)).exists() {
            return Err(GatewayError::OtherVersion(name.to_owned()));
        }
        let handle = MapHandle::from_pinned_path(folder.join(file(map)));
        handle.map_err(libbpf(format!("open {}", folder.join(file(map)).display())))
    })?;
    let sizes = [maps.streams4.value_size(), maps.streams6.value_size(), maps.groups.value_size()];
    if sizes.map(|size| size as usize) != [STREAM_VALUE, STREAM_VALUE, GROUP_VALUE] {
        return Err(GatewayError::OtherVersion(name.to_owned()));
    }
    let mut links: Vec<OwnedFd> = Vec::new();
    while folder.join(format!("{LINK}{}", links.len())).exists() {
        links.push(get(&format!("{LINK}{}", links.len()))?);
    }
    let mut hooks = Vec::new();
    let mut links = links.into_iter();
    while let (Some(egress), Some(ingress)) = (links.next(), links.next()) {
        hooks.push(Hook::Tcx { links: [egress, ingress] });
    }
    Ok((programs, maps, hooks))
}

pub(super) fn unpin(name: &str) -> Result<bool, GatewayError> {
    let folder = folder(name)?;
    let _lock = lock::pins().map_err(failed("lock the pins"))?;
    let looked = bpffs::is_prepared().and_then(|is_prepared| Ok(is_prepared && folder.try_exists()?));
    if !looked.map_err(may_not(format!("look for {}", folder.display())))? {
        return Ok(false);
    }
    remove(&folder)?;
    bpffs::tidy();
    Ok(true)
}

/// Whether there is something, as far as this user may see.
pub(super) fn exists(name: &str) -> Result<bool, GatewayError> {
    let folder = folder(name)?;
    Ok(bpffs::is_prepared().unwrap_or(false) && folder.is_dir())
}

/// Removes gateways whose device is gone.
pub(super) fn remove_stale() {
    if !bpffs::is_prepared().unwrap_or(false) {
        return;
    }
    let Ok(_lock) = lock::pins() else { return };
    let folders = fs::read_dir(bpffs::directory()).into_iter().flatten().flatten().map(|entry| entry.path());
    for folder in folders.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FOLDER)))
    {
        let link = |number: usize| bpffs::open(&folder.join(format!("{LINK}{number}"))).ok();
        let (Some(egress), Some(ingress)) = (link(0), link(1)) else { continue };
        if (Hook::Tcx { links: [egress, ingress] }).device().is_none() {
            let _ = remove(&folder);
        }
    }
    bpffs::tidy();
}

/// As [`failed`]; for a user who may not change the file system of pins, with the remedy.
fn may_not(what: String) -> impl FnOnce(io::Error) -> GatewayError {
    |error| match error.raw_os_error() {
        Some(nix::libc::EACCES) => GatewayError::MayNotPin { what },
        _ => failed(what)(error),
    }
}

fn remove(folder: &Path) -> Result<(), GatewayError> {
    fs::remove_dir_all(folder).map_err(may_not(format!("remove {}", folder.display())))
}

fn folder(name: &str) -> Result<PathBuf, GatewayError> {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if name.is_empty() || !name.chars().all(is_fit) {
        return Err(GatewayError::Name(name.to_owned()));
    }
    Ok(bpffs::directory().join(format!("{FOLDER}{name}")))
}

/// bpffs takes no dots in names.
fn file(map: &str) -> String {
    map.replace('.', "variables-")
}
