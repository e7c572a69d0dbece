//! Which group goes before another, and the prefixes by which the kernel finds the groups of an address.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::error::GatewayError;
use super::group::Group;

/// The groups' numbers, each before those that are less specific.
pub(super) fn order(groups: &[Group]) -> Result<Vec<usize>, GatewayError> {
    let mut before = vec![vec![false; groups.len()]; groups.len()];
    for a in 0..groups.len() {
        for b in a + 1..groups.len() {
            match compare(&groups[a], &groups[b]) {
                None => {}
                Some(Ordering::Equal) => return Err(GatewayError::Overlap(a, b)),
                Some(order) => before[a][b] = order == Ordering::Less,
            }
            before[b][a] = !before[a][b] && compare(&groups[a], &groups[b]).is_some();
        }
    }
    let mut left: Vec<usize> = (0..groups.len()).collect();
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_first = |candidate: usize| !left.iter().any(|&other| before[other][candidate]);
        let Some(place) = left.iter().position(|&group| is_first(group)) else {
            // Groups with several networks, each before the next in a circle.
            return Err(GatewayError::Overlap(left[0], left[1]));
        };
        ordered.push(left.remove(place));
    }
    Ok(ordered)
}

/// `Less` if the first group goes before the other wherever both match, `Equal` if it does not everywhere; `None` if no stream
/// is in both.
fn compare(a: &Group, b: &Group) -> Option<Ordering> {
    let meet = |a: &RangeInclusive<u16>, b: &RangeInclusive<u16>| {
        !a.is_empty() && !b.is_empty() && a.start() <= b.end() && b.start() <= a.end()
    };
    if !meet(&a.source_ports, &b.source_ports) || !meet(&a.destination_ports, &b.destination_ports) {
        return None;
    }
    let ports = |group: &Group| (group.source_ports.len(), group.destination_ports.len());
    let mut order = None;
    for (a_source, b_source) in common(&a.sources, &b.sources) {
        for (a_destination, b_destination) in common(&a.destinations, &b.destinations) {
            if a_source.addr().is_ipv4() != a_destination.addr().is_ipv4() {
                continue;
            }
            let key = |source: &IpNet, destination: &IpNet, group| {
                (Reverse(source.prefix_len()), Reverse(destination.prefix_len()), ports(group))
            };
            let this = key(a_source, a_destination, a).cmp(&key(b_source, b_destination, b));
            if this == Ordering::Equal || order.is_some_and(|order| order != this) {
                return Some(Ordering::Equal);
            }
            order = Some(this);
        }
    }
    order
}

/// The pairs of networks with addresses in common.
fn common<'a>(a: &'a [IpNet], b: &'a [IpNet]) -> impl Iterator<Item = (&'a IpNet, &'a IpNet)> {
    let meet = |a: &IpNet, b: &IpNet| a.contains(b) || b.contains(a);
    a.iter().flat_map(move |a| b.iter().filter(move |b| meet(a, b)).map(move |b| (a, b)))
}

/// Of a prefix: the groups that have it among their networks or a wider one, a bit for each place in the order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bits {
    pub sources: u64,
    pub destinations: u64,
}

/// All prefixes of groups in their order. The longest that holds an address tells all groups that do.
pub(super) fn prefixes<'a>(ordered: impl Iterator<Item = &'a Group> + Clone) -> BTreeMap<IpNet, Bits> {
    let nets = ordered.clone().flat_map(|group| group.sources.iter().chain(&group.destinations));
    let mut prefixes: BTreeMap<IpNet, Bits> = nets.map(|net| (net.trunc(), Bits::default())).collect();
    for (prefix, bits) in &mut prefixes {
        for (place, group) in ordered.clone().enumerate() {
            let has = |nets: &[IpNet]| u64::from(nets.iter().any(|net| net.contains(prefix)));
            bits.sources |= has(&group.sources) << place;
            bits.destinations |= has(&group.destinations) << place;
        }
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(source: &str, destination: &str) -> Group {
        let nets = |text: &str| text.split(' ').map(|net| net.parse().expect("a network")).collect();
        Group { sources: nets(source), destinations: nets(destination), ..Group::default() }
    }

    #[test]
    fn the_more_specific_group_goes_first() {
        let groups =
            [group("10.0.0.0/8", "0.0.0.0/0"), group("10.1.0.0/16", "0.0.0.0/0"), group("10.0.0.0/8", "192.0.2.0/24")];
        assert_eq!(order(&groups).expect("an order"), [1, 2, 0]);
        let ports = Group { source_ports: 80..=80, ..Group::default() };
        assert_eq!(order(&[Group::default(), ports]).expect("an order"), [1, 0]);
        assert_eq!(order(&[group("::/0", "::/0"), group("0.0.0.0/0", "0.0.0.0/0")]).expect("apart"), [0, 1]);
    }

    #[test]
    fn groups_without_an_order_are_refused() {
        let twice = [group("10.0.0.0/8", "0.0.0.0/0"), group("10.0.0.0/8", "0.0.0.0/0")];
        assert!(matches!(order(&twice), Err(GatewayError::Overlap(0, 1))));
        // The first has the longer network for some addresses, the second for others.
        let crossed = [group("10.0.0.0/8 11.1.0.0/16", "0.0.0.0/0"), group("10.1.0.0/16 11.0.0.0/8", "0.0.0.0/0")];
        assert!(matches!(order(&crossed), Err(GatewayError::Overlap(0, 1))));
        let ports = |first, last| Group { source_ports: first..=last, ..Group::default() };
        assert!(matches!(order(&[ports(1, 10), ports(5, 14)]), Err(GatewayError::Overlap(0, 1))));
        assert_eq!(order(&[ports(1, 10), ports(11, 14)]).expect("apart"), [0, 1]);
    }

    #[test]
    fn a_prefix_has_the_groups_of_wider_ones() {
        let groups = [group("10.1.0.0/16", "10.0.0.0/8"), group("10.0.0.0/8", "0.0.0.0/0")];
        let prefixes = prefixes(groups.iter());
        let bits = |net: &str| prefixes[&net.parse::<IpNet>().expect("a network")];
        assert_eq!(bits("10.1.0.0/16"), Bits { sources: 0b11, destinations: 0b11 });
        assert_eq!(bits("10.0.0.0/8"), Bits { sources: 0b10, destinations: 0b11 });
        assert_eq!(bits("0.0.0.0/0"), Bits { sources: 0, destinations: 0b10 });
    }
}
