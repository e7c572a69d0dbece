//! An HTTP/1.1 forward proxy without I/O: RFC 9110 and RFC 9112, from which the sections are cited.
//!
//! What could be read in two ways is refused rather than repaired: the node behind would otherwise see other
//! messages than this one did (request smuggling). Heads, and what frames chunks, are written anew, never passed on.

mod body;
mod fields;
pub mod ftp;
mod ftp_url;
mod own;
mod request;
mod response;

pub use body::Chunked;
pub use fields::Body;
pub(crate) use fields::connection_line;
pub use own::status_message;
pub use request::{Request, parse_request};
pub use response::{Response, check_beginning, parse_response};

/// A message that is refused, and what to tell the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {reason}")]
pub struct HttpError {
    /// The status for the client. For a wrong response it is 502.
    pub status: u16,
    /// One line for people.
    pub reason: &'static str,
}

impl HttpError {
    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self { status: 400, reason }
    }

    pub(crate) const fn gateway(reason: &'static str) -> Self {
        Self { status: 502, reason }
    }
}

/// Finds the end of a head as bytes arrive, looking at each byte once.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadScanner {
    scanned: usize,
}

impl HeadScanner {
    /// Looks at all bytes from the head's beginning. The length of the head with its empty line, once it is there;
    /// an error as soon as it exceeds `limit` bytes or has a line end that is not CRLF (RFC 9112 §2.2 lets a
    /// recipient accept a bare LF; two recipients that differ on it can be played against each other).
    pub fn find(&mut self, bytes: &[u8], limit: usize) -> Result<Option<usize>, HttpError> {
        while self.scanned < bytes.len() {
            let at = self.scanned;
            if at >= limit {
                return Err(HttpError { status: 431, reason: "the head is longer than limits.http_head_size" });
            }
            self.scanned += 1;
            if bytes[at] != b'\n' {
                continue;
            }
            if at == 0 || bytes[at - 1] != b'\r' {
                return Err(HttpError::bad("a line ends without CR"));
            }
            if bytes[..=at].ends_with(b"\r\n\r\n") {
                return Ok(Some(self.scanned));
            }
        }
        Ok(None)
    }
}

/// The bytes of empty lines before a request, which are to be dropped (RFC 9112 §2.2).
pub fn empty_lines(bytes: &[u8]) -> usize {
    bytes.chunks_exact(2).take_while(|pair| pair == b"\r\n").count() * 2
}
