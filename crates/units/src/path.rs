//! What a path may be, for all that compute with one.

use std::ops::RangeInclusive;

use crate::{BitRate, Bytes, Time};

/// Its round trip.
pub const RTTS: RangeInclusive<Time> = Time(10_000)..=Time::secs(10);
/// Its rate: as a scenario's.
pub const RATES: RangeInclusive<BitRate> = BitRate(1_000)..=BitRate(1_000_000_000_000);
/// The buffer of its bottleneck, from a packet on.
pub const BUFFERS: RangeInclusive<Bytes> = Bytes(576)..=Bytes::mib(16 << 10);
/// What fits into the longest path: 400 Gbit/s over 300 ms. What is more than the greatest buffer is on no path, and takes minutes to compute.
pub const BDP_MOST: Bytes = *BUFFERS.end();
