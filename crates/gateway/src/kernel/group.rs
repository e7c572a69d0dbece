//! Which streams are kept in balance with each other.

use std::ops::RangeInclusive;

use ekiden_window_balance::BalanceSettings;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Parallel streams that are kept in balance with each other: those whose sender is in one of the networks `sources` and their
/// receiver in one of `destinations`, on these ports. Addresses are those on the device's wire, behind any translation that
/// the host does.
///
/// Of groups that match a stream, the one with the longest source network has it, then with the longest destination network, then
/// with the fewest source ports, then destination ports.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Networks of the senders of data.
    pub sources: Vec<IpNet>,
    /// Networks of the receivers.
    pub destinations: Vec<IpNet>,
    /// Ports of the senders.
    pub source_ports: RangeInclusive<u16>,
    /// Ports of the receivers.
    pub destination_ports: RangeInclusive<u16>,
    /// When windows are lowered, and to what.
    pub balance: BalanceSettings,
    /// The shift of the windows of streams whose handshake was not seen, at most 14. Without it these are left alone. With it in any
    /// group, ACKs of all streams that no group has are compared with the groups, one by one.
    pub assumed_scale: Option<u8>,
}

impl Default for Group {
    /// All streams.
    fn default() -> Self {
        let all = || vec![Ipv4Net::default().into(), Ipv6Net::default().into()];
        Self {
            sources: all(),
            destinations: all(),
            source_ports: 0..=u16::MAX,
            destination_ports: 0..=u16::MAX,
            balance: BalanceSettings::default(),
            assumed_scale: None,
        }
    }
}
