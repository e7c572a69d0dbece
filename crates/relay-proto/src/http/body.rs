//! Where a body ends (RFC 9112 §6.3), and the chunked coding (§7.1), followed while it is passed on unchanged.

use super::HttpError;

/// How a body's end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// After this many bytes; 0 is no body.
    Length(u64),
    /// By the chunked coding.
    Chunked,
    /// By the end of the connection (responses only).
    UntilEnd,
}

/// The most bytes of a chunk's size line, and of all trailer lines together.
const MAX_LINES: u32 = 8192;

/// Follows a chunked body. Memory is constant.
#[derive(Debug, Clone, Copy)]
pub struct Chunked {
    state: State,
    /// Of the chunk: what is left of it.
    left: u64,
    /// Digits of its size.
    digits: u8,
    /// Bytes of lines since the last data.
    lines: u32,
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

/// Bytes at the beginning of the input that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// How many.
    pub length: usize,
    /// Whether they are the body itself; otherwise they are the coding's.
    pub is_data: bool,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { state: State::Size, left: 0, digits: 0, lines: 0 }
    }
}

impl Chunked {
    /// Whether the last chunk and the trailer have been seen.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The bytes of data that come next, all of one chunk.
    pub fn data_due(&self) -> u64 {
        if self.state == State::Data { self.left } else { 0 }
    }

    /// `n` bytes of data went by without [`Chunked::advance`]; `n` ≤ [`Chunked::data_due`].
    pub fn skipped(&mut self, n: u64) {
        debug_assert!(n <= self.data_due());
        self.left = self.left.saturating_sub(n);
        if self.left == 0 {
            self.state = State::DataCr;
        }
    }

    /// The next piece of `bytes`. Empty only if `bytes` is, or when the body is done: what is left is not its.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Piece, HttpError> {
        if self.data_due() > 0 {
            let n = self.left.min(bytes.len() as u64);
            if n > 0 {
                self.skipped(n);
            }
            return Ok(Piece { length: n as usize, is_data: true });
        }
        let mut length = 0;
        for &byte in bytes {
            if self.is_done() || self.data_due() > 0 {
                break;
            }
            self.lines += 1;
            if self.lines > MAX_LINES {
                return Err(HttpError::bad("a chunk's size line or the trailer is too long"));
            }
            self.state = self.line_byte(byte)?;
            length += 1;
        }
        Ok(Piece { length, is_data: false })
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
