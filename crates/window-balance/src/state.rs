//! What the kernel knows of a stream or a group, read from its memory.

use crate::{BalanceSettings, native};

/// Bytes of `struct ekb_stream`.
pub const STREAM_BYTES: usize = size_of::<native::Stream>();
/// Bytes of `struct ekb_group`.
pub const GROUP_BYTES: usize = size_of::<native::Group>();

/// What is known of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamState {
    /// Whether its handshake was seen, so that windows may be rewritten.
    pub is_open: bool,
    /// The round-trip time between gateway and receiver, in microseconds; `None` while unknown.
    pub rtt_us: Option<u32>,
    /// The shortest of these.
    pub least_us: Option<u32>,
    /// Bytes of the last round trip; `None` while unknown.
    pub flow: Option<u32>,
    /// The bytes that its windows are limited to, or were while the group was throttled; `None` without a limit.
    pub limit: Option<u32>,
    /// The payload of the largest segment seen, in bytes.
    pub segment: u16,
    /// The shift of the receiver's windows.
    pub scale: u8,
}

impl StreamState {
    /// From a `struct ekb_stream`; `None` if there are not enough bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let stream = native::Stream::read(bytes)?;
        let known = |value: u32| (value != 0).then_some(value);
        Some(Self {
            is_open: stream.is_open(),
            rtt_us: known(stream.rtt_us),
            least_us: known(stream.least_us),
            flow: known(stream.flow),
            limit: known(stream.limit),
            segment: stream.segment,
            scale: stream.scale(),
        })
    }

    /// Whether it is left alone since its path is short, or not measured yet: `ekb_is_short`.
    pub fn is_short(&self, settings: &BalanceSettings) -> bool {
        self.least_us.unwrap_or_default() < settings.native().shortest_us
    }
}

/// What is known of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupState {
    /// The number of the last throttling. 0 before the first; the 65,536th is 1 again.
    pub throttlings: u16,
    /// How many streams cause it. With [`Policy::Delivered`](crate::Policy::Delivered) always 0.
    pub stalled: u32,
}

impl GroupState {
    /// From a `struct ekb_group`; `None` if there are not enough bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (state, _) = bytes.get(..GROUP_BYTES)?.split_first_chunk()?;
        let state = u64::from_ne_bytes(*state);
        Some(Self { throttlings: (state >> 32) as u16, stalled: state as u32 })
    }
}
