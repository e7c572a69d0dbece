//! Frames as hosts send them, and whether what became of one is right.

use std::net::{IpAddr, SocketAddr};

use ekiden_window_balance::{Direction, flags};

/// An Ethernet frame with a TCP packet. Ports, numbers and options are set as one likes.
#[derive(Debug, Clone)]
pub struct Shape {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// The types of VLAN tags, the outer one first.
    pub tags: Vec<u16>,
    /// Options of IPv4, a multiple of 4 bytes.
    pub ip_options: Vec<u8>,
    /// Extension headers of IPv6: kind and bytes, of which the first is set to the next one's kind.
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// The field with the flags and the offset of a fragment of IPv4.
    pub fragment: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: usize,
}

/// Padded with no-operations to a multiple of 4.
pub fn padded(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 1);
    options
}

pub fn scale(shift: u8) -> Vec<u8> {
    vec![2, 4, 5, 0xb4, 1, 3, 3, shift]
}

pub fn timestamps() -> Vec<u8> {
    vec![1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 3, 4]
}

pub fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    if blocks.is_empty() {
        return Vec::new();
    }
    let mut options = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for (start, end) in blocks {
        options.extend(start.to_be_bytes());
        options.extend(end.to_be_bytes());
    }
    options
}

pub fn md5() -> Vec<u8> {
    padded(&[&[19, 18][..], &[7; 16]].concat())
}

pub fn ao() -> Vec<u8> {
    padded(&[&[29, 16, 1, 1][..], &[9; 12]].concat())
}

/// The two ends of a stream: the sender of data, and the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    pub sender: SocketAddr,
    pub receiver: SocketAddr,
}

impl Ends {
    pub fn ipv4(port: u16) -> Self {
        Self { sender: ([10, 1, 0, 1], port).into(), receiver: ([192, 0, 2, 9], 5001).into() }
    }

    pub fn ipv6(port: u16) -> Self {
        let address = |last| [0xfd00, 0, 0, last, 0, 0, 0, 1];
        Self { sender: (address(1), port).into(), receiver: (address(2), 5001).into() }
    }

    /// A packet without flags, options and payload.
    pub fn shape(&self, direction: Direction) -> Shape {
        let (source, destination) = match direction {
            Direction::Data => (self.sender, self.receiver),
            Direction::Acks => (self.receiver, self.sender),
        };
        Shape {
            source,
            destination,
            tags: Vec::new(),
            ip_options: Vec::new(),
            extensions: Vec::new(),
            fragment: 0x4000, // don't fragment
            seq: 1,
            ack: 1,
            flags: flags::ACK,
            window: 60_000,
            options: Vec::new(),
            payload: 0,
        }
    }
}

impl Shape {
    /// The bytes, with checksums that are right.
    pub fn frame(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.source.port().to_be_bytes());
        tcp.extend(self.destination.port().to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.push(((20 + self.options.len()) / 4 * 16) as u8);
        tcp.push(self.flags);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend((0..self.payload).map(|index| index as u8));
        let sum = checksum(pseudo_header(self.source.ip(), self.destination.ip(), tcp.len()).iter().chain(&tcp));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in &self.tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([8, 0]);
                let header = 20 + self.ip_options.len();
                let mut ip = vec![0x40 + (header / 4) as u8, 0];
                ip.extend(((header + tcp.len()) as u16).to_be_bytes());
                ip.extend([0, 1]);
                ip.extend(self.fragment.to_be_bytes());
                ip.extend([64, 6, 0, 0]);
                ip.extend(source.octets());
                ip.extend(destination.octets());
                ip.extend(&self.ip_options);
                let sum = checksum(ip.iter());
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend(ip);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                let extensions: usize = self.extensions.iter().map(|(_, bytes)| bytes.len()).sum();
                frame.extend(((extensions + tcp.len()) as u16).to_be_bytes());
                let kinds: Vec<u8> = self.extensions.iter().map(|(kind, _)| *kind).chain([6]).collect();
                frame.extend([kinds[0], 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                for ((_, bytes), next) in self.extensions.iter().zip(&kinds[1..]) {
                    frame.push(*next);
                    frame.extend(&bytes[1..]);
                }
            }
            _ => panic!("ends of two versions"),
        }
        frame.extend(tcp);
        frame
    }
}

fn pseudo_header(source: IpAddr, destination: IpAddr, length: usize) -> Vec<u8> {
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut header = [octets(source), octets(destination)].concat();
    header.extend((length as u32).to_be_bytes());
    header.extend([0, 0, 0, 6]);
    header
}

fn checksum<'a>(bytes: impl Iterator<Item = &'a u8>) -> u16 {
    let bytes: Vec<u8> = bytes.copied().collect();
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The frame with another window, and TCP's checksum computed anew over all of it.
pub fn with_window(frame: &[u8], shape: &Shape, at: (usize, usize), field: u16) -> Vec<u8> {
    let expected = Shape { window: field, ..shape.clone() }.frame();
    assert_eq!(expected.len(), frame.len());
    assert_eq!(&expected[at.0..at.0 + 2], field.to_be_bytes());
    expected
}

/// The frame with another window, and a checksum that fits if the old one did (RFC 1624, equation 3).
pub fn changed(frame: &[u8], at: (usize, usize), field: u16) -> Vec<u8> {
    let (window_at, checksum_at) = at;
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut sum = u32::from(!half(checksum_at)) + u32::from(!half(window_at)) + u32::from(field);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut changed = frame.to_vec();
    changed[window_at..window_at + 2].copy_from_slice(&field.to_be_bytes());
    changed[checksum_at..checksum_at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    changed
}

/// Numbers that look random, and are the same each time (xorshift).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
