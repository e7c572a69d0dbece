//! Requests to a proxy that fetches by FTP, and the responses to its HTTP client about what the server has (RFC 9110).

pub use super::ftp_url::{Fetch, Form};
use super::{Body, Request, connection_line};

/// What is known about the data that will be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub form: Form,
    /// The length of the whole file in bytes.
    pub size: Option<u64>,
    /// Bytes at its beginning that are left out; not more than `size`, and 0 without one.
    pub offset: u64,
    /// When it was changed, as HTTP writes it.
    pub modified: Option<String>,
}

impl Found {
    /// How the end of the body is told.
    pub fn body(&self, request: &Request) -> Body {
        match self.size {
            Some(size) => Body::Length(size.saturating_sub(self.offset)),
            None if request.is_1_0 => Body::UntilEnd,
            None => Body::Chunked,
        }
    }

    /// Whether the client's connection can take another request.
    pub fn keeps_client(&self, request: &Request) -> bool {
        request.keep_alive && self.body(request) != Body::UntilEnd
    }

    /// The response's head.
    pub fn head(&self, request: &Request) -> Vec<u8> {
        let status = if self.offset > 0 { "206 Partial Content" } else { "200 OK" };
        // What a server says about a directory is no page: nothing in it is to be taken for one.
        let kind = match self.form {
            Form::Image => "application/octet-stream",
            Form::Ascii | Form::Listing | Form::Names => "text/plain\r\nX-Content-Type-Options: nosniff",
        };
        let mut head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n");
        if let Some(modified) = &self.modified {
            head += &format!("Last-Modified: {modified}\r\n");
        }
        match (self.body(request), self.size) {
            (Body::Length(length), Some(size)) => {
                head += &format!("Accept-Ranges: bytes\r\nContent-Length: {length}\r\n");
                if self.offset > 0 {
                    head += &format!("Content-Range: bytes {}-{}/{size}\r\n", self.offset, size.saturating_sub(1));
                }
            }
            (Body::Chunked, _) => head += "Transfer-Encoding: chunked\r\n",
            _ => {}
        }
        head += connection_line(request.is_1_0, self.keeps_client(request));
        head += "\r\n";
        head.into_bytes()
    }
}
