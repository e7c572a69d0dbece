//! Addresses of listeners that would be in each other's way.

use std::net::SocketAddr;

use ekiden_net::socket::overlap;
use indexmap::IndexMap;

use crate::config::Listener;

/// Why `listener` cannot have its address beside these.
pub(super) fn clash<'a>(listener: &Listener, mut others: impl Iterator<Item = &'a Listener>) -> Option<String> {
    let own = listener.address;
    // `[::]` leaves IPv4 to a listener that has an address of that.
    let is_in_the_way =
        |other: &&Listener| own.port() != 0 && own.is_ipv4() == other.address.is_ipv4() && overlap(own, other.address);
    let other = others.find(is_in_the_way)?;
    Some(match other.address == own {
        true => format!("another listener already has the address {own}"),
        false => format!(
            "[listen.{}] has {}, and one of both is for all addresses of this host: leave that one, or use another port",
            other.name, other.address
        ),
    })
}

/// Listeners on `[::]` take IPv4 too, unless another listener has an IPv4 address with the same port.
pub(super) fn leave_ipv4(listeners: &mut IndexMap<String, Listener>) {
    let v4 = listeners.values().map(|listener| listener.address).filter(SocketAddr::is_ipv4);
    let ports: Vec<u16> = v4.map(|address| address.port()).filter(|&port| port != 0).collect();
    for listener in listeners.values_mut() {
        listener.only_v6 = ports.contains(&listener.address.port());
    }
}
