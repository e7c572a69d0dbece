//! Responses on their way to the client.

use std::borrow::Cow;

use super::fields::{Body, Fields, connection_line, framing};
use super::{HttpError, Request};

/// A response, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The head for the client; empty if the client must not see it (1xx to HTTP/1.0).
    pub head: Vec<u8>,
    /// 1xx: the final response is still to come.
    pub is_interim: bool,
    /// The body behind it.
    pub body: Body,
    /// What Connection lists, in lower case: fields of the trailer, too, that are for this hop only (RFC 9110 §7.6.1).
    pub listed: Vec<String>,
    /// The coding must be taken off: the client does not know chunks.
    pub unchunk: bool,
    /// The origin's connection can take another request.
    pub keeps_origin: bool,
    /// The client's connection can; otherwise the head says that it closes.
    pub keeps_client: bool,
}

const NOT_HTTP_1: HttpError = HttpError::gateway("it does not speak HTTP/1");

/// Whether what an origin has said so far can be the beginning of a response.
///
/// # Errors
/// If it cannot: an origin that speaks something else may say no more, and wait.
pub fn check_beginning(bytes: &[u8]) -> Result<(), HttpError> {
    const VERSION: &[u8] = b"HTTP/1.";
    let n = bytes.len().min(VERSION.len());
    if bytes[..n] == VERSION[..n] { Ok(()) } else { Err(NOT_HTTP_1) }
}

/// RFC 9110 §2.5: a message of a higher minor version is one of the highest known.
fn as_highest_known(head: &[u8]) -> Cow<'_, [u8]> {
    match head {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b' ', ..] => {
            let mut head = head.to_vec();
            head[7] = b'1';
            head.into()
        }
        _ => head.into(),
    }
}

/// Reads a whole head, as [`super::HeadScanner`] found it, that answers `request`. Without `may_keep` the client is told that its connection
/// ends with this response. Errors have status 502.
pub fn parse_response(
    head: &[u8],
    max_fields: usize,
    request: &Request,
    may_keep: bool,
) -> Result<Response, HttpError> {
    let mut storage = vec![httparse::EMPTY_HEADER; max_fields];
    let mut parsed = httparse::Response::new(&mut storage);
    let mut parser = httparse::ParserConfig::default();
    // RFC 9112 §5.1: a proxy removes such blanks. Heads are written anew, without.
    parser.allow_spaces_after_header_name_in_responses(true);
    // Other proxies pass such status lines.
    parser.allow_multiple_spaces_in_response_status_delimiters(true);
    let head = &*as_highest_known(head);
    match parser.parse_response(&mut parsed, head) {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HttpError::gateway("it has more fields than limits.http_fields"));
        }
        Err(httparse::Error::Version) => return Err(NOT_HTTP_1),
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => {
            return Err(HttpError::gateway("a field is malformed"));
        }
        _ => return Err(HttpError::gateway("the status line is malformed")),
    }
    let (Some(status), Some(minor)) = (parsed.code, parsed.version) else {
        return Err(NOT_HTTP_1);
    };
    let reason = parsed.reason.unwrap_or_default();
    let as_gateway = |error: HttpError| HttpError { status: 502, ..error };
    let fields = Fields::new(parsed.headers).map_err(as_gateway)?;
    let is_interim = (100..200).contains(&status);
    // Upgrade was not passed on, so nobody can have agreed to it.
    if !(100..1000).contains(&status) || status == 101 {
        return Err(HttpError::gateway("its status was not asked for"));
    }
    let told = fields.body().map_err(as_gateway)?;
    // RFC 9112 §6.3: these have no body, whatever their fields say.
    let bodiless = request.is_head || is_interim || status == 204 || status == 304;
    let body = if bodiless { Body::Length(0) } else { told.unwrap_or(Body::UntilEnd) };
    // RFC 9112 §6.1: the framing is faulty, so that what comes behind the body is not to be trusted.
    let is_faulty = minor == 0 && told == Some(Body::Chunked);
    // RFC 9110 §8.6, RFC 9112 §6.1: an origin must not say this, and one that does may send what it has announced.
    let must_not_frame = is_interim || status == 204;
    let announces = must_not_frame && told.is_some_and(|told| told != Body::Length(0));
    let unchunk = body == Body::Chunked && request.is_1_0;
    let has_end = body != Body::UntilEnd && !is_faulty;
    // RFC 9112 §9.3.
    let offers = !fields.connection("close") && (minor == 1 || fields.connection("keep-alive"));
    let keeps_client = may_keep && request.keep_alive && has_end && !unchunk;
    let keeps_origin = offers && has_end && !announces;
    let (head, listed) = (Vec::new(), Vec::new());
    let mut response = Response { head, is_interim, body, listed, unchunk, keeps_origin, keeps_client };
    if is_interim && request.is_1_0 {
        return Ok(response);
    }
    let out = &mut response.head;
    out.extend(format!("HTTP/1.1 {status} {reason}\r\n").bytes());
    let is_hidden = must_not_frame || (request.is_1_0 && told == Some(Body::Chunked));
    out.extend(framing(told.filter(|_| !is_hidden)).bytes());
    fields.write(out, if request.is_1_0 { &["trailer"] } else { &[] });
    out.extend(format!("Via: 1.{minor} ekiden\r\n").bytes());
    if !is_interim {
        out.extend(connection_line(request.is_1_0, keeps_client).bytes());
    }
    out.extend(b"\r\n");
    response.listed = fields.into_listed();
    Ok(response)
}
