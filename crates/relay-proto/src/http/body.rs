//! Where a body ends (RFC 9112 §6.3), and the chunked coding (§7.1), which is written anew on its way.

use super::HttpError;
use super::fields::write_trailer;

/// The most bytes of a chunk's size line, and of the whole trailer.
const MAX_LINES: u32 = 8192;

/// Reads a chunked body and writes it anew: of its framing, nothing reaches the next recipient as it came. Sizes are written
/// without blanks and leading zeros, extensions are dropped, and of the trailer only well-formed fields that may stand there
/// go on. Memory is constant but for the trailer, of at most 8 KiB.
#[derive(Debug, Clone)]
pub struct Chunked {
    state: State,
    /// Only the data goes on.
    unchunk: bool,
    /// Of the chunk: what is left of it.
    left: u64,
    /// Digits of its size.
    digits: u8,
    /// Bytes of lines since the last data.
    lines: u32,
    /// The trailer as it came.
    trailer: Vec<u8>,
    /// Fields of the trailer that are for this hop only.
    listed: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    SizeBlank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    LineStart,
    Line,
    LineLf,
    LastLf,
    Done,
}

impl Chunked {
    /// A body about to begin. With `unchunk`, only its data goes on.
    pub fn new(unchunk: bool) -> Self {
        Self { state: State::Size, unchunk, left: 0, digits: 0, lines: 0, trailer: Vec::new(), listed: Vec::new() }
    }

    /// The same; of the trailer, what the head's Connection has `listed` does not go on (RFC 9110 §7.6.1).
    #[must_use]
    pub fn without(mut self, listed: &[String]) -> Self {
        self.listed = listed.to_vec();
        self
    }

    /// Whether the last chunk and the trailer have been seen.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The bytes of data that come next, all of one chunk.
    pub fn data_due(&self) -> u64 {
        if self.state == State::Data { self.left } else { 0 }
    }

    /// Bytes of memory that the trailer takes until it is complete.
    pub fn held(&self) -> usize {
        self.trailer.capacity()
    }

    /// `n` bytes of data went by without [`Chunked::advance`]; `n` ≤ [`Chunked::data_due`].
    pub fn skipped(&mut self, n: u64) {
        debug_assert!(n <= self.data_due());
        self.left = self.left.saturating_sub(n);
        if self.left == 0 {
            self.state = State::DataCr;
        }
    }

    /// Reads `bytes` and appends to `out` what goes on. Returns how many were read: all of them, unless the body is done
    /// before; what is left is not its.
    ///
    /// # Errors
    /// If the coding or the trailer is malformed. Then nothing in `out` may count as the end of the body.
    pub fn advance(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, HttpError> {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used).filter(|_| !self.is_done()) {
            if self.state == State::Data {
                let n = self.left.min((bytes.len() - used) as u64);
                out.extend(&bytes[used..used + n as usize]);
                self.skipped(n);
                used += n as usize;
                continue;
            }
            self.lines += 1;
            if self.lines > MAX_LINES {
                return Err(HttpError::bad("a chunk's size line or the trailer is longer than 8 KiB"));
            }
            if matches!(self.state, State::LineStart | State::Line | State::LineLf | State::LastLf) {
                self.trailer.push(byte);
            }
            let before = self.state;
            self.state = self.line_byte(byte)?;
            used += 1;
            if !self.unchunk {
                self.write_framing(before, out)?;
            } else if self.is_done() {
                write_trailer(&self.trailer, &self.listed, &mut Vec::new())?;
            }
        }
        Ok(used)
    }

    /// What goes on when a line ends that began in `before`.
    fn write_framing(&mut self, before: State, out: &mut Vec<u8>) -> Result<(), HttpError> {
        match (before, self.state) {
            (State::SizeLf, State::Data) => out.extend(format!("{:x}\r\n", self.left).bytes()),
            (State::SizeLf, _) => out.extend(b"0\r\n"),
            (State::DataLf, _) => out.extend(b"\r\n"),
            (_, State::Done) => write_trailer(&std::mem::take(&mut self.trailer), &self.listed, out)?,
            _ => {}
        }
        Ok(())
    }

    fn line_byte(&mut self, byte: u8) -> Result<State, HttpError> {
        use State as S;
        let wrong = Err(HttpError::bad("malformed chunk"));
        Ok(match (self.state, byte) {
            (S::Size, b'\r') if self.digits > 0 => S::SizeLf,
            (S::Size, b' ' | b'\t') if self.digits > 0 => S::SizeBlank,
            (S::Size, b';') if self.digits > 0 => S::Extension,
            (S::Size, _) => {
                let Some(digit) = char::from(byte).to_digit(16).filter(|_| self.digits < 15) else { return wrong };
                self.digits += 1;
                self.left = self.left << 4 | u64::from(digit);
                S::Size
            }
            (S::SizeBlank, b' ' | b'\t') => S::SizeBlank,
            (S::SizeBlank, b';') => S::Extension,
            (S::SizeBlank | S::Extension, b'\r') => S::SizeLf,
            (S::Extension, b'\n') => return wrong,
            (S::Extension, _) => S::Extension,
            (S::SizeLf, b'\n') => {
                self.digits = 0;
                // The lines of the trailer count together, those of a chunk alone.
                self.lines = 0;
                if self.left == 0 { S::LineStart } else { S::Data }
            }
            (S::DataCr, b'\r') => S::DataLf,
            (S::DataLf, b'\n') => S::Size,
            (S::LineStart, b'\r') => S::LastLf,
            (S::LineStart | S::Line, b'\n') => return wrong,
            (S::LineStart, _) => S::Line,
            (S::Line, b'\r') => S::LineLf,
            (S::Line, _) => S::Line,
            (S::LineLf, b'\n') => S::LineStart,
            (S::LastLf, b'\n') => S::Done,
            _ => return wrong,
        })
    }
}
