//! The structures of programs/gateway.h as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ekiden_window_balance::{GROUP_BYTES, GroupState, STREAM_BYTES, StreamState};
use ipnet::IpNet;

use super::group::Group;
use super::order::Bits;

/// Bytes of `struct gateway_group`.
pub(super) const GROUP_VALUE: usize = 128;
/// The first cache line of it, which has the state.
const GROUP_LINE: usize = 64;
/// Bytes of `struct stream4_key`.
const KEY4: usize = 12;
/// Bytes of `struct gateway_stream` before its state.
const STREAM_HEAD: usize = 8;
/// Bytes of `struct gateway_stream`.
pub(super) const STREAM_VALUE: usize = STREAM_HEAD + STREAM_BYTES;

const _: () = assert!(GROUP_BYTES <= GROUP_LINE);

/// Reads consecutive numbers; 0 beyond the end.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *first
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// Network order.
    fn port(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    fn ipv4(&mut self) -> IpAddr {
        Ipv4Addr::from(self.take::<4>()).into()
    }

    fn ipv6(&mut self) -> IpAddr {
        Ipv6Addr::from(self.take::<16>()).into()
    }

    /// Sixteen bytes for either version, then the ports.
    pub fn ends(&mut self, version: u32) -> (SocketAddr, SocketAddr) {
        let (sender, receiver) = (self.take::<16>(), self.take::<16>());
        let address = |bytes: [u8; 16]| match version {
            4 => Fields(&bytes).ipv4(),
            _ => Fields(&bytes).ipv6(),
        };
        let (sender, receiver) = (address(sender), address(receiver));
        (SocketAddr::new(sender, self.port()), SocketAddr::new(receiver, self.port()))
    }
}

/// The sender and the receiver of a `struct stream4_key` or `struct stream6_key`.
pub(super) fn key_ends(key: &[u8]) -> (SocketAddr, SocketAddr) {
    let mut fields = Fields(key);
    let (sender, receiver) = match key.len() {
        KEY4 => (fields.ipv4(), fields.ipv4()),
        _ => (fields.ipv6(), fields.ipv6()),
    };
    (SocketAddr::new(sender, fields.port()), SocketAddr::new(receiver, fields.port()))
}

/// `struct gateway_stream`.
pub(super) struct StreamValue {
    /// When its last packet passed, in 2³⁰ ns; wraps.
    pub last: u16,
    /// Its group's place.
    pub group: u8,
    pub state: StreamState,
}

impl StreamValue {
    /// `last` alone.
    pub fn last(bytes: &[u8]) -> Option<u16> {
        Some(Fields(bytes.get(4..STREAM_HEAD)?).u16())
    }

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, state) = bytes.get(..STREAM_VALUE)?.split_at(STREAM_HEAD);
        let mut fields = Fields(head);
        let _lock = fields.u32();
        Some(Self { last: fields.u16(), group: fields.take::<1>()[0], state: StreamState::read(state)? })
    }
}

/// `struct gateway_group` of a group of this number.
pub(super) fn group_value(group: &Group, number: usize) -> Vec<u8> {
    let mut value = vec![0; GROUP_LINE];
    group.balance.words().iter().for_each(|word| value.extend(word.to_ne_bytes()));
    for ports in [&group.source_ports, &group.destination_ports] {
        // The first behind the last: none.
        let (first, last) = if ports.is_empty() { (1, 0) } else { (*ports.start(), *ports.end()) };
        value.extend(first.to_ne_bytes());
        value.extend(last.to_ne_bytes());
    }
    value.extend(group.assumed_scale.map_or(0, |scale| u32::from(scale) + 1).to_ne_bytes());
    value.extend((number as u32).to_ne_bytes());
    value.resize(GROUP_VALUE, 0);
    value
}

/// The number and the state in a `struct gateway_group`; `None` if no group has this place.
pub(super) fn read_group(value: &[u8]) -> Option<(usize, GroupState)> {
    // `repeats`, at least 1.
    if Fields(value.get(GROUP_LINE..)?).u32() == 0 {
        return None;
    }
    let number = value.get(GROUP_LINE + 8 * 4 + 4 * 2 + 4..)?;
    Some((Fields(number).u32() as usize, GroupState::read(value)?))
}

/// `struct prefix4` or `struct prefix6`.
pub(super) fn prefix_key(prefix: &IpNet) -> Vec<u8> {
    let mut key = u32::from(prefix.prefix_len()).to_ne_bytes().to_vec();
    match prefix.network() {
        IpAddr::V4(address) => key.extend(address.octets()),
        IpAddr::V6(address) => key.extend(address.octets()),
    }
    key
}

/// `struct prefix_groups`.
pub(super) fn prefix_value(bits: Bits) -> Vec<u8> {
    [bits.sources.to_ne_bytes(), bits.destinations.to_ne_bytes()].concat()
}

/// `struct gateway_keeper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keeper {
    /// Monotonic nanoseconds; 0: always.
    pub until_ns: u64,
    pub clock_us: u64,
    pub mark: u64,
    pub assumes: bool,
}

impl Keeper {
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = [self.until_ns, self.clock_us, self.mark].map(u64::to_ne_bytes).concat();
        bytes.extend(u32::from(self.assumes).to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    pub fn read(bytes: &[u8]) -> Self {
        let mut fields = Fields(bytes);
        Self { until_ns: fields.u64(), clock_us: fields.u64(), mark: fields.u64(), assumes: fields.u32() != 0 }
    }
}

/// The keys that a `struct gateway_sweep` has room for.
pub(super) const SWEPT_MOST: usize = 64;
/// Bytes of a key there, whatever its version.
const SWEPT_KEY: usize = 36;

/// `struct gateway_sweep`. Times are in 2³⁰ ns.
pub(super) struct SweepValue<'a> {
    pub open: u32,
    pub opening: u32,
    pub closing: u32,
    /// One behind the other, [`SWEPT_MOST`] at most.
    pub keys: &'a [u8],
    pub key_size: usize,
}

impl SweepValue<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let count = self.keys.len() / self.key_size;
        let version = if self.key_size == KEY4 { 4 } else { 6 };
        let mut bytes = [self.open, self.opening, self.closing, version, count as u32].map(u32::to_ne_bytes).concat();
        for key in self.keys.chunks_exact(self.key_size) {
            bytes.extend(key);
            bytes.resize(bytes.len() + SWEPT_KEY - self.key_size, 0);
        }
        bytes.resize(20 + SWEPT_MOST * SWEPT_KEY, 0);
        bytes
    }
}

/// What the gateway has counted since it was loaded (`struct gateway_counters`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that passed.
    pub seen: u64,
    /// Packets of streams that are kept in balance, or may come to be.
    pub tracked: u64,
    /// Packets whose window was lowered.
    pub rewritten: u64,
    /// Streams that were given a place.
    pub begun: u64,
    /// Streams that ended; not those swept.
    pub ended: u64,
    /// SYNs of streams for which there was no place. They are left alone.
    pub full: u64,
    /// Malformed packets. They pass unchanged.
    pub malformed: u64,
    /// Packets with TCP-MD5 or TCP-AO of streams that would be kept in balance. They are left alone.
    pub signed: u64,
    /// Packets of streams whose SYN was seen, but no SYN-ACK that fits it.
    pub without_handshake: u64,
    /// Packets of streams that passed untouched because the keeper had not renewed its word.
    pub unkept: u64,
    /// Packets that passed untouched because another one of their stream was being looked at for too long.
    pub busy: u64,
    /// Events for which the buffer had no room.
    pub lost: u64,
}

impl Counters {
    /// Adds those of one processor.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut fields = Fields(bytes);
        for counter in [
            &mut self.seen,
            &mut self.tracked,
            &mut self.rewritten,
            &mut self.begun,
            &mut self.ended,
            &mut self.full,
            &mut self.malformed,
            &mut self.signed,
            &mut self.without_handshake,
            &mut self.unkept,
            &mut self.busy,
            &mut self.lost,
        ] {
            *counter += fields.u64();
        }
    }
}
