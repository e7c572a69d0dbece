//! Where the programs of a device are pinned.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use ekiden_bpf::gateway::Gateway;
use ekiden_net::device;

/// Whether a process has left programs on a device that is here, as far as this user may know.
pub(crate) fn has_left(device: &str) -> bool {
    device::index(device).is_ok() && pin_name(device).is_ok_and(|name| Gateway::is_pinned(&name).unwrap_or(false))
}

/// Whether the host's first process has another file system for pins, as far as this user may know.
pub(crate) fn are_hidden() -> bool {
    let system = |root: &str| fs::metadata(format!("{root}/sys/fs/bpf")).ok().map(|place| place.dev());
    system("/proc/1/root").is_some_and(|first| system("") != Some(first))
}

/// A device's name belongs to a network namespace, a pin's to the whole host.
pub(crate) fn pin_name(device: &str) -> io::Result<String> {
    let mut name = String::new();
    for byte in device.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => name.push(byte.into()),
            false => {
                let _ = write!(name, "_{byte:02x}");
            }
        }
    }
    Ok(format!("{name}-{}", fs::metadata("/proc/thread-self/ns/net")?.ino()))
}
