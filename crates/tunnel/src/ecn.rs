//! Explicit congestion notification in an IP header (RFC 3168, section 5).

use crate::packet::mend;

/// The two bits: congestion experienced. Either bit alone says that the sender understands this one.
const CE: u8 = 0b11;

/// Marks a packet as having met congestion, if its sender understands that. Returns whether it is marked now.
///
/// All segments that the kernel cuts a large packet into have its mark.
pub fn mark(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => mark_v4(packet),
        Some(6) => mark_v6(packet),
        _ => false,
    }
}

fn mark_v4(packet: &mut [u8]) -> bool {
    let Some(header) = packet.first_chunk_mut::<20>() else { return false };
    let before = u16::from_be_bytes([header[0], header[1]]);
    if header[1] & CE == 0 {
        return false;
    }
    header[1] |= CE;
    let after = u16::from_be_bytes([header[0], header[1]]);
    let sum = mend(u16::from_be_bytes([header[10], header[11]]), before, after);
    [header[10], header[11]] = sum.to_be_bytes();
    true
}

/// The traffic class begins with the second half of the first byte, and has no checksum.
fn mark_v6(packet: &mut [u8]) -> bool {
    let Some(second) = packet.get_mut(1) else { return false };
    let can_be_marked = *second & CE << 4 != 0;
    if can_be_marked {
        *second |= CE << 4;
    }
    can_be_marked
}

#[cfg(test)]
mod tests {
    use etherparse::{IpHeaders, Ipv4Header, PacketBuilder};
    use proptest::prelude::*;

    use super::*;

    fn packet(v6: bool, traffic_class: u8, payload: &[u8]) -> Vec<u8> {
        let builder = match v6 {
            false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let builder = builder.udp(1, 2);
        let mut packet = vec![0; builder.size(payload.len())];
        builder.write_to_slice(&mut packet, payload).unwrap();
        if v6 {
            packet[0] |= traffic_class >> 4;
            packet[1] |= traffic_class << 4;
        } else {
            let mut header = Ipv4Header::from_slice(&packet).unwrap().0;
            header.dscp = (traffic_class >> 2).try_into().unwrap();
            header.ecn = (traffic_class & 3).try_into().unwrap();
            header.header_checksum = header.calc_header_checksum();
            packet[..20].copy_from_slice(&header.to_bytes());
        }
        packet
    }

    proptest! {
        #[test]
        fn what_can_be_marked_is_and_nothing_else_changes(v6: bool, class: u8, payload in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut marked = packet(v6, class, &payload);
            prop_assert_eq!(mark(&mut marked), class & CE != 0);
            let expected = if class & CE == 0 { class } else { class | CE };
            prop_assert_eq!(&marked, &packet(v6, expected, &payload));
            if let (IpHeaders::Ipv4(header, _), _) = IpHeaders::from_slice(&marked).unwrap() {
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
            // A mark stays.
            let before = marked.clone();
            prop_assert_eq!(mark(&mut marked), class & CE != 0);
            prop_assert_eq!(marked, before);
        }

        #[test]
        fn whatever_a_packet_holds_it_is_marked_without_a_fault(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            mark(&mut bytes);
        }
    }
}
