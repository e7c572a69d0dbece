//! Loading the compiled programs into the kernel.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ekiden_congestion::{Algorithm, Tunables};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object, ObjectBuilder};

use crate::error::failed;
use crate::messages::Aligned;
use crate::{Error, links, messages};

static OF_WINDOWS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/congestion.bpf.o")));
static OF_RATES: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/far.bpf.o")));

/// An object file, which holds the programs of several algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs {
    /// Of those that set a window.
    OfWindows,
    /// Of those that set a rate too: not every kernel takes them.
    OfRates,
}

impl Programs {
    /// Those of an algorithm.
    pub fn of(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Reno | Algorithm::Hstcp | Algorithm::Ghstcp | Algorithm::Bic => Self::OfWindows,
            Algorithm::Far => Self::OfRates,
        }
    }

    fn file(self) -> &'static [u8] {
        match self {
            Self::OfWindows => &OF_WINDOWS.0,
            Self::OfRates => &OF_RATES.0,
        }
    }
}

/// The map of parameters.
pub(crate) const TUNABLES: &str = "ekiden_tunables";
/// The map with the lease of the process that reads the events.
pub(crate) const LEASE: &str = "ekiden_lease";
/// The map that counts events lost because the ring buffer was full.
pub(crate) const LOST: &str = "ekiden_lost";
/// The ring buffer of events.
pub(crate) const EVENTS: &str = "ekiden_events";

/// The name of an algorithm's struct_ops map, and the prefix of its programs.
pub(crate) fn map_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Reno => "reno",
        Algorithm::Hstcp => "hstcp",
        Algorithm::Ghstcp => "ghstcp",
        Algorithm::Bic => "bic",
        Algorithm::Far => "far",
    }
}

/// Checks that this kernel accepts the programs. Registers nothing.
///
/// # Errors
/// Why not.
pub fn try_load() -> Result<(), Error> {
    [Programs::OfWindows, Programs::OfRates]
        .into_iter()
        .try_for_each(|programs| load(programs, &Tunables::default()).map(drop))
}

/// Loads the programs, and registers none.
pub(crate) fn load(programs: Programs, tunables: &Tunables) -> Result<Object, Error> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::NoBtf);
    }
    messages::listen();
    let object =
        ObjectBuilder::default().open_memory(programs.file()).and_then(libbpf_rs::OpenObject::load).map_err(refused)?;
    let map = object.maps().find(|map| map.name() == TUNABLES);
    let map = map.ok_or_else(|| Error::Refused(format!("the programs have no {TUNABLES}")))?;
    map.update(&0_u32.to_ne_bytes(), tunables.as_bytes(), MapFlags::ANY).map_err(refused)?;
    Ok(object)
}

/// Registers an algorithm. `None` if its name is taken.
pub(crate) fn attach(object: &mut Object, algorithm: Algorithm) -> Result<Option<OwnedFd>, Error> {
    let name = map_name(algorithm);
    let Some(mut map) = object.maps_mut().find(|map| map.name() == name) else {
        return Err(Error::Refused(format!("the programs have no {name}")));
    };
    match map.attach_struct_ops() {
        // A descriptor of our own keeps the link when libbpf drops its own.
        Ok(link) => link.as_fd().try_clone_to_owned().map(Some).map_err(failed(format!("hold {algorithm}"))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: libbpf_rs::Error) -> Error {
    let messages = messages::take();

    // The verifier and missing capabilities have the same error number.
    if error.kind() == ErrorKind::PermissionDenied && links::may_list().is_err() {
        return Error::Capabilities;
    }
    Error::Refused(format!("{error}{}", messages::last(&messages)))
}
