//! TCP segments.

use std::net::IpAddr;

use etherparse::{TcpHeader, TcpSlice, ip_number};

use crate::{Ecn, Options, ParseError, Seq, checksum};

/// The control bits (RFC 9293, section 3.1) except ACK, which is [`Segment::ack`]. None by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Synchronise sequence numbers: the segment opens a direction.
    pub syn: bool,
    /// The sender has no more data.
    pub fin: bool,
    /// Reset the connection.
    pub rst: bool,
    /// Push: the receiver should pass the data to the application at once.
    pub psh: bool,
    /// ECN echo: a marked packet has arrived; in a SYN, that the end understands ECN (RFC 3168, section 6.1).
    pub ece: bool,
    /// Congestion window reduced: the sender has answered the echo; in a SYN as ECE.
    pub cwr: bool,
}

/// A TCP segment without the bytes of its payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// The sequence number of the first byte of payload, or of the SYN if there is one.
    pub seq: Seq,
    /// The next sequence number that the sender expects; `None` without the ACK bit.
    pub ack: Option<Seq>,
    /// The other control bits.
    pub flags: Flags,
    /// As on the wire: bytes, shifted right by the sender's window scale except in a SYN.
    pub window: u16,
    /// The options.
    pub options: Options,
    /// Length of the payload in bytes; the payload itself is elsewhere.
    pub payload: u32,
    /// The ECN field of the IP header before it.
    pub ecn: Ecn,
}

impl Segment {
    /// Bytes of the TCP header: 20, and the options as [`Segment::as_sent`] leaves them. A multiple of four, at most 60.
    pub fn header_bytes(&self) -> u32 {
        (TcpHeader::MIN_LEN + self.options.valid(self.flags.syn).fitting().bytes()) as u32
    }

    /// SEG.LEN: the sequence numbers that payload, SYN and FIN take.
    pub fn sequence_len(&self) -> u32 {
        self.payload.wrapping_add(u32::from(self.flags.syn) + u32::from(self.flags.fin))
    }

    /// This segment as its receiver parses it.
    ///
    /// Without SYN, it has no MSS, window scale and SACK-permitted. A window scale is at most
    /// [`MAX_WINDOW_SCALE`](crate::MAX_WINDOW_SCALE). The last SACK blocks are dropped where the options would take more
    /// than 40 bytes: three fit beside timestamps, four without.
    pub fn as_sent(&self) -> Segment {
        Segment { options: self.options.valid(self.flags.syn).fitting(), ..*self }
    }

    /// Reads a segment, header and payload, that came in an IP packet between these two addresses, and returns it with
    /// its payload. All of `bytes` is the segment: nothing may follow it. Its ECN field, which the packet has, is not known.
    pub fn parse(bytes: &[u8], source: IpAddr, destination: IpAddr) -> Result<(Segment, &[u8]), ParseError> {
        if bytes.len() < TcpHeader::MIN_LEN {
            return Err(ParseError::Truncated);
        }
        let length = u16::try_from(bytes.len()).map_err(|_| ParseError::TooLong)?;
        if !checksum::is_valid(checksum::pseudo_header(source, destination, ip_number::TCP, length).add_slice(bytes)) {
            return Err(ParseError::TcpChecksum);
        }
        let tcp = TcpSlice::from_slice(bytes).map_err(|_| ParseError::DataOffset(bytes[12] >> 4))?;
        let segment = Segment {
            source: tcp.source_port(),
            destination: tcp.destination_port(),
            seq: Seq(tcp.sequence_number()),
            ack: tcp.ack().then(|| Seq(tcp.acknowledgment_number())),
            flags: Flags {
                syn: tcp.syn(),
                fin: tcp.fin(),
                rst: tcp.rst(),
                psh: tcp.psh(),
                ece: tcp.ece(),
                cwr: tcp.cwr(),
            },
            window: tcp.window_size(),
            options: Options::parse(tcp.options())?.valid(tcp.syn()),
            payload: tcp.payload().len() as u32,
            ecn: Ecn::NotEct,
        };
        Ok((segment, tcp.payload()))
    }

    /// The header with the options of [`Segment::as_sent`] and a checksum of zero.
    pub(crate) fn header(&self) -> TcpHeader {
        let mut header = TcpHeader::new(self.source, self.destination, self.seq.0, self.window);
        header.ack = self.ack.is_some();
        header.acknowledgment_number = self.ack.unwrap_or_default().0;
        let Flags { syn, fin, rst, psh, ece, cwr } = self.flags;
        (header.syn, header.fin, header.rst, header.psh) = (syn, fin, rst, psh);
        (header.ece, header.cwr) = (ece, cwr);
        let (options, length) = self.as_sent().options.to_bytes();
        header.set_options_raw(&options[..length]).expect("options that fit");
        header
    }
}
