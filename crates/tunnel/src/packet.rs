//! What a tunnel looks at in an IP packet: its addresses, the flow that it belongs to, and the MSS option of a SYN.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::protocol::Protocol;

/// Numbers of protocols.
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// The smallest MSS that is written: what every IPv4 host takes (RFC 9293, section 3.7.1).
const LEAST_MSS: u16 = 536;

/// The header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Who sent it.
    pub source: IpAddr,
    /// Who it goes to.
    pub destination: IpAddr,
    /// The transport's number; of IPv6, the first extension's if there is one.
    pub protocol: u8,
    /// Where the transport's header begins, if this is the first part of its packet.
    pub transport: Option<usize>,
    /// It is a part of an IPv4 packet.
    pub is_part: bool,
}

impl Header {
    /// Reads it. `None`: these bytes are not one whole IPv4 or IPv6 packet.
    pub fn read(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::read_v4(packet),
            6 => Self::read_v6(packet),
            _ => None,
        }
    }

    fn read_v4(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<20>()?;
        let bytes = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if bytes < 20 || total < bytes || total != packet.len() {
            return None;
        }
        let [s0, s1, s2, s3, d0, d1, d2, d3] = *packet.get(12..20)?.first_chunk()?;
        let part = u16::from_be_bytes([header[6], header[7]]);
        Some(Self {
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
            protocol: header[9],
            transport: (part & 0x1fff == 0).then_some(bytes),
            is_part: part & 0x3fff != 0,
        })
    }

    fn read_v6(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<40>()?;
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if 40 + payload != packet.len() {
            return None;
        }
        let address = |at: usize| packet.get(at..at + 16)?.first_chunk::<16>().copied().map(Ipv6Addr::from);
        Some(Self {
            source: address(8)?.into(),
            destination: address(24)?.into(),
            protocol: header[6],
            transport: Some(40),
            is_part: false,
        })
    }

    /// What is in it, and its ports if it has any. Later parts of a packet, and what is behind an extension of IPv6, are not
    /// looked into.
    pub fn transport(&self, packet: &[u8]) -> (Protocol, Option<[u16; 2]>) {
        let protocol = match (self.protocol, self.transport) {
            (TCP, Some(_)) => Protocol::Tcp,
            (UDP, Some(_)) => Protocol::Udp,
            _ => return (Protocol::Other, None),
        };
        let ports = self.transport.and_then(|at| packet.get(at..)?.first_chunk::<4>().copied());
        (protocol, ports.map(|[a, b, c, d]| [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]))
    }

    /// A number for the flow: its packets have the same, and other flows another one, but for chance. Parts of one packet and
    /// protocols without ports go by addresses and protocol.
    pub fn flow(&self, packet: &[u8]) -> u64 {
        let ports = match (self.protocol, self.transport) {
            // The later parts do not have them, and all should go the same way.
            (TCP | UDP, Some(at)) if !self.is_part => packet.get(at..at + 4),
            _ => None,
        };
        let mut hasher = DefaultHasher::new();
        (self.source, self.destination, self.protocol, ports).hash(&mut hasher);
        hasher.finish()
    }
}

/// The port of a host that takes a TCP connection, if the packet says that it does: SYN and ACK.
pub fn accepting_port(packet: &[u8], header: &Header) -> Option<u16> {
    let Header { protocol: TCP, transport: Some(at), .. } = *header else { return None };
    let tcp = packet.get(at..)?.first_chunk::<14>()?;
    (tcp[13] & 0b1_0010 == 0b1_0010).then(|| u16::from_be_bytes([tcp[0], tcp[1]]))
}

/// Lowers the MSS option of a SYN to what fits into packets of `mtu` bytes, and mends the checksum (RFC 1624) if the packet has
/// one: `is_partial` says that its field holds the sum of the pseudo-header only. Other packets stay as they are.
pub fn clamp_mss(packet: &mut [u8], header: &Header, mtu: u16, is_partial: bool) {
    let Header { protocol: TCP, transport: Some(at), source, .. } = *header else { return };
    let headers = if source.is_ipv4() { 40 } else { 60 };
    let most = mtu.saturating_sub(headers).max(LEAST_MSS);
    let Some(tcp) = packet.get_mut(at..).filter(|tcp| tcp.len() >= 20) else { return };
    let is_syn = tcp[13] & 0b10 != 0;
    let end = usize::from(tcp[12] >> 4) * 4;
    // A header that says more than there is cannot be mended, and its receiver drops it.
    let is_whole = end <= tcp.len();
    let mut option = 20;
    while is_syn && is_whole && option < end {
        let length = match tcp[option] {
            0 => return,
            1 => 1,
            // Kind and length alone are two bytes; a receiver reads no further where it says less.
            _ => match tcp.get(option + 1) {
                Some(&length) if length >= 2 => usize::from(length),
                _ => return,
            },
        };
        if option + length > end {
            return;
        }
        if tcp[option] == 2 && length == 4 {
            let old = u16::from_be_bytes([tcp[option + 2], tcp[option + 3]]);
            match old > most {
                true if is_partial => tcp[option + 2..option + 4].copy_from_slice(&most.to_be_bytes()),
                true => set_word(tcp, option + 2, most),
                false => {}
            }
            return;
        }
        option += length;
    }
}

/// Writes two bytes of a TCP header, whatever their place is, and mends its checksum.
fn set_word(tcp: &mut [u8], at: usize, value: u16) {
    let [high, low] = value.to_be_bytes();
    for (place, byte) in [(at, high), (at + 1, low)] {
        let aligned = place & !1;
        let word = |tcp: &[u8]| u16::from_be_bytes([tcp[aligned], tcp[aligned + 1]]);
        let before = word(tcp);
        tcp[place] = byte;
        let after = word(tcp);
        let sum = mend(u16::from_be_bytes([tcp[16], tcp[17]]), before, after);
        [tcp[16], tcp[17]] = sum.to_be_bytes();
    }
}

/// A checksum after one of the words that it covers has changed (RFC 1624, equation 3: HC' = ~(~HC + ~m + m')).
pub(crate) fn mend(sum: u16, before: u16, after: u16) -> u16 {
    let mut new = u32::from(!sum) + u32::from(!before) + u32::from(after);
    new = (new & 0xffff) + (new >> 16);
    new = (new & 0xffff) + (new >> 16);
    !(new as u16)
}

#[cfg(test)]
mod tests {
    use etherparse::{IpHeaders, PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    use super::*;

    fn syn(v6: bool, options: &[TcpOptionElement]) -> Vec<u8> {
        let builder = match v6 {
            false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let builder = builder.tcp(1000, 80, 7, 1000).syn().options(options).unwrap();
        let mut packet = vec![0; builder.size(0)];
        builder.write_to_slice(&mut packet, &[]).unwrap();
        packet
    }

    /// The MSS, if the packet is a SYN with right checksums.
    fn mss(packet: &[u8]) -> Option<u16> {
        let parsed = etherparse::SlicedPacket::from_ip(packet).unwrap();
        let Some(etherparse::TransportSlice::Tcp(tcp)) = &parsed.transport else { panic!() };
        let header = tcp.to_header();
        let (ip, _) = IpHeaders::from_slice(packet).unwrap();
        let right = match ip {
            IpHeaders::Ipv4(ip, _) => header.calc_checksum_ipv4(&ip, tcp.payload()).unwrap(),
            IpHeaders::Ipv6(ip, _) => header.calc_checksum_ipv6(&ip, tcp.payload()).unwrap(),
        };
        assert_eq!(header.checksum, right, "the checksum");
        header.options_iterator().find_map(|option| match option {
            Ok(TcpOptionElement::MaximumSegmentSize(mss)) => Some(mss),
            _ => None,
        })
    }

    fn clamp(packet: &mut [u8], mtu: u16) {
        if let Some(header) = Header::read(packet) {
            clamp_mss(packet, &header, mtu, false);
        }
    }

    #[test]
    fn the_mss_of_a_syn_is_what_fits_and_its_checksum_stays_right() {
        use TcpOptionElement::{MaximumSegmentSize, Noop, SelectiveAcknowledgementPermitted, WindowScale};
        for v6 in [false, true] {
            // At every alignment of the option.
            for before in [&[][..], &[Noop], &[WindowScale(7)], &[SelectiveAcknowledgementPermitted]] {
                let mut packet = syn(v6, &[before, &[MaximumSegmentSize(1460)]].concat());
                clamp(&mut packet, 1400);
                assert_eq!(mss(&packet), Some(if v6 { 1340 } else { 1360 }));
                // With a partial checksum nothing but the option changes.
                let at = Header::read(&packet).unwrap().transport.unwrap();
                let mut partial = packet.clone();
                partial[at + 16..at + 18].copy_from_slice(&[0x12, 0x34]);
                let (header, mut expected) = (Header::read(&partial).unwrap(), partial.clone());
                let option = partial.windows(2).rposition(|word| word == [2, 4]).unwrap();
                expected[option + 2..option + 4].copy_from_slice(&(1300 - at as u16 - 20).to_be_bytes());
                clamp_mss(&mut partial, &header, 1300, true);
                assert_eq!(partial, expected);
            }
            let mut small = syn(v6, &[MaximumSegmentSize(600)]);
            let same = small.clone();
            clamp(&mut small, 1400);
            assert_eq!(small, same);
        }
    }

    #[test]
    fn a_host_that_takes_a_connection_is_known_by_its_packet() {
        let packet = |is_ack: bool, is_syn: bool| {
            let mut builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(7100, 40_000, 7, 1000);
            builder = if is_ack { builder.ack(8) } else { builder };
            builder = if is_syn { builder.syn() } else { builder };
            let mut packet = vec![0; builder.size(0)];
            builder.write_to_slice(&mut packet, &[]).unwrap();
            packet
        };
        let port = |packet: &[u8]| accepting_port(packet, &Header::read(packet).unwrap());
        assert_eq!(port(&packet(true, true)), Some(7100));
        assert_eq!([port(&packet(true, false)), port(&packet(false, true))], [None, None]);
    }

    #[test]
    fn a_flow_is_its_addresses_protocol_and_ports() {
        let packet = |source: u16, destination: u16| {
            let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(source, destination);
            let mut packet = vec![0; builder.size(3)];
            builder.write_to_slice(&mut packet, &[1, 2, 3]).unwrap();
            packet
        };
        let flow = |packet: &[u8]| Header::read(packet).unwrap().flow(packet);
        assert_eq!(flow(&packet(1, 2)), flow(&packet(1, 2)));
        assert_ne!(flow(&packet(1, 2)), flow(&packet(1, 3)));
        assert_ne!(flow(&packet(1, 2)), flow(&packet(2, 1)));
        // Parts of a packet go together, whether they have the ports or not.
        let (mut first, mut last) = (packet(1, 2), packet(1, 2));
        first[6] = 0x20;
        last[7] = 1;
        assert_eq!(flow(&first), flow(&last));
    }

    #[test]
    fn a_syn_whose_header_is_longer_than_its_packet_stays_as_it_is() {
        for length in 20..30 {
            // The option is the last thing that is there.
            let mut packet = syn(false, &[]);
            packet.extend(vec![1; length - 20]);
            packet.extend([2, 4, 0xff, 0xff]);
            let total = packet.len() as u16;
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[32] = 15 << 4;
            let before = packet.clone();
            clamp(&mut packet, 1400);
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn a_syn_with_an_option_shorter_than_its_head_stays_as_it_is() {
        for length in [0, 1] {
            // What stands behind such an option is no MSS, whatever it looks like.
            let mut packet =
                syn(false, &[TcpOptionElement::MaximumSegmentSize(1460), TcpOptionElement::WindowScale(7)]);
            packet[40..46].copy_from_slice(&[9, length, 2, 4, 0xff, 0xff]);
            let before = packet.clone();
            clamp(&mut packet, 1400);
            assert_eq!(packet, before, "{length}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_packet_holds_it_is_read_without_a_fault(mut bytes in prop::collection::vec(any::<u8>(), 0..200), v6: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
            }
            let length = bytes.len() as u16;
            match v6 {
                false if bytes.len() > 20 => {
                    bytes[2..4].copy_from_slice(&length.to_be_bytes());
                    bytes[9] = TCP;
                }
                true if bytes.len() > 40 => {
                    bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                    bytes[6] = TCP;
                }
                _ => {}
            }
            clamp(&mut bytes, 1400);
            if let Some(header) = Header::read(&bytes) {
                header.flow(&bytes);
            }
        }
    }
}
