//! What the kernel says beyond the interface of crate `bpf`, and how the command line names things.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ekiden_bpf::{Error, Registration, registered};
use ekiden_congestion::{Algorithm, CongestionParameters, ParameterError};
use ekiden_net::kernel_text;

use super::NothingThere;

/// The timeout of the kernel to unregister what no program holds.
const PATIENCE: Duration = Duration::from_secs(1);

/// A parameter and its value, within its range.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The parameter.
    pub name: String,
    /// As it was written.
    pub value: String,
}

/// Parses `KEY=VALUE`.
pub fn setting(text: &str) -> Result<Setting, String> {
    let Some((name, value)) = text.split_once('=') else { return Err("needs a key, '=' and a value".into()) };
    CongestionParameters::default().set(name, value).map_err(|error| error.to_string())?;
    Ok(Setting { name: name.into(), value: value.into() })
}

/// Parses the name of a congestion control that can be loaded.
pub fn name(text: &str) -> Result<Algorithm, String> {
    let named = |name: &str| Algorithm::LOADABLE.into_iter().find(|algorithm| algorithm.name() == name);
    match (named(text), named(&format!("ekiden_{text}"))) {
        (Some(algorithm), _) => Ok(algorithm),
        (None, Some(algorithm)) => Err(format!("did you mean {algorithm}?")),
        (None, None) => {
            let known = Algorithm::LOADABLE.map(Algorithm::name).join(", ");
            Err(format!("ekiden's congestion controls are {known}"))
        }
    }
}

/// Applies `changes`.
///
/// # Errors
/// If a value is out of range.
pub fn change(settings: &mut CongestionParameters, changes: &[Setting]) -> Result<(), ParameterError> {
    changes.iter().try_for_each(|change| settings.set(&change.name, &change.value))
}

/// Those that are in the kernel.
///
/// # Errors
/// If there is none, or this process may not look.
pub fn all_registered() -> anyhow::Result<Vec<Registration>> {
    let mut all = Vec::new();
    for algorithm in Algorithm::LOADABLE {
        all.extend(registered(algorithm)?);
    }
    if all.is_empty() { Err(NothingThere.into()) } else { Ok(all) }
}

/// Whether the kernel's file system of eBPF objects is there.
pub fn has_mount() -> bool {
    let mounts = kernel_text("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some("/sys/fs/bpf"))
}

/// Whether only some processes see what this one mounts.
pub fn is_mount_private() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    namespace("self") != namespace("1")
}

/// Who still holds it, now that it is not pinned; `None` if it is gone.
///
/// # Errors
/// If this process may not look.
pub fn left_after_unpinning(algorithm: Algorithm, was_pinned: bool) -> Result<Option<String>, Error> {
    let limit = Instant::now() + if was_pinned { PATIENCE } else { Duration::ZERO };
    loop {
        let Some(held) = registered(algorithm)? else { return Ok(None) };
        let id = held.id();
        drop(held);
        let holders = holders(id);
        if !holders.is_empty() {
            return Ok(Some(holders.join(", ")));
        }
        if Instant::now() >= limit {
            return Ok(Some("a process that is not visible here, or a pin that is not ours".into()));
        }
        sleep(Duration::from_millis(20));
    }
}

/// The processes that have a descriptor of the kernel's link `id`.
pub fn holders(id: u32) -> Vec<String> {
    let wanted = format!("link_id:\t{id}");
    let holds = |process: &Path| {
        let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|descriptor| {
            fs::read_to_string(descriptor.path()).is_ok_and(|text| text.lines().any(|line| line == wanted))
        })
    };
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.path();
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if number != std::process::id() && holds(&process) {
            let name = kernel_text(process.join("comm")).unwrap_or_default().replace(char::is_control, " ");
            found.push(format!("process {number} ({})", name.trim()));
        }
    }
    found
}
