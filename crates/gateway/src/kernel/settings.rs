//! Which streams a gateway keeps in balance, and how.

use ipnet::IpNet;

use super::error::GatewayError;
use super::group::Group;
use super::order;

/// Groups at most.
pub const GROUPS_MOST: usize = 64;
/// The largest window scale (RFC 7323, section 2.3).
const SCALE_MOST: u8 = 14;

/// What a gateway does.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The groups, 1 to [`GROUPS_MOST`].
    pub groups: Vec<Group>,
    /// How many streams of IPv4 there is room for. The memory is taken at once: about 16 MB for 100,000.
    pub streams4: u32,
    /// And of IPv6: about 19 MB for 100,000.
    pub streams6: u32,
}

impl Default for Settings {
    /// All streams, 10,000 of each IP version.
    fn default() -> Self {
        Self { groups: vec![Group::default()], streams4: 10_000, streams6: 10_000 }
    }
}

impl Settings {
    /// The groups' numbers, the one that goes before the others first.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn check(&self) -> Result<Vec<usize>, GatewayError> {
        if self.groups.is_empty() || self.groups.len() > GROUPS_MOST {
            return Err(GatewayError::GroupCount(self.groups.len()));
        }
        if self.streams4 == 0 || self.streams6 == 0 {
            return Err(GatewayError::NoPlaces);
        }
        for (number, group) in self.groups.iter().enumerate() {
            let is_of = |net: &IpNet, is_4: bool| net.addr().is_ipv4() == is_4;
            let has = |nets: &[IpNet], is_4| nets.iter().any(|net| is_of(net, is_4));
            if ![true, false].iter().any(|&is_4| has(&group.sources, is_4) && has(&group.destinations, is_4)) {
                return Err(GatewayError::NoNetworks(number));
            }
            if let Some(scale) = group.assumed_scale.filter(|scale| *scale > SCALE_MOST) {
                return Err(GatewayError::Scale(number, scale));
            }
        }
        order::order(&self.groups)
    }
}
