//! The streams in the kernel's tables, and what becomes of old ones.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use ekiden_window_balance::{GroupState, StreamState};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::time::{ClockId, clock_gettime};

use super::batch;
use super::error::{GatewayError, failed, libbpf};
use super::layout::{self, StreamValue};
use super::object::{Maps, Programs};
use super::run;

/// The programs tell time in 2³⁰ ns.
const TICK: Duration = Duration::from_nanos(1 << 30);
/// Later than now: the packet passed while the table was read.
const AHEAD: u16 = 16;

/// A stream that has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The sender of its data.
    pub sender: SocketAddr,
    /// The receiver.
    pub receiver: SocketAddr,
    /// The number of its group in the settings.
    pub group: usize,
    /// Since its last packet, within 1.1 s. After 19.5 hours it begins anew from 0.
    pub idle: Duration,
    /// What is known of it.
    pub state: StreamState,
}

/// How long a stream without packets keeps its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// One whose handshake was seen. At most 19 hours.
    pub open: Duration,
    /// One that has had no SYN-ACK, so that SYNs without a connection do not fill the table for long.
    pub opening: Duration,
}

impl Default for Idle {
    /// 2 hours and 4 minutes, which keep-alives of hosts (7,200 s) fall short of; 30 s.
    fn default() -> Self {
        Self { open: Duration::from_secs(7440), opening: Duration::from_secs(30) }
    }
}

/// All streams at about this moment.
pub(super) fn all(maps: &Maps) -> Result<Vec<Stream>, GatewayError> {
    let numbers: Vec<usize> = groups(maps)?.into_iter().map(|(number, _)| number).collect();
    let now = now();
    let mut streams = Vec::new();
    for map in [&maps.streams4, &maps.streams6] {
        for (key, value) in read(map)? {
            let (sender, receiver) = layout::key_ends(&key);
            let group = numbers.get(usize::from(value.group)).copied().unwrap_or_default();
            streams.push(Stream { sender, receiver, group, idle: idle(now, value.last), state: value.state });
        }
    }
    Ok(streams)
}

/// The number and the state of all groups, in their places.
pub(super) fn groups(maps: &Maps) -> Result<Vec<(usize, GroupState)>, GatewayError> {
    let mut groups = Vec::new();
    for place in 0..maps.groups.max_entries() {
        let value = maps.groups.lookup(&place.to_ne_bytes(), MapFlags::ANY).map_err(libbpf("read the groups"))?;
        groups.extend(value.as_deref().and_then(layout::read_group));
    }
    Ok(groups)
}

/// Takes their places from streams without packets for so long. Returns how many.
pub(super) fn sweep(programs: &Programs, maps: &Maps, most: Idle) -> Result<u64, GatewayError> {
    let ticks = |most: Duration| u32::try_from(most.as_nanos() / TICK.as_nanos()).unwrap_or(u32::MAX);
    let key = 0_u32.to_ne_bytes();
    let value = layout::sweep_value(ticks(most.open), ticks(most.opening));
    maps.sweeping.update(&key, &value, MapFlags::ANY).map_err(libbpf("sweep the streams"))?;
    // The program does not look at the packet.
    run::test_run(programs.sweep.as_fd(), &[0; 64], 0, 1)?;
    let value = maps.sweeping.lookup(&key, MapFlags::ANY).map_err(libbpf("sweep the streams"))?;
    Ok(layout::swept(value.as_deref().unwrap_or_default()))
}

fn read(map: &MapHandle) -> Result<Vec<(Vec<u8>, StreamValue)>, GatewayError> {
    let mut streams = Vec::new();
    batch::for_each(map, |key, value| streams.extend(StreamValue::read(value).map(|value| (key.to_vec(), value))))
        .map_err(failed("read the streams"))?;
    Ok(streams)
}

fn now() -> u16 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    (now.as_nanos() / TICK.as_nanos()) as u16
}

fn idle(now: u16, last: u16) -> Duration {
    let ticks = now.wrapping_sub(last);
    TICK * u32::from(if ticks > u16::MAX - AHEAD { 0 } else { ticks })
}
