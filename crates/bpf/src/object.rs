//! Loading the compiled programs into the kernel.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ekiden_congestion::{Algorithm, Tunables};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object, ObjectBuilder};

use crate::error::failed;
use crate::messages::Aligned;
use crate::{Error, links, messages};

static PROGRAMS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/congestion.bpf.o")));

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
    }
}

/// Checks that this kernel accepts the programs. Registers nothing.
///
/// # Errors
/// Why not.
pub fn try_load() -> Result<(), Error> {
    load(&Tunables::default()).map(drop)
}

/// Loads the programs, and registers none.
pub(crate) fn load(tunables: &Tunables) -> Result<Object, Error> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::NoBtf);
    }
    messages::listen();
    let object =
        ObjectBuilder::default().open_memory(&PROGRAMS.0).and_then(libbpf_rs::OpenObject::load).map_err(refused)?;
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
