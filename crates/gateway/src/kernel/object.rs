//! Loading the programs and filling their maps.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ekiden_bpf::messages::{self, Aligned};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};

use super::error::{GatewayError, failed, is_of_open_files, libbpf};
use super::layout::{self, Keeper};
use super::order;
use super::settings::Settings;

static PROGRAMS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/gateway.bpf.o")));

/// Whose time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    Kernels,
    /// That of `Gateway::set_clock_us`.
    Own,
}

/// The programs, which [`Maps`] feed.
#[derive(Debug)]
pub(super) struct Programs {
    pub egress: OwnedFd,
    pub ingress: OwnedFd,
    /// On no device.
    pub sweep: OwnedFd,
}

impl Programs {
    /// From what `open` finds under each name.
    pub fn from(mut open: impl FnMut(&str) -> Result<OwnedFd, GatewayError>) -> Result<Self, GatewayError> {
        let [egress, ingress, sweep] = PROGRAM_NAMES;
        Ok(Self { egress: open(egress)?, ingress: open(ingress)?, sweep: open(sweep)? })
    }

    /// In the order of [`PROGRAM_NAMES`].
    pub fn all(&self) -> [BorrowedFd<'_>; 3] {
        [self.egress.as_fd(), self.ingress.as_fd(), self.sweep.as_fd()]
    }
}

/// The maps, as programs/gateway.bpf.c has them.
#[derive(Debug)]
pub(super) struct Maps {
    pub streams4: MapHandle,
    pub streams6: MapHandle,
    pub groups: MapHandle,
    pub keeper: MapHandle,
    pub passing: MapHandle,
    pub events: MapHandle,
    pub sweeping: MapHandle,
    pub slots: MapHandle,
}

/// The names of the maps that [`Maps`] has, in its order.
pub(super) const MAPS: [&str; 8] = [
    "ekiden_streams4",
    "ekiden_streams6",
    "ekiden_groups",
    "ekiden_keeper",
    "ekiden_passing",
    "ekiden_events",
    "ekiden_sweeping",
    // The program's variables: ekiden_slots.
    ".bss",
];
const NETS: [&str; 2] = ["ekiden_nets4", "ekiden_nets6"];
/// The names of the programs, in the order of [`Programs`].
pub(super) const PROGRAM_NAMES: [&str; 3] = ["ekiden_egress", "ekiden_ingress", "ekiden_sweep"];

impl Maps {
    /// From what `open` finds under each name.
    pub fn from(mut open: impl FnMut(&str) -> Result<MapHandle, GatewayError>) -> Result<Self, GatewayError> {
        let [streams4, streams6, groups, keeper, passing, events, sweeping, slots] = MAPS;
        Ok(Self {
            streams4: open(streams4)?,
            streams6: open(streams6)?,
            groups: open(groups)?,
            keeper: open(keeper)?,
            passing: open(passing)?,
            events: open(events)?,
            sweeping: open(sweeping)?,
            slots: open(slots)?,
        })
    }

    /// In the order of [`MAPS`].
    pub fn all(&self) -> [&MapHandle; 8] {
        let Self { streams4, streams6, groups, keeper, passing, events, sweeping, slots } = self;
        [streams4, streams6, groups, keeper, passing, events, sweeping, slots]
    }
}

/// By which a later process knows programs and settings again.
pub(super) fn mark(settings: &Settings) -> u64 {
    let mut hasher = DefaultHasher::new();
    PROGRAMS.0.hash(&mut hasher);
    format!("{settings:?}").hash(&mut hasher);
    hasher.finish()
}

/// Loads the programs, with the groups; they run nowhere yet.
pub(super) fn load(settings: &Settings, keeper: Keeper, clock: Clock) -> Result<(Programs, Maps), GatewayError> {
    let ordered: Vec<_> = settings.check()?.into_iter().map(|number| (number, &settings.groups[number])).collect();
    let prefixes = order::prefixes(ordered.iter().map(|(_, group)| *group));
    messages::listen();
    let refused = |error| refused(settings, &error);
    let mut open = ObjectBuilder::default().open_memory(&PROGRAMS.0).map_err(refused)?;
    size(&mut open, "ekiden_streams4", settings.streams4).map_err(refused)?;
    size(&mut open, "ekiden_streams6", settings.streams6).map_err(refused)?;
    for (name, is_4) in NETS.into_iter().zip([true, false]) {
        let count = prefixes.keys().filter(|prefix| prefix.addr().is_ipv4() == is_4).count();
        size(&mut open, name, count.max(1) as u32).map_err(refused)?;
    }
    if clock == Clock::Own {
        let mut constants = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
        let is_own =
            constants.as_mut().and_then(|map| map.initial_value_mut()).and_then(|value| value.first_chunk_mut());
        *is_own.ok_or_else(|| lacks("constants"))? = 1_u32.to_ne_bytes();
    }
    let object = open.load().map_err(refused)?;
    let maps = Maps::from(|name| handle(&object, name))?;
    let write = || libbpf("write the groups");
    for (place, (number, group)) in ordered.iter().enumerate() {
        let value = layout::group_value(group, *number);
        maps.groups.update(&(place as u32).to_ne_bytes(), &value, MapFlags::ANY).map_err(write())?;
    }
    let nets = [handle(&object, NETS[0])?, handle(&object, NETS[1])?];
    for (prefix, bits) in &prefixes {
        let net = &nets[usize::from(prefix.addr().is_ipv6())];
        net.update(&layout::prefix_key(prefix), &layout::prefix_value(*bits), MapFlags::ANY).map_err(write())?;
    }
    maps.keeper.update(&0_u32.to_ne_bytes(), &keeper.bytes(), MapFlags::ANY).map_err(write())?;
    Ok((Programs::from(|name| program(&object, name))?, maps))
}

/// A descriptor of our own keeps a map when libbpf drops its own.
fn handle(object: &Object, name: &str) -> Result<MapHandle, GatewayError> {
    // The object's own name stands before those of variables.
    let is_it = |map: &libbpf_rs::Map<'_>| map.name().to_string_lossy().ends_with(name);
    let map = object.maps().find(is_it).ok_or_else(|| lacks(name))?;
    MapHandle::try_from(&map).map_err(libbpf(format!("hold {name}")))
}

fn program(object: &Object, name: &str) -> Result<OwnedFd, GatewayError> {
    let program = object.progs().find(|program| program.name() == name).ok_or_else(|| lacks(name))?;
    program.as_fd().try_clone_to_owned().map_err(failed(format!("hold {name}")))
}

fn lacks(name: &str) -> GatewayError {
    GatewayError::Refused { reason: format!("the programs have no {name}"), log: String::new() }
}

fn size(object: &mut OpenObject, name: &str, entries: u32) -> Result<(), libbpf_rs::Error> {
    match object.maps_mut().find(|map| map.name() == name) {
        Some(mut map) => map.set_max_entries(entries),
        None => Ok(()),
    }
}

fn refused(settings: &Settings, error: &libbpf_rs::Error) -> GatewayError {
    let messages = messages::take();
    match error.kind() {
        // The verifier has the same number, but says something.
        ErrorKind::PermissionDenied if !messages.iter().any(|line| line.contains("BEGIN PROG LOAD LOG")) => {
            GatewayError::Capabilities
        }
        ErrorKind::OutOfMemory | ErrorKind::TooBig => {
            let Settings { streams4, streams6, .. } = *settings;
            let bytes = u64::from(streams4) * 168 + u64::from(streams6) * 192;
            GatewayError::Memory { streams4, streams6, megabytes: bytes.div_ceil(1_000_000) }
        }
        _ if is_of_open_files(error) => GatewayError::OpenFiles,
        _ => {
            let log = messages.concat();
            GatewayError::Refused { reason: format!("{error}{}", why(&log)), log }
        }
    }
}

/// What the verifier said before its statistics, in parentheses; without it the last that was said.
fn why(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let statistics =
        lines.iter().position(|line| line.starts_with("verification time") || line.starts_with("processed "));
    let said = statistics.and_then(|place| lines.get(place.checked_sub(1)?)).or(lines.last());
    said.map(|line| format!(" ({line})")).unwrap_or_default()
}
