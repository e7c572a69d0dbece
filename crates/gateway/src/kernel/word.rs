//! The keeper's word: the programs do their work until the time that it names.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::time::{ClockId, clock_gettime};

use super::error::{GatewayError, libbpf};
use super::layout::Keeper;

/// Gives the keeper's word, from any thread. At most one word of a gateway may be in use at a time.
#[derive(Debug)]
pub struct Word(MapHandle);

impl Word {
    pub(super) fn new(map: &MapHandle) -> Result<Self, GatewayError> {
        MapHandle::try_from(map).map(Self).map_err(libbpf("hold the keeper's word"))
    }

    /// As [`Gateway::renew_for`](super::Gateway::renew_for).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn renew_for(&self, kept: Duration) -> Result<(), GatewayError> {
        change(&self.0, |keeper| keeper.until_ns = until_ns(kept))
    }
}

pub(super) fn read(map: &MapHandle) -> Result<Keeper, GatewayError> {
    let read = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
    Ok(Keeper::read(read.map_err(libbpf("read the keeper's word"))?.as_deref().unwrap_or_default()))
}

pub(super) fn change(map: &MapHandle, change: impl FnOnce(&mut Keeper)) -> Result<(), GatewayError> {
    let mut keeper = read(map)?;
    change(&mut keeper);
    map.update(&0_u32.to_ne_bytes(), &keeper.bytes(), MapFlags::ANY).map_err(libbpf("give the keeper's word"))
}

/// The time until which a word counts that is given for `kept`, in nanoseconds of the monotonic clock.
pub(super) fn until_ns(kept: Duration) -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    (now + kept).as_nanos() as u64
}
