//! Registrations of ekiden's congestion controls with the kernel, by this process or another.
//!
//! A registration lasts as long as a process holds it, or until a reboot if it is pinned (`pins.rs`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use ekiden_congestion::{Algorithm, CongestionParameters, Tunables};
use libbpf_rs::query::{LinkInfo, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use crate::error::{failed, libbpf};
use crate::object::Programs;
use crate::{Error, links, object};

/// How often to try again while another process registers and unregisters at the same time. The kernel gives a name free some time after
/// its last holder has gone: where processors are busy, more than a second.
const TRIES: u32 = 100;

/// The registration of a congestion control. It stays in the kernel at least as long as this value lives.
#[derive(Debug)]
pub struct Registration {
    algorithm: Algorithm,
    link: OwnedFd,
    id: u32,
    tunables: MapHandle,
    pub(crate) lease: MapHandle,
    pub(crate) lost: MapHandle,
    pub(crate) events: MapHandle,
}

/// Registers `algorithms` with `tunables`. An algorithm that another process has registered keeps that registration and its
/// parameters. Reno is the kernel's own, and skipped.
///
/// # Errors
/// If this kernel cannot, or this process may not: see [`Error::kind`].
pub fn register(algorithms: &[Algorithm], tunables: &Tunables) -> Result<Vec<Registration>, Error> {
    let mut loaded: Vec<(Programs, Object)> = Vec::new();
    let mut all = Vec::new();
    for &algorithm in algorithms.iter().filter(|&&algorithm| algorithm != Algorithm::Reno) {
        let mut tries = 0;
        let registration = loop {
            if let Some(registration) = registered(algorithm)? {
                break registration;
            }
            let programs = Programs::of(algorithm);
            let at = match loaded.iter().position(|(of, _)| *of == programs) {
                Some(at) => at,
                None => {
                    loaded.push((programs, object::load(programs, tunables)?));
                    loaded.len() - 1
                }
            };
            if let Some(link) = object::attach(&mut loaded[at].1, algorithm)? {
                break Registration::of(algorithm, link)?.ok_or(Error::NotThere(algorithm))?;
            }
            tries += 1;
            if tries == TRIES {
                return Err(Error::Refused(format!("the name {algorithm} is taken by another program")));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        all.push(registration);
    }
    Ok(all)
}

/// The registration of `algorithm`, by whichever process; `None` if there is none.
///
/// # Errors
/// If this process may not list the kernel's eBPF links.
pub fn registered(algorithm: Algorithm) -> Result<Option<Registration>, Error> {
    for link in links::all().map_err(failed("look at the kernel's eBPF links"))? {
        if let Some(registration) = Registration::of(algorithm, link)? {
            return Ok(Some(registration));
        }
    }
    Ok(None)
}

impl Registration {
    /// The registration that `link` stands for, if it is one of `algorithm` and made by ekiden.
    fn of(algorithm: Algorithm, link: OwnedFd) -> Result<Option<Self>, Error> {
        let look = || libbpf("look at the kernel's eBPF links");
        let info = LinkInfo::from_fd(link.as_fd()).map_err(look())?;
        let LinkTypeInfo::StructOps(operations) = &info.info else { return Ok(None) };
        let Ok(map) = MapHandle::from_map_id(operations.map_id) else { return Ok(None) };
        // The kernel's tcp_congestion_ops: ids of programs in place of pointers, and the name as a string.
        let Some(value) = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(look())? else { return Ok(None) };
        let name = [algorithm.name().as_bytes(), b"\0"].concat();
        if !value.windows(name.len()).any(|window| window == name) {
            return Ok(None);
        }
        let programs: Vec<u64> =
            value.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes)).collect();
        // The program that uses all maps.
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

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The id of the registration's eBPF link.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The parameters in force. Algorithms that were registered together share them.
    ///
    /// # Errors
    /// If another version of ekiden has loaded it.
    pub fn parameters(&self) -> Result<CongestionParameters, Error> {
        let read = self.tunables.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(libbpf("read its parameters"))?;
        read.and_then(|bytes| CongestionParameters::from_bytes(&bytes)).ok_or(Error::OtherVersion(self.algorithm))
    }

    /// Changes the parameters, for connections that exist as well, from their next acknowledgement on.
    ///
    /// # Errors
    /// If the parameters do not fit each other, or another version of ekiden has loaded it.
    pub fn set(&self, parameters: &CongestionParameters) -> Result<(), Error> {
        self.parameters()?;
        let tunables = Tunables::new(parameters)?;
        self.tunables
            .update(&0_u32.to_ne_bytes(), tunables.as_bytes(), MapFlags::ANY)
            .map_err(libbpf("write its parameters"))
    }
}

impl AsFd for Registration {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl AsRawFd for Registration {
    fn as_raw_fd(&self) -> RawFd {
        self.link.as_raw_fd()
    }
}
