//! What a line carries once the headers are taken off.

use ekiden_scenario::Direction;
use ekiden_units::BitRate;

const IPV4_HEADER: u32 = 20;
const TCP_HEADER: u32 = 20;
/// The timestamps option with its padding, as every data segment carries it (RFC 7323 appendix A).
const TIMESTAMPS: u32 = 12;
/// Of a data segment over IPv4 with timestamps.
pub(crate) const HEADERS: u32 = IPV4_HEADER + TCP_HEADER + TIMESTAMPS;

/// The payload rate of a saturated link with full-sized segments over IPv4: rate × MSS / MTU.
pub fn payload_rate(line: &Direction, timestamps: bool) -> BitRate {
    let headers = IPV4_HEADER + TCP_HEADER + if timestamps { TIMESTAMPS } else { 0 };
    let payload = line.mtu.saturating_sub(headers);
    BitRate((u128::from(line.rate.0) * u128::from(payload) / u128::from(line.mtu)) as u64)
}
