//! The device's addresses and the peers' networks, as far as the file alone tells whether they can work.

use std::net::IpAddr;

use indexmap::IndexMap;
use ipnet::IpNet;
use serde_spanned::Spanned;

use super::Resolver;
use crate::allowed::Allowed;
use crate::config::raw::{Raw, RawDevice};
use crate::config::{ConfigError, Device, Peer};

/// Networks that no peer has, and what they are for.
const NOBODYS: [(&str, &str); 8] = [
    ("0.0.0.0/8", "addresses that name no host"),
    ("127.0.0.0/8", "loopback addresses"),
    ("224.0.0.0/4", "multicast addresses"),
    ("::/128", "the address that names no host"),
    ("::1/128", "the loopback address"),
    ("fe80::/10", "link-local addresses"),
    ("ff00::/8", "multicast addresses"),
    ("::ffff:0:0/96", "IPv4 addresses in IPv6's form"),
];

impl Resolver<'_> {
    /// The addresses of the device.
    pub(super) fn addresses(&self, raw: &Spanned<RawDevice>) -> Result<Vec<IpNet>, ConfigError> {
        let mut addresses: Vec<IpNet> = Vec::new();
        for text in &raw.get_ref().addresses {
            let failed = |reason: String| Err(self.error(Some(text.span()), reason));
            let Some(address) = own_address(text.get_ref()) else {
                return failed(format!("'{}' is not an address, such as 10.77.0.1/24", text.get_ref()));
            };
            if let Some(what) = cannot_be_own(address) {
                return failed(format!("the device cannot have the address {address}: {what}"));
            }
            if addresses.iter().any(|other| other.addr() == address.addr()) {
                return failed(format!("the address {} is there twice", address.addr()));
            }
            addresses.push(address);
        }
        match addresses.is_empty() {
            true => Err(self
                .error(Some(raw.span()), "the device needs an address, such as addresses = [\"10.77.0.1/24\"]".into())),
            false => Ok(addresses),
        }
    }

    /// Gives a peer a network.
    pub(super) fn allow(
        &self,
        text: &Spanned<String>,
        peer: usize,
        device: &Device,
        allowed: &mut Allowed,
        raw: &Raw,
    ) -> Result<(), ConfigError> {
        let failed = |reason: String| Err(self.error(Some(text.span()), reason));
        let network = match ekiden_units::network(text.get_ref()) {
            Ok(network) => network,
            Err(error) => return failed(error.to_string()),
        };
        if network.prefix_len() == 0 {
            return failed(format!(
                "{network} is the default route, which a tunnel cannot take: its own connections would go through it"
            ));
        }
        if let Some(what) = nobodys(network) {
            return failed(format!("no peer can have {network}: these are {what}"));
        }
        if let Some(own) = device.addresses.iter().find(|own| network.contains(&own.addr())) {
            return failed(format!("{network} holds this node's own address {}", own.addr()));
        }
        allowed.add(network, peer).or_else(|(other, number)| {
            let name = raw.peer.get_index(number).map_or("", |(name, _)| name.get_ref());
            failed(format!("{network} overlaps {other}, which peer '{name}' has"))
        })
    }

    /// A connection to a peer must not go through the tunnel that it carries.
    pub(super) fn no_route_to_a_peer(
        &self,
        raw: &Raw,
        peers: &IndexMap<String, Peer>,
        device: &Device,
        allowed: &Allowed,
    ) -> Result<(), ConfigError> {
        for ((name, peer), raw) in peers.iter().zip(raw.peer.values()) {
            let (text, address) = match &peer.http_proxy {
                Some(proxy) => (&raw.get_ref().http_proxy, Some(&proxy.address)),
                None => (&raw.get_ref().address, peer.address.as_ref()),
            };
            let Some((host, _)) = address else { continue };
            let Some(address) = host.parse().ok().map(|address: IpAddr| address.to_canonical()) else { continue };
            let place = match device.network_of(address) {
                Some(own) => format!("the network of the device's address {own}"),
                None if allowed.peer(address).is_some() => "the allowed addresses".into(),
                None => continue,
            };
            let span = text.as_ref().map(Spanned::span);
            let reason = format!("{host} is in {place}: the connection to '{name}' would go through the tunnel itself");
            return Err(self.error(span, reason));
        }
        Ok(())
    }
}

/// An address with the network that it is in, or alone.
fn own_address(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// What a network's addresses are for, if they are for no peer.
fn nobodys(network: IpNet) -> Option<&'static str> {
    let holds = |text: &str| text.parse().is_ok_and(|all: IpNet| all.contains(&network));
    NOBODYS.into_iter().find(|(text, _)| holds(text)).map(|(_, what)| what)
}

/// Why a device cannot have this address.
fn cannot_be_own(address: IpNet) -> Option<String> {
    if address.prefix_len() == 0 {
        return Some("with a length of 0 the network around it is everything".into());
    }
    let host = IpNet::from(address.addr());
    // A device has a link-local address beside others.
    if let Some(what) = nobodys(host).filter(|what| *what != "link-local addresses") {
        return Some(format!("it is of {what}"));
    }
    let is_network = address.addr() == address.network() && address.max_prefix_len() - address.prefix_len() > 1;
    is_network.then(|| format!("it is the network's own; take one in it, such as {}", first_in(address)))
}

/// The first address of a network after its own.
fn first_in(network: IpNet) -> String {
    network.hosts().find(|host| *host != network.addr()).map_or(String::new(), |host| host.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_that_is_nobodys_can_be_read() {
        for (text, what) in NOBODYS {
            assert_eq!(nobodys(text.parse().unwrap()), Some(what), "{text}");
        }
    }
}
