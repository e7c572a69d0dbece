//! What is on a tunnel's TCP connection: a greeting of each side, then frames.
//!
//! A frame is two bytes of length, in network byte order, and a packet of this length. A length of 0 is a keep-alive.

/// The first bytes of a greeting.
const MAGIC: &[u8; 4] = b"EKTN";
/// The version of what follows.
const VERSION: u8 = 1;

/// The length of a greeting.
pub const HELLO_BYTES: usize = 8;
/// A frame's length, before its packet.
pub const LENGTH_BYTES: usize = 2;
/// A frame without a packet.
pub const KEEP_ALIVE: [u8; LENGTH_BYTES] = [0; LENGTH_BYTES];

/// What each side says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Which of the connections between the two nodes this is, from 0.
    pub connection: u8,
    /// The largest packet that the side takes.
    pub mtu: u16,
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The other side speaks something else.
    #[error("it does not speak the tunnel's protocol; is this the address of a tunnel?")]
    NotATunnel,
    /// Of another build.
    #[error(
        "it speaks version {0} of the tunnel's protocol, and this node version {VERSION}: both must be of the same build"
    )]
    Version(u8),
    /// The two ends would refuse each other's packets.
    #[error("its device has an MTU of {theirs}, and this node's {ours}: set the same `mtu` in [device] at both ends")]
    Mtu {
        /// Of the other end.
        theirs: u16,
        /// Of this one.
        ours: u16,
    },
    /// A connection that this node does not have.
    #[error(
        "it has a connection of number {number}, and this node {connections} to it: set the same `connections` at both ends"
    )]
    Number {
        /// Counted from 0.
        number: u8,
        /// How many there may be.
        connections: u8,
    },
    /// Larger than the MTU that both have.
    #[error("a frame of {bytes} bytes, and the MTU is {mtu}")]
    TooLong {
        /// What its length says.
        bytes: u16,
        /// The most there may be.
        mtu: u16,
    },
}

impl Hello {
    /// As bytes.
    pub fn encode(self) -> [u8; HELLO_BYTES] {
        let [m0, m1, m2, m3] = *MAGIC;
        let [high, low] = self.mtu.to_be_bytes();
        [m0, m1, m2, m3, VERSION, self.connection, high, low]
    }

    /// From bytes.
    pub fn decode(bytes: [u8; HELLO_BYTES]) -> Result<Self, FrameError> {
        let [m0, m1, m2, m3, version, connection, high, low] = bytes;
        match (&[m0, m1, m2, m3] == MAGIC, version) {
            (false, _) => Err(FrameError::NotATunnel),
            (true, VERSION) => Ok(Self { connection, mtu: u16::from_be_bytes([high, low]) }),
            (true, other) => Err(FrameError::Version(other)),
        }
    }
}

/// Appends a packet's frame. `packet` is not empty and not longer than 65,535 bytes, or nothing is appended.
pub fn encode(packet: &[u8], out: &mut Vec<u8>) {
    let Some(length) = u16::try_from(packet.len()).ok().filter(|length| *length > 0) else { return };
    out.extend(length.to_be_bytes());
    out.extend(packet);
}

/// Finds the packets in what arrives.
#[derive(Debug)]
pub struct Decoder {
    mtu: u16,
    bytes: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
}

impl Decoder {
    /// For packets of at most `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        Self { mtu, bytes: Vec::new(), at: 0 }
    }

    /// Bytes arrive. To be called when [`Decoder::next_packet`] has returned `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet that is there whole.
    ///
    /// # Errors
    /// If its frame is too long: then nothing that follows can be read.
    pub fn next_packet(&mut self) -> Result<Option<&mut [u8]>, FrameError> {
        loop {
            let Some(&[high, low]) = self.bytes.get(self.at..self.at + LENGTH_BYTES) else { return Ok(None) };
            let bytes = u16::from_be_bytes([high, low]);
            if bytes > self.mtu {
                return Err(FrameError::TooLong { bytes, mtu: self.mtu });
            }
            let (start, end) = (self.at + LENGTH_BYTES, self.at + LENGTH_BYTES + usize::from(bytes));
            if self.bytes.len() < end {
                return Ok(None);
            }
            self.at = end;
            if bytes > 0 {
                return Ok(self.bytes.get_mut(start..end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_come_out_as_they_went_in_however_the_stream_is_cut(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..20),
            cuts in prop::collection::vec(1usize..200, 1..50),
        ) {
            let mut stream = Vec::new();
            for packet in &packets {
                stream.extend(KEEP_ALIVE);
                encode(packet, &mut stream);
            }
            let (mut decoder, mut out, mut rest) = (Decoder::new(300), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                rest = later;
                decoder.push(now);
                while let Some(packet) = decoder.next_packet().unwrap() {
                    out.push(packet.to_vec());
                }
            }
            prop_assert_eq!(out, packets);
        }

        #[test]
        fn whatever_arrives_is_a_packet_within_the_mtu_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut decoder = Decoder::new(200);
            decoder.push(&bytes);
            while let Ok(Some(packet)) = decoder.next_packet() {
                prop_assert!((1..=200).contains(&packet.len()));
            }
        }

        #[test]
        fn a_greeting_is_read_as_it_was_written(connection: u8, mtu: u16) {
            let hello = Hello { connection, mtu };
            prop_assert_eq!(Hello::decode(hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn a_stranger_s_first_bytes_are_no_greeting() {
        assert_eq!(Hello::decode(*b"GET / HT"), Err(FrameError::NotATunnel));
        assert_eq!(Hello::decode(*b"EKTN\x02\0\x05\xdc"), Err(FrameError::Version(2)));
    }
}
