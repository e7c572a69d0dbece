//! TCP options.

use etherparse::tcp_option::{
    KIND_END as END, KIND_MAXIMUM_SEGMENT_SIZE as MSS, KIND_NOOP as NOP, KIND_SELECTIVE_ACK as SACK,
    KIND_SELECTIVE_ACK_PERMITTED as SACK_PERMITTED, KIND_TIMESTAMP as TIMESTAMPS, KIND_WINDOW_SCALE as WINDOW_SCALE,
};

use crate::{ParseError, SackBlock, SackBlocks, Seq};

/// The largest shift of the window (RFC 7323, section 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

/// The most bytes of options in a header.
pub(crate) const MAX_BYTES: usize = 40;

/// The timestamps option (RFC 7323, section 3.2), in ticks of the senders' clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// The sender's clock (TSval).
    pub value: u32,
    /// The peer's value that is echoed (TSecr).
    pub echo: u32,
}

/// The options of a segment; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// The most bytes of payload that the option's sender accepts in one segment (RFC 9293, section 3.7.1). SYN only.
    pub mss: Option<u16>,
    /// The shift of the windows that the sender advertises (RFC 7323, section 2). SYN only.
    pub window_scale: Option<u8>,
    /// The sender understands SACK (RFC 2018, section 2). SYN only.
    pub sack_permitted: bool,
    /// RFC 7323, section 3.
    pub timestamps: Option<Timestamps>,
    /// Blocks of data received beyond the acknowledgment number (RFC 2018, section 3).
    pub sack: SackBlocks,
}

impl Options {
    /// These options as the segment can carry them. Without SYN it has no MSS (RFC 9293, MUST-65), window scale (RFC
    /// 7323, section 2.2) and SACK-permitted (RFC 2018, section 2). A shift over 14 counts as 14 (RFC 7323, section 2.3).
    pub(crate) fn valid(&self, syn: bool) -> Options {
        Options {
            mss: self.mss.filter(|_| syn),
            window_scale: self.window_scale.filter(|_| syn).map(|shift| shift.min(MAX_WINDOW_SCALE)),
            sack_permitted: self.sack_permitted && syn,
            ..*self
        }
    }

    /// These options without the last SACK blocks that do not fit into the header.
    pub(crate) fn fitting(&self) -> Options {
        let room = (MAX_BYTES - self.bytes_without_sack()).saturating_sub(SACK_HEAD) / SACK_BLOCK;
        if self.sack.len() <= room {
            return *self;
        }
        Options { sack: self.sack.iter().take(room).collect(), ..*self }
    }

    /// The length that [`Options::to_bytes`] returns, a multiple of four. At most [`MAX_BYTES`] for options returned by
    /// [`Options::fitting`].
    pub(crate) fn bytes(&self) -> usize {
        let sack = if self.sack.is_empty() { 0 } else { SACK_HEAD + SACK_BLOCK * self.sack.len() };
        self.bytes_without_sack() + sack
    }

    fn bytes_without_sack(&self) -> usize {
        let timestamps = self.timestamps.is_some();
        let permitted_alone = self.sack_permitted && !timestamps;
        4 * usize::from(self.mss.is_some())
            + 12 * usize::from(timestamps)
            + 4 * usize::from(permitted_alone)
            + 4 * usize::from(self.window_scale.is_some())
    }

    /// The options as Linux lays them out, each on a boundary of four bytes, and their length. They must come from
    /// [`Options::fitting`].
    pub(crate) fn to_bytes(self) -> ([u8; MAX_BYTES], usize) {
        let mut bytes = [END; MAX_BYTES];
        let mut at = 0;
        let mut put = |piece: &[u8]| {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        };
        if let Some(mss) = self.mss {
            put(&[MSS, 4]);
            put(&mss.to_be_bytes());
        }
        if self.timestamps.is_none() && self.sack_permitted {
            put(&[NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(if self.sack_permitted { &[SACK_PERMITTED, 2] } else { &[NOP, NOP] });
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if !self.sack.is_empty() {
            let length = 2 + SACK_BLOCK * self.sack.len();
            put(&[NOP, NOP, SACK, length as u8]);
            for block in self.sack.iter() {
                put(&block.start.0.to_be_bytes());
                put(&block.end.0.to_be_bytes());
            }
        }
        (bytes, at)
    }

    /// Reads the bytes between the fixed header and the payload.
    pub(crate) fn parse(mut rest: &[u8]) -> Result<Options, ParseError> {
        let mut options = Options::default();
        while let [kind, after @ ..] = rest {
            let kind = *kind;
            match kind {
                END => break,
                NOP => {
                    rest = after;
                    continue;
                }
                _ => {}
            }
            let length = after.first().copied().unwrap_or(0);
            let wrong = ParseError::OptionLength { kind, length };
            let value = rest.get(2..usize::from(length)).ok_or(wrong)?;
            match (kind, value) {
                (MSS, &[high, low]) => options.mss = Some(u16::from_be_bytes([high, low])),
                (WINDOW_SCALE, &[shift]) => options.window_scale = Some(shift),
                (SACK_PERMITTED, []) => options.sack_permitted = true,
                (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                    let [value, echo] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
                    options.timestamps = Some(Timestamps { value, echo });
                }
                (SACK, blocks) if matches!(blocks.len(), 8 | 16 | 24 | 32) => {
                    options.sack = blocks.chunks_exact(SACK_BLOCK).filter_map(sack_block).collect();
                }
                (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return Err(wrong),
                _ => {}
            }
            rest = &rest[usize::from(length)..];
        }
        Ok(options)
    }
}

/// Two NOPs, kind and length.
const SACK_HEAD: usize = 4;
/// Two sequence numbers.
const SACK_BLOCK: usize = 8;

fn sack_block(bytes: &[u8]) -> Option<SackBlock> {
    let (start, end) = bytes.split_first_chunk()?;
    Some(SackBlock { start: Seq(u32::from_be_bytes(*start)), end: Seq(u32::from_be_bytes(end.try_into().ok()?)) })
}
