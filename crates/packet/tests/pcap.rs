//! pcap files, read back by hand.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use crate::support::*;
use ekiden_packet::pcap::{PcapWriter, header_bytes};
use ekiden_packet::*;
use ekiden_units::Time;
use etherparse::{IpSlice, UdpSlice};
use proptest::collection::vec;
use proptest::prelude::*;

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

proptest! {
    #[test]
    fn every_packet_of_a_file_is_found(packets in vec((0..u64::from(u32::MAX) * 1_000_000_000, packet()), 0..5)) {
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(&mut file).unwrap();
        for (time, (packet, _)) in &packets {
            writer.write(Time(*time), packet).unwrap();
        }
        writer.finish().unwrap();
        let head = [0xa1b23c4d, 2 | 4 << 16, 0, 0, 65535, 101];
        prop_assert_eq!([0, 4, 8, 12, 16, 20].map(|at| number(&file, at)), head);
        let mut at = 24;
        for (time, (packet, payload)) in packets {
            let [seconds, nanoseconds, captured, original] = [0, 4, 8, 12].map(|field| number(&file, at + field));
            prop_assert_eq!(u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds), time);
            prop_assert!(nanoseconds < 1_000_000_000);
            prop_assert_eq!((original - captured) as usize, payload.len());
            let mut bytes = file[at + 16..at + 16 + captured as usize].to_vec();
            bytes.resize(original as usize, 0);
            prop_assert!(checksums_hold(&bytes));
            let arrived = Packet { segment: arrives(packet.segment), ..packet };
            prop_assert_eq!(Packet::parse(&bytes).unwrap().0, arrived);
            at += 16 + captured as usize;
        }
        prop_assert_eq!(at, file.len());
    }
}

proptest! {
    #[test]
    fn a_datagram_has_its_addresses_lengths_and_checksum(addresses in addresses_of_one_version(), ports: [u16; 2], payload in 0u32..65_000) {
        let [source, destination] = [(addresses.0, ports[0]), (addresses.1, ports[1])].map(SocketAddr::from);
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(&mut file).unwrap();
        writer.write_datagram(Time(1), &Datagram { source, destination, payload }).unwrap();
        let packet = &file[24 + 16..];
        prop_assert_eq!(number(&file, 24 + 12) - number(&file, 24 + 8), payload);
        let mut whole = packet.to_vec();
        whole.resize(packet.len() + payload as usize, 0);
        let (head, udp) = match IpSlice::from_slice(&whole).unwrap() {
            IpSlice::Ipv4(ip) => (ip.payload().ip_number, UdpSlice::from_slice(ip.payload().payload).unwrap()),
            IpSlice::Ipv6(ip) => (ip.payload().ip_number, UdpSlice::from_slice(ip.payload().payload).unwrap()),
        };
        prop_assert_eq!(head.0, 17);
        prop_assert_eq!([udp.source_port(), udp.destination_port()], ports);
        prop_assert_eq!(udp.payload().len(), payload as usize);
        let header = udp.to_header();
        let expected = match (source.ip(), destination.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => header.calc_checksum_ipv4_raw(a.octets(), b.octets(), udp.payload()),
            (IpAddr::V6(a), IpAddr::V6(b)) => header.calc_checksum_ipv6_raw(a.octets(), b.octets(), udp.payload()),
            _ => unreachable!(),
        };
        prop_assert_eq!(header.checksum, expected.unwrap());
        prop_assert_ne!(header.checksum, 0);
    }
}

#[test]
fn what_does_not_fit_a_file_is_refused_and_leaves_no_trace() {
    let [four, six] = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap());
    let packet = Packet { source: four, destination: four, segment: Segment::default() };
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(&mut file).unwrap();
    let late = writer.write(Time::secs(1 << 32), &packet).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::InvalidInput);
    let mixed = writer.write(Time(0), &Packet { destination: six, ..packet }).unwrap_err();
    assert_eq!(mixed.kind(), ErrorKind::InvalidInput);
    writer.write(Time(0), &packet).unwrap();
    assert_eq!(file.len(), 24 + 16 + 40);
}

proptest! {
    #[test]
    fn of_a_real_packet_the_headers_are_kept((packet, payload) in packet()) {
        let mut bytes = Vec::new();
        packet.emit(&payload, &mut bytes).unwrap();
        let headers = header_bytes(&bytes);
        prop_assert_eq!(headers, bytes.len() - payload.len());
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(&mut file).unwrap();
        writer.write_bytes(Time(5), &bytes[..headers], bytes.len() as u32).unwrap();
        prop_assert_eq!([8, 12].map(|field| number(&file, 24 + field)), [headers as u32, bytes.len() as u32]);
        prop_assert_eq!(&file[24 + 16..], &bytes[..headers]);
    }

    #[test]
    fn of_any_bytes_no_more_are_kept_than_there_are(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(header_bytes(&bytes) <= bytes.len().min(120));
    }
}
