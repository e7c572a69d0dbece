//! Captures: the simulated packets as pcap files, for Wireshark and tcpdump.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};

use ekiden_packet::pcap::PcapWriter;
use ekiden_packet::{Datagram, Packet as Headers};
use ekiden_scenario::{Scenario, address};
use ekiden_units::Time;

use crate::packet::{Body, IP_HEADER, Packet};

/// The port that background goes to: discard (RFC 863).
const DISCARD: u16 = 9;
/// The port that the first source of background sends from; the others follow.
const BACKGROUND: u16 = 50_000;
/// The port that pings go to: echo (RFC 862).
const ECHO: u16 = 7;
const UDP_HEADER: u32 = 8;

/// What receives a file.
type File = Box<dyn Write + Send>;

/// Packets seen at ends of links, as tcpdump sees them on a node's interface: what leaves, before the link's queue, and
/// what arrives. One pcap file for each end.
///
/// Times are virtual, from the start of the run. Addresses are those that the lab gives. Only headers are kept; checksums
/// are those of a payload of zeros.
#[derive(Default)]
pub struct Capture {
    /// By link, then by its end.
    files: Vec<Option<PcapWriter<File>>>,
    /// The addresses between which a segment goes, by the socket that it goes to.
    segments: Vec<[Ipv4Addr; 2]>,
    /// The addresses between which a datagram goes, by its source.
    datagrams: Vec<[Ipv4Addr; 2]>,
    /// The addresses of who sends a ping and who answers, by its number.
    pings: Vec<[Ipv4Addr; 2]>,
    failure: Option<io::Error>,
}

impl Capture {
    /// A capture at the ends of links for which `open` gives a file, asked for each with the names of node and link.
    ///
    /// Each packet is one write: give it [`BufWriter`](io::BufWriter)s.
    ///
    /// # Errors
    /// Those of `open`, and of writing to a file.
    pub fn new(scenario: &Scenario, mut open: impl FnMut(&str, &str) -> io::Result<Option<File>>) -> io::Result<Self> {
        let mut capture = Self::default();
        for (link, described) in &scenario.links {
            for node in &described.ends {
                let file = open(node, link)?;
                capture.files.push(file.map(PcapWriter::new).transpose()?);
            }
        }
        let of = |node: &str| scenario.nodes.get_index_of(node).unwrap_or_default();
        let ends = scenario.background.values().map(|source| [of(&source.from), of(&source.to)].map(address_of));
        capture.datagrams = ends.collect();
        capture.pings = scenario.pings.values().map(|ping| [of(&ping.from), of(&ping.to)].map(address_of)).collect();
        Ok(capture)
    }

    /// Writes what is left. Until then files may lack their end.
    ///
    /// # Errors
    /// The first of writing, now or before. After an error, nothing more was written.
    pub fn finish(self) -> io::Result<()> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.files.into_iter().flatten().try_for_each(PcapWriter::finish),
        }
    }

    /// Between which nodes segments go, by the socket that they go to, of sockets that are added.
    pub(crate) fn know(&mut self, ends: impl Iterator<Item = [u32; 2]>) {
        self.segments.extend(ends.map(|nodes| nodes.map(|node| address_of(node as usize))));
    }

    /// A packet enters a line, before its queue. Lines have the numbers of the ends of links where packets enter them.
    #[inline]
    pub(crate) fn see_sent(&mut self, now: Time, line: u32, packet: &Packet) {
        self.see(now, line as usize, packet);
    }

    /// A packet comes out of a line, at the link's other end.
    #[inline]
    pub(crate) fn see_arrived(&mut self, now: Time, line: u32, packet: &Packet) {
        self.see(now, line as usize ^ 1, packet);
    }

    /// A packet passes the end `place` of a link: twice the link's number and the end's.
    fn see(&mut self, now: Time, place: usize, packet: &Packet) {
        let Some(file) = self.files.get_mut(place).and_then(Option::as_mut).filter(|_| self.failure.is_none()) else {
            return;
        };
        let written = match packet.body {
            Body::Segment(segment) => {
                let [source, destination] = self.segments[packet.socket as usize].map(Into::into);
                file.write(now, &Headers { source, destination, segment })
            }
            // As UDP to the port of the echo service (RFC 862).
            Body::Echo { ping, is_reply, .. } => {
                let [from, to] = self.pings[ping as usize];
                let ends =
                    [SocketAddr::from((from, BACKGROUND.wrapping_sub(1 + ping as u16))), SocketAddr::from((to, ECHO))];
                let [source, destination] = if is_reply { [ends[1], ends[0]] } else { ends };
                file.write_datagram(
                    now,
                    &Datagram { source, destination, payload: packet.bytes - IP_HEADER - UDP_HEADER },
                )
            }
            Body::Datagram { source } => {
                let [from, to] = self.datagrams[source as usize];
                file.write_datagram(
                    now,
                    &Datagram {
                        source: SocketAddr::from((from, BACKGROUND.wrapping_add(source as u16))),
                        destination: SocketAddr::from((to, DISCARD)),
                        payload: packet.bytes - IP_HEADER - UDP_HEADER,
                    },
                )
            }
        };
        self.failure = written.err();
    }
}

/// Scenarios have no more nodes than there are addresses.
fn address_of(node: usize) -> Ipv4Addr {
    address(node).unwrap_or(Ipv4Addr::UNSPECIFIED)
}
