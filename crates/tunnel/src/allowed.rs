//! Which peer has which addresses.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks, each with the number of the peer that has it. No two overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed(Vec<(IpNet, usize)>);

impl Allowed {
    /// Adds a network. Returns the one that it overlaps, and its peer, if there is one.
    pub fn add(&mut self, network: IpNet, peer: usize) -> Result<(), (IpNet, usize)> {
        let network = network.trunc();
        let overlaps = |(other, _): &&(IpNet, usize)| other.contains(&network) || network.contains(other);
        if let Some(other) = self.0.iter().find(overlaps) {
            return Err(*other);
        }
        self.0.push((network, peer));
        Ok(())
    }

    /// The peer that has this address.
    pub fn peer(&self, address: IpAddr) -> Option<usize> {
        self.0.iter().find(|(network, _)| network.contains(&address)).map(|(_, peer)| *peer)
    }

    /// The networks that a peer has.
    pub fn of(&self, peer: usize) -> impl Iterator<Item = IpNet> {
        self.0.iter().filter(move |(_, of)| *of == peer).map(|(network, _)| *network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_peer_or_none() {
        let mut allowed = Allowed::default();
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        assert_eq!(allowed.add(net("10.0.0.0/24"), 0), Ok(()));
        assert_eq!(allowed.add(net("fd00::/64"), 1), Ok(()));
        assert_eq!(allowed.add(net("10.0.0.7/32"), 1), Err((net("10.0.0.0/24"), 0)));
        assert_eq!(allowed.add(net("10.0.0.0/8"), 1), Err((net("10.0.0.0/24"), 0)));
        assert_eq!(allowed.peer("10.0.0.255".parse().unwrap()), Some(0));
        assert_eq!(allowed.peer("fd00::1".parse().unwrap()), Some(1));
        assert_eq!(allowed.peer("10.0.1.0".parse().unwrap()), None);
    }
}
