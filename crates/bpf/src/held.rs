//! Registered congestion controls, whoever registered them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use ekiden_congestion::{Algorithm, Settings, Tunables};
use libbpf_rs::query::{LinkInfo, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::error::{failed, libbpf};
use crate::{Error, links, object};

/// How often to look again when another process registers and unregisters at the same time.
const TRIES: u32 = 20;

/// A congestion control that stays in the kernel at least as long as this lives.
#[derive(Debug)]
pub struct Held {
    algorithm: Algorithm,
    link: OwnedFd,
    id: u32,
    tunables: MapHandle,
    pub(crate) lease: MapHandle,
    pub(crate) lost: MapHandle,
    pub(crate) events: MapHandle,
}

/// Holds `algorithms`, and registers those that nobody has; those get `settings`. Reno is the kernel's own, and skipped.
///
/// # Errors
/// If this kernel cannot, or this process may not: see [`Error::kind`].
pub fn hold(algorithms: &[Algorithm], settings: &Settings) -> Result<Vec<Held>, Error> {
    if algorithms.iter().all(|&algorithm| algorithm == Algorithm::Reno) {
        return Ok(Vec::new());
    }
    let tunables = Tunables::new(settings)?;
    let mut programs = None;
    let mut all = Vec::new();
    for &algorithm in algorithms.iter().filter(|&&algorithm| algorithm != Algorithm::Reno) {
        let mut tries = 0;
        let held = loop {
            if let Some(held) = registered(algorithm)? {
                break held;
            }
            let programs = match &mut programs {
                Some(programs) => programs,
                none => none.insert(object::load(&tunables)?),
            };
            if let Some(link) = object::attach(programs, algorithm)? {
                break Held::of(algorithm, link)?.ok_or(Error::NotThere(algorithm))?;
            }
            tries += 1;
            if tries == TRIES {
                return Err(Error::Refused(format!("the name {algorithm} is taken by another program")));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        all.push(held);
    }
    Ok(all)
}

/// A congestion control that someone has registered; `None` if nobody has.
///
/// # Errors
/// If this process may not look.
pub fn registered(algorithm: Algorithm) -> Result<Option<Held>, Error> {
    for link in links::all().map_err(failed("look at the kernel's eBPF links"))? {
        if let Some(held) = Held::of(algorithm, link)? {
            return Ok(Some(held));
        }
    }
    Ok(None)
}

impl Held {
    /// What this link registers, if it is `algorithm` and ours.
    fn of(algorithm: Algorithm, link: OwnedFd) -> Result<Option<Self>, Error> {
        let look = || libbpf("look at the kernel's eBPF links");
        let info = LinkInfo::from_fd(link.as_fd()).map_err(look())?;
        let LinkTypeInfo::StructOps(operations) = &info.info else { return Ok(None) };
        let Ok(map) = MapHandle::from_map_id(operations.map_id) else { return Ok(None) };
        // The kernel's structure with program ids in place of pointers, and the name as it is.
        let Some(value) = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(look())? else { return Ok(None) };
        let name = [algorithm.name().as_bytes(), b"\0"].concat();
        if !value.windows(name.len()).any(|window| window == name) {
            return Ok(None);
        }
        let programs: Vec<u64> =
            value.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes)).collect();
        // The program that knows all maps.
        let acked = format!("{}_acked", object::map_name(algorithm));
        let query = ProgInfoQueryOptions::default().include_map_ids(true);
        for program in ProgInfoIter::with_query_opts(query) {
            if !programs.contains(&program.id.into()) || program.name.to_str() != Some(&acked) {
                continue;
            }
            let maps: Vec<_> = program.map_ids.iter().filter_map(|&id| MapHandle::from_map_id(id).ok()).collect();
            let named = |name: &str| {
                let found = maps.iter().find(|map| map.name().to_str().is_some_and(|found| name.starts_with(found)));
                found.and_then(|map| MapHandle::try_from(map).ok())
            };
            if let (Some(tunables), Some(lease), Some(lost), Some(events)) =
                (named(object::TUNABLES), named(object::LEASE), named(object::LOST), named(object::EVENTS))
            {
                return Ok(Some(Self { algorithm, link, id: info.id, tunables, lease, lost, events }));
            }
        }
        Ok(None)
    }

    /// Which it is.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The kernel's number of the registration.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The parameters in force. Algorithms that were registered together share them.
    ///
    /// # Errors
    /// If another version of ekiden has loaded it.
    pub fn settings(&self) -> Result<Settings, Error> {
        let read = self.tunables.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(libbpf("read its parameters"))?;
        read.and_then(|bytes| Settings::from_bytes(&bytes)).ok_or(Error::OtherVersion(self.algorithm))
    }

    /// Changes the parameters, for connections that exist as well, from their next acknowledgement on.
    ///
    /// # Errors
    /// If the parameters do not fit each other, or another version of ekiden has loaded it.
    pub fn set(&self, settings: &Settings) -> Result<(), Error> {
        self.settings()?;
        let tunables = Tunables::new(settings)?;
        self.tunables
            .update(&0_u32.to_ne_bytes(), tunables.as_bytes(), MapFlags::ANY)
            .map_err(libbpf("write its parameters"))
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl AsRawFd for Held {
    fn as_raw_fd(&self) -> RawFd {
        self.link.as_raw_fd()
    }
}
