//! Addresses of nodes, the same in the lab and in the packets that the simulator writes.

use std::net::Ipv4Addr;

/// The address of the node at `index` in the scenario, counted from 0: node number n, counted from 1, has 10.77.0.n. `None`
/// beyond the 65,534 that there is room for.
pub fn address(index: usize) -> Option<Ipv4Addr> {
    let number = u16::try_from(index + 1).ok().filter(|number| *number < u16::MAX)?;
    let [high, low] = number.to_be_bytes();
    Some(Ipv4Addr::new(10, 77, high, low))
}
