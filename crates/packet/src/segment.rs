//! TCP segments.

use std::net::IpAddr;

use etherparse::{TcpHeader, TcpSlice, ip_number};

use crate::{Options, ParseError, Seq, checksum};

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
    /// its payload. All of `bytes` is the segment: nothing may follow it.
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
            flags: Flags { syn: tcp.syn(), fin: tcp.fin(), rst: tcp.rst(), psh: tcp.psh() },
            window: tcp.window_size(),
            options: Options::parse(tcp.options())?.valid(tcp.syn()),
            payload: tcp.payload().len() as u32,
        };
        Ok((segment, tcp.payload()))
    }

    /// The header with the options of [`Segment::as_sent`] and a checksum of zero.
    pub(crate) fn header(&self) -> TcpHeader {
        let mut header = TcpHeader::new(self.source, self.destination, self.seq.0, self.window);
        header.ack = self.ack.is_some();
        header.acknowledgment_number = self.ack.unwrap_or_default().0;
        let Flags { syn, fin, rst, psh } = self.flags;
        (header.syn, header.fin, header.rst, header.psh) = (syn, fin, rst, psh);
        let (options, length) = self.as_sent().options.to_bytes();
        header.set_options_raw(&options[..length]).expect("options that fit");
        header
    }
}
