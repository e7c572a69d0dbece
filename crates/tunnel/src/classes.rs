//! Which of the connections to a peer carries a packet.
//!
//! Classes choose among the connections. `node/slot.rs` chooses one of these for each flow.

use std::ops::{Range, RangeInclusive};

use crate::packet::Header;
use crate::protocol::Protocol;

/// The connections to a peer: those of everything, then those of each class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    /// How many carry what is of no class.
    pub default: u8,
    /// The first that a packet belongs to counts.
    pub classes: Vec<Class>,
}

/// Packets that have connections of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Its name, as the status shows it.
    pub name: String,
    /// Only packets of this protocol. `None`: of any.
    pub protocol: Option<Protocol>,
    /// Only packets from or to one of these ports. Empty: any packets.
    pub ports: Vec<RangeInclusive<u16>>,
    /// How many connections it has.
    pub connections: u8,
}

impl Classes {
    /// How many connections there are in all.
    pub fn connections(&self) -> u8 {
        self.classes.iter().fold(self.default, |all, class| all.saturating_add(class.connections))
    }

    /// The numbers of the connections that this packet may take.
    pub fn of(&self, header: &Header, packet: &[u8]) -> Range<usize> {
        let (protocol, ports) = header.transport(packet);
        let mut first = usize::from(self.default);
        for class in &self.classes {
            let next = first + usize::from(class.connections);
            if class.takes(protocol, ports) {
                return first..next;
            }
            first = next;
        }
        0..usize::from(self.default)
    }

    /// The class of a connection.
    pub fn name(&self, number: u8) -> Option<&str> {
        let mut next = self.default;
        self.classes.iter().find_map(|class| {
            let first = next;
            next = next.saturating_add(class.connections);
            (first..next).contains(&number).then_some(&class.name[..])
        })
    }
}

impl Class {
    fn takes(&self, protocol: Protocol, ports: Option<[u16; 2]>) -> bool {
        let is_in = |port: u16| self.ports.iter().any(|range| range.contains(&port));
        self.protocol.is_none_or(|wanted| wanted == protocol)
            && (self.ports.is_empty() || ports.is_some_and(|ports| ports.into_iter().any(is_in)))
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn the_first_class_that_a_packet_belongs_to_counts() {
        let class = |name: &str, protocol, ports: &[RangeInclusive<u16>], connections| Class {
            name: name.into(),
            protocol,
            ports: ports.to_vec(),
            connections,
        };
        let classes = Classes {
            default: 1,
            classes: vec![
                class("bulk", Some(Protocol::Tcp), &[5001..=5001, 6000..=6100], 2),
                class("dns", None, &[53..=53], 1),
                class("udp", Some(Protocol::Udp), &[], 3),
                class("rest", Some(Protocol::Other), &[], 1),
            ],
        };
        let of = |packet: &[u8]| classes.of(&Header::read(packet).unwrap(), packet);
        let build = |from: u16, to: u16, is_tcp: bool| {
            let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
            let mut out = vec![0; if is_tcp { 40 } else { 28 }];
            match is_tcp {
                true => builder.tcp(from, to, 0, 0).write_to_slice(&mut out, &[]).unwrap(),
                false => builder.udp(from, to).write_to_slice(&mut out, &[]).unwrap(),
            };
            out
        };
        assert_eq!(of(&build(40_000, 5001, true)), 1..3);
        assert_eq!(of(&build(6050, 40_000, true)), 1..3);
        assert_eq!(of(&build(53, 40_000, true)), 3..4);
        assert_eq!(of(&build(40_000, 5001, false)), 4..7);
        assert_eq!(of(&build(40_000, 80, true)), 0..1);
        // A later part of a packet has no ports.
        let mut part = build(40_000, 5001, true);
        part[7] = 1;
        assert_eq!(of(&part), 7..8);
        assert_eq!(classes.connections(), 8);
        assert_eq!(
            [0, 2, 3, 7, 8].map(|number| classes.name(number)),
            [None, Some("bulk"), Some("dns"), Some("rest"), None]
        );
    }
}
