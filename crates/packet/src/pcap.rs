//! pcap files of packets, for Wireshark and tcpdump.
//!
//! The format is draft-ietf-opsawg-pcap: here in little-endian order, with nanoseconds, of raw IP packets.
//!
//! `header_bytes` decides how much of a packet is kept.

use std::io::{self, Write};

use ekiden_units::Time;

use crate::{Datagram, EmitError, Packet};

/// Times are in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Major and minor.
const VERSION: [u16; 2] = [2, 4];
/// The most bytes kept of a packet; the headers are 100 at most.
const SNAPLEN: u32 = 65535;
/// LINKTYPE_RAW: each packet starts with its IP header.
const LINK_TYPE: u32 = 101;

/// Writes the headers of packets into a pcap file. Each packet is cut after its TCP or UDP header, because payloads are not
/// stored.
///
/// Each packet is one write: give it a [`BufWriter`](io::BufWriter), and call [`PcapWriter::finish`].
#[derive(Debug)]
pub struct PcapWriter<W> {
    file: W,
    record: Vec<u8>,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a file.
    pub fn new(mut file: W) -> io::Result<Self> {
        let mut head = Vec::new();
        head.extend(MAGIC.to_le_bytes());
        head.extend(VERSION.map(u16::to_le_bytes).concat());
        // Two reserved fields.
        head.extend([0; 8]);
        head.extend(SNAPLEN.to_le_bytes());
        head.extend(LINK_TYPE.to_le_bytes());
        file.write_all(&head)?;
        Ok(Self { file, record: Vec::new() })
    }

    /// Adds a packet that was seen at `time`, which readers show as time since 1970: below 2^32 s.
    ///
    /// Refuses a later time, or a packet that cannot be emitted (see [`Packet::emit`]), with
    /// [`io::ErrorKind::InvalidInput`], and writes nothing then.
    pub fn write(&mut self, time: Time, packet: &Packet) -> io::Result<()> {
        self.add(time, packet.segment.payload, |into| packet.emit_headers(into))
    }

    /// Adds a datagram, as [`PcapWriter::write`] adds a TCP packet.
    pub fn write_datagram(&mut self, time: Time, datagram: &Datagram) -> io::Result<()> {
        self.add(time, datagram.payload, |into| datagram.emit_headers(into))
    }

    /// Adds the first bytes of an IP packet of `length` bytes that was really sent: see [`header_bytes`]. Refuses times as
    /// [`PcapWriter::write`] does.
    pub fn write_bytes(&mut self, time: Time, captured: &[u8], length: u32) -> io::Result<()> {
        let rest = length.saturating_sub(captured.len() as u32);
        self.add(time, rest, |into| {
            into.extend_from_slice(captured);
            Ok(())
        })
    }

    fn add(
        &mut self,
        time: Time,
        payload: u32,
        emit: impl FnOnce(&mut Vec<u8>) -> Result<(), EmitError>,
    ) -> io::Result<()> {
        let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
        let seconds = u32::try_from(time.0 / NANOS);
        let seconds = seconds.map_err(|_| invalid("the time is 2^32 s or more".to_owned()))?;
        self.record.clear();
        self.record.extend([0; RECORD_HEAD]);
        emit(&mut self.record).map_err(|error| invalid(error.to_string()))?;
        let captured = (self.record.len() - RECORD_HEAD) as u32;
        // An IP packet: below 2^17.
        let original = captured + payload;
        let head = [seconds, (time.0 % NANOS) as u32, captured, original];
        self.record[..RECORD_HEAD].copy_from_slice(&head.map(u32::to_le_bytes).concat());
        self.file.write_all(&self.record)
    }

    /// Flushes what is buffered.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// How many bytes of an IP packet are its IP and TCP headers, or its IP and UDP headers. Of other packets, fragments among them,
/// 8 bytes behind the IP header count as one. Never more than there are; 120 at most.
pub fn header_bytes(packet: &[u8]) -> usize {
    let at = |place: usize| packet.get(place).copied().map_or(0, usize::from);
    let (ip, protocol) = match at(0) >> 4 {
        4 => ((at(0) & 0xf) * 4, at(9)),
        6 => (40, at(6)),
        _ => (0, 0),
    };
    let is_later_fragment = at(0) >> 4 == 4 && (at(6) & 0x1f, at(7)) != (0, 0);
    let inner = if protocol == usize::from(TCP) && !is_later_fragment { (at(ip + 12) >> 4) * 4 } else { 8 };
    (ip + inner).min(packet.len())
}

/// The number of TCP in an IP header.
const TCP: u8 = 6;

/// The header of each packet: seconds, nanoseconds, bytes captured, original length.
const RECORD_HEAD: usize = 16;

const NANOS: u64 = 1_000_000_000;
