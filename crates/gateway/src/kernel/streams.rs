//! The streams in the kernel's tables, and what becomes of old ones.

use std::net::SocketAddr;
use std::time::Duration;

use ekiden_bpf::batch;
use ekiden_window_balance::{GroupState, StreamState};
use libbpf_rs::{MapCore, MapFlags};
use nix::time::{ClockId, clock_gettime};

use super::error::{GatewayError, failed, libbpf};
use super::layout::{self, StreamValue};
use super::object::Maps;

/// The programs tell time in 2³⁰ ns.
pub(super) const TICK: Duration = Duration::from_nanos(1 << 30);
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
    /// One whose handshake is not over, so that SYNs without a connection do not fill the table for long. A SYN that is sent again makes a
    /// new place.
    pub opening: Duration,
    /// One of which either end has sent its FIN. What then ends it may not pass here: hosts forget such connections by themselves.
    pub closing: Duration,
}

impl Default for Idle {
    /// 2 hours and 4 minutes, which keep-alives of hosts (7,200 s) fall short of; 10 s; 2 minutes.
    fn default() -> Self {
        Self { open: Duration::from_secs(7440), opening: Duration::from_secs(10), closing: Duration::from_secs(120) }
    }
}

/// Every stream at about this moment.
pub(super) fn for_each(maps: &Maps, mut each: impl FnMut(Stream)) -> Result<(), GatewayError> {
    let numbers: Vec<usize> = groups(maps)?.into_iter().map(|(number, _)| number).collect();
    let now = now();
    for map in [&maps.streams4, &maps.streams6] {
        let stream = |key: &[u8], value: StreamValue| {
            let (sender, receiver) = layout::key_ends(key);
            let group = numbers.get(usize::from(value.group)).copied().unwrap_or_default();
            Stream { sender, receiver, group, idle: TICK * u32::from(age(now, value.last)), state: value.state }
        };
        batch::for_each(map, |key, value| {
            if let Some(value) = StreamValue::read(value) {
                each(stream(key, value));
            }
        })
        .map_err(failed("read the streams"))?;
    }
    Ok(())
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

/// The programs' clock.
pub(super) fn now() -> u16 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    (now.as_nanos() / TICK.as_nanos()) as u16
}

/// Since the last packet, by the programs' clock.
pub(super) fn age(now: u16, last: u16) -> u16 {
    let ticks = now.wrapping_sub(last);
    if ticks > u16::MAX - AHEAD { 0 } else { ticks }
}
