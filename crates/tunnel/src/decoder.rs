//! Finds the frames in what arrives.

use crate::buffer::ROOM;
use crate::frame::{FrameError, HEAD_BYTES, PLAIN, SKIPPABLE, SUPER, SUPER_MOST};
use crate::vnet::{VNET_BYTES, VnetHeader};

/// The maximum that is received at a time: with more, the data leaves the processor's cache before it is written to the
/// device.
const BUFFER: usize = 4 * ROOM;

/// A frame that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A packet with all its checksums.
    Plain(&'a mut [u8]),
    /// One that lacks a checksum, or a super-packet. It stands behind room for the device's header, which is part of `bytes`.
    Offloaded {
        /// What the other end says about it.
        vnet: VnetHeader,
        /// [`VNET_BYTES`] of any content, and the packet.
        bytes: &'a mut [u8],
    },
}

impl Frame<'_> {
    /// The length of the packet.
    pub fn packet_bytes(&self) -> usize {
        match self {
            Self::Plain(packet) => packet.len(),
            Self::Offloaded { bytes, .. } => bytes.len() - VNET_BYTES,
        }
    }
}

/// The one buffer of a connection. It holds received data until that was taken, and nothing else.
#[derive(Debug)]
pub struct Decoder {
    mtu: u16,
    bytes: Vec<u8>,
    /// The received data that was not taken yet.
    start: usize,
    end: usize,
}

impl Decoder {
    /// For plain packets of at most `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        Self { mtu, bytes: vec![0; BUFFER], start: 0, end: 0 }
    }

    /// Where more is to be received; never empty once [`Decoder::next_frame`] has returned `None`.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        // Room for the rest of any frame. This copies, so it happens seldom.
        if self.bytes.len() - self.end < ROOM {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// Notes that this number of bytes has been received into [`Decoder::room`].
    pub fn filled(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
    }

    /// The next complete frame. Keep-alives are left out, and what may be skipped.
    ///
    /// # Errors
    /// The frame is invalid, or too long: then nothing that follows can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        loop {
            let Some(&[l0, l1, l2, kind]) = self.bytes[self.start..self.end].first_chunk::<HEAD_BYTES>() else {
                return Ok(None);
            };
            let bytes = u32::from_be_bytes([0, l0, l1, l2]);
            let most = match kind {
                PLAIN => self.mtu.into(),
                SUPER => SUPER_MOST,
                SKIPPABLE.. => SUPER_MOST,
                other => return Err(FrameError::Kind(other)),
            };
            if bytes > most {
                return Err(FrameError::TooLong { bytes, most });
            }
            if kind == SUPER && bytes <= VNET_BYTES as u32 {
                return Err(FrameError::TooShort { bytes });
            }
            let start = self.start + HEAD_BYTES;
            let end = start + bytes as usize;
            if end > self.end {
                return Ok(None);
            }
            self.start = end;
            match (kind, bytes) {
                (_, 0) | (SKIPPABLE.., _) => {}
                (PLAIN, _) => return Ok(Some(Frame::Plain(&mut self.bytes[start..end]))),
                _ => {
                    let bytes = &mut self.bytes[start..end];
                    let vnet = bytes.first_chunk().map_or(VnetHeader::default(), |vnet| VnetHeader::from_frame(*vnet));
                    return Ok(Some(Frame::Offloaded { vnet, bytes }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{KEEP_ALIVE, head};

    /// What has been sent, as the test compares it.
    fn seen(frame: &Frame<'_>) -> (u8, Vec<u8>) {
        match frame {
            Frame::Plain(packet) => (PLAIN, packet.to_vec()),
            Frame::Offloaded { vnet, bytes } => {
                assert_eq!(vnet.to_frame(), bytes[..VNET_BYTES]);
                (SUPER, bytes.to_vec())
            }
        }
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_stream_is_cut(
            plain in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..20),
            offloaded in prop::collection::vec((11usize..65_545, any::<u8>()), 0..8),
            cuts in prop::collection::vec(1usize..70_000, 1..50),
        ) {
            let offloaded = offloaded.iter().map(|(length, byte)| (SUPER, vec![*byte; *length]));
            let frames: Vec<_> = plain.into_iter().map(|packet| (PLAIN, packet)).chain(offloaded).collect();
            let mut stream = Vec::new();
            for (kind, bytes) in &frames {
                stream.extend(KEEP_ALIVE);
                stream.extend(head(SKIPPABLE + 1, 5));
                stream.extend(b"newer");
                stream.extend(head(*kind, bytes.len()));
                stream.extend(bytes);
            }
            let (mut decoder, mut out, mut rest) = (Decoder::new(300), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let room = decoder.room();
                let (now, later) = rest.split_at((*cut).min(rest.len()).min(room.len()));
                assert!(!now.is_empty());
                room[..now.len()].copy_from_slice(now);
                rest = later;
                decoder.filled(now.len());
                while let Some(frame) = decoder.next_frame().unwrap() {
                    out.push(seen(&frame));
                }
            }
            prop_assert_eq!(out, frames);
        }

        #[test]
        fn whatever_arrives_is_a_frame_within_its_limit_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut decoder = Decoder::new(200);
            decoder.room()[..bytes.len()].copy_from_slice(&bytes);
            decoder.filled(bytes.len());
            while let Ok(Some(frame)) = decoder.next_frame() {
                match frame {
                    Frame::Plain(packet) => prop_assert!((1..=200).contains(&packet.len())),
                    Frame::Offloaded { bytes, .. } => prop_assert!((11..=65_545).contains(&bytes.len())),
                }
            }
        }
    }

    #[test]
    fn what_is_no_frame_ends_the_connection() {
        let error = |head: [u8; HEAD_BYTES]| {
            let mut decoder = Decoder::new(1500);
            decoder.room()[..HEAD_BYTES].copy_from_slice(&head);
            decoder.filled(HEAD_BYTES);
            decoder.next_frame().map(|frame| frame.is_some())
        };
        assert_eq!(error([0, 5, 0xdd, PLAIN]), Err(FrameError::TooLong { bytes: 1501, most: 1500 }));
        assert_eq!(error([1, 0, 10, SUPER]), Err(FrameError::TooLong { bytes: 65_546, most: 65_545 }));
        assert_eq!(error([0, 0, 10, SUPER]), Err(FrameError::TooShort { bytes: 10 }));
        assert_eq!(error([0, 0, 0, 2]), Err(FrameError::Kind(2)));
        assert_eq!(error([1, 0, 10, 200]), Err(FrameError::TooLong { bytes: 65_546, most: 65_545 }));
        assert_eq!(error(KEEP_ALIVE), Ok(false));
    }
}
