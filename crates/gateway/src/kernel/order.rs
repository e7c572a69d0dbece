//! Which group goes before another, and the prefixes by which the kernel finds the groups of an address.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{BitOr, BitOrAssign, RangeInclusive};

use ipnet::IpNet;

use super::error::GatewayError;
use super::group::Group;

/// The groups' numbers, each before those that are less specific. There are 64 at most.
pub(super) fn order(groups: &[Group]) -> Result<Vec<usize>, GatewayError> {
    let meetings = Meetings::of(groups);
    let mut before = vec![vec![false; groups.len()]; groups.len()];
    for (a, b) in (0..groups.len()).flat_map(|a| (a + 1..groups.len()).map(move |b| (a, b))) {
        let order = compare(groups, &meetings, a, b);
        match order {
            None => {}
            Some(Ordering::Equal) => return Err(GatewayError::Overlap(a, b)),
            Some(order) => before[a][b] = order == Ordering::Less,
        }
        before[b][a] = !before[a][b] && order.is_some();
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
fn compare(groups: &[Group], meetings: &Meetings, a: usize, b: usize) -> Option<Ordering> {
    let (first, second) = (&groups[a], &groups[b]);
    let meet = |a: &RangeInclusive<u16>, b: &RangeInclusive<u16>| {
        !a.is_empty() && !b.is_empty() && a.start() <= b.end() && b.start() <= a.end()
    };
    if !meet(&first.source_ports, &second.source_ports) || !meet(&first.destination_ports, &second.destination_ports) {
        return None;
    }
    let ports = |group: &Group| (group.source_ports.len(), group.destination_ports.len());
    let ports = ports(first).cmp(&ports(second));
    let mut order = None;
    for is_4 in [true, false] {
        for source in meetings.lengths(a, b, is_4, |bits| bits.sources) {
            for destination in meetings.lengths(a, b, is_4, |bits| bits.destinations) {
                let this = source.then(destination).then(ports);
                if this == Ordering::Equal || order.is_some_and(|order| order != this) {
                    return Some(Ordering::Equal);
                }
                order = Some(this);
            }
        }
    }
    order
}

/// Which groups have networks with addresses in common, by IP version and group.
struct Meetings {
    /// Groups that have one of its networks too.
    same: [Vec<Bits>; 2],
    /// Groups that have a wider one around one of its networks.
    wider: [Vec<Bits>; 2],
}

impl Meetings {
    fn of(groups: &[Group]) -> Self {
        let none = || [vec![Bits::default(); groups.len()], vec![Bits::default(); groups.len()]];
        let mut meetings = Self { same: none(), wider: none() };
        for Net { prefix, own, wider } in nets(groups.iter()) {
            let version = usize::from(prefix.addr().is_ipv4());
            for group in 0..groups.len() {
                let of = |has: u64, all: u64| if has >> group & 1 == 1 { all } else { 0 };
                let of = |all: Bits| Bits {
                    sources: of(own.sources, all.sources),
                    destinations: of(own.destinations, all.destinations),
                };
                meetings.same[version][group] |= of(own);
                meetings.wider[version][group] |= of(wider);
            }
        }
        meetings
    }

    /// How the lengths of two groups' networks compare wherever they meet; the longer ones are `Less`.
    fn lengths(&self, a: usize, b: usize, is_4: bool, side: impl Fn(Bits) -> u64) -> impl Iterator<Item = Ordering> {
        let has = |bits: &[Vec<Bits>; 2], of: usize, group: usize| side(bits[usize::from(is_4)][of]) >> group & 1 == 1;
        let found = [
            (Ordering::Less, has(&self.wider, a, b)),
            (Ordering::Equal, has(&self.same, a, b)),
            (Ordering::Greater, has(&self.wider, b, a)),
        ];
        found.into_iter().filter_map(|(order, is_there)| is_there.then_some(order))
    }
}

/// A bit for each group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bits {
    pub sources: u64,
    pub destinations: u64,
}

impl BitOr for Bits {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { sources: self.sources | other.sources, destinations: self.destinations | other.destinations }
    }
}

impl BitOrAssign for Bits {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A network of groups.
struct Net {
    prefix: IpNet,
    /// The groups that have it.
    own: Bits,
    /// Those that have a wider one around it.
    wider: Bits,
}

/// All networks of groups, wider ones before those in them. A bit is a group's place.
fn nets<'a>(groups: impl Iterator<Item = &'a Group>) -> impl Iterator<Item = Net> {
    let mut own: BTreeMap<IpNet, Bits> = BTreeMap::new();
    for (place, group) in groups.enumerate() {
        group.sources.iter().for_each(|net| own.entry(net.trunc()).or_default().sources |= 1 << place);
        group.destinations.iter().for_each(|net| own.entry(net.trunc()).or_default().destinations |= 1 << place);
    }
    // The last network, and those around it.
    let mut around: Vec<(IpNet, Bits)> = Vec::new();
    own.into_iter().map(move |(prefix, own)| {
        while around.last().is_some_and(|(net, _)| !net.contains(&prefix)) {
            around.pop();
        }
        let wider = around.last().map_or(Bits::default(), |(_, bits)| *bits);
        around.push((prefix, own | wider));
        Net { prefix, own, wider }
    })
}

/// Of each prefix the groups, in their order, that have it among their networks or a wider one. The longest prefix that holds an
/// address tells all groups that do.
pub(super) fn prefixes<'a>(ordered: impl Iterator<Item = &'a Group>) -> BTreeMap<IpNet, Bits> {
    nets(ordered).map(|net| (net.prefix, net.own | net.wider)).collect()
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

    #[test]
    fn groups_that_meet_in_one_version_only_are_compared_in_it() {
        let groups = [group("10.0.0.0/8 fd00::/16", "0.0.0.0/0 ::/0"), group("fd00::/16", "fd00:1::/32")];
        assert_eq!(order(&groups).expect("an order"), [1, 0]);
        // Where the sources are the same, the destinations are apart.
        let apart = [group("10.0.0.0/8", "192.0.2.0/24"), group("10.0.0.0/8", "192.0.3.0/24 ::/0")];
        assert_eq!(order(&apart).expect("an order"), [0, 1]);
    }

    #[test]
    fn thousands_of_networks_are_no_work() {
        let net = |group: usize, number: usize| format!("10.{}.{}.0/24", group * 4 + number / 256, number % 256);
        let nets = |group| (0..1024).map(|number| net(group, number)).collect::<Vec<_>>().join(" ");
        let groups: Vec<Group> = (0..64).map(|number| group(&nets(number), "0.0.0.0/0 ::/0")).collect();
        let start = std::time::Instant::now();
        assert_eq!(order(&groups).expect("apart").len(), 64);
        assert_eq!(prefixes(groups.iter()).len(), 64 * 1024 + 2);
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }
}
