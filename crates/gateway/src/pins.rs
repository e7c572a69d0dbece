//! Where the programs of a device are pinned.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use ekiden_net::device;

use crate::kernel::Gateway;

/// Where the kernel's file system of eBPF objects is.
const PINS: &str = "/sys/fs/bpf";

/// Whether a process has left programs on a device that is here, as far as this user may know.
pub(crate) fn has_left(device: &str) -> bool {
    device::index(device).is_ok() && pin_name(device).is_ok_and(|name| Gateway::is_pinned(&name).unwrap_or(false))
}

/// Whether the host's first process has another file system for pins, as far as this user may know.
pub(crate) fn are_hidden() -> bool {
    let mounts = |process: &str| fs::read_to_string(format!("/proc/{process}/mountinfo")).ok();
    mounts("1").zip(mounts("self")).is_some_and(|(first, own)| is_another(&first, &own))
}

/// Whether two processes have other file systems for pins, by their mounts (proc_pid_mountinfo(5)).
fn is_another(first: &str, own: &str) -> bool {
    // Of several mounts on one place the last is seen. Its third field is the device.
    let device = |mounts: &str| {
        let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut there = mounts.lines().map(fields).filter(|fields| fields.get(4).is_some_and(|at| at == PINS));
        there.next_back().and_then(|fields| fields.get(2).cloned())
    };
    device(first) != device(own)
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

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM: &str = "20 1 0:20 / /sys rw - sysfs sysfs rw\n";

    fn with_pins(device: &str) -> String {
        format!("{SYSTEM}31 20 {device} / /sys/fs/bpf rw,relatime shared:9 - bpf bpf rw,mode=700\n")
    }

    #[test]
    fn a_file_system_of_ones_own_is_told_from_the_hosts_by_its_device() {
        let (host, own) = (with_pins("0:31"), with_pins("0:99"));
        assert!(!is_another(&host, &host));
        assert!(is_another(&host, &own));
        // `ip netns exec` mounts /sys anew, and the gateway pins on it.
        assert!(is_another(SYSTEM, &own));
        // The last mount on a place is the one that is seen.
        assert!(is_another(&host, &format!("{host}{}", with_pins("0:99"))));
        assert!(!is_another(&host, &format!("{own}{host}")));
    }
}
