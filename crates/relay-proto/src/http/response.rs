//! Responses on their way to the client, and the proxy's own.

use super::body::Body;
use super::fields::Fields;
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
    /// The coding must be taken off: the client does not know chunks.
    pub unchunk: bool,
    /// The origin's connection can take another request.
    pub keeps_origin: bool,
    /// The client's connection can; otherwise the head says that it closes.
    pub keeps_client: bool,
}

/// Reads a whole head, as [`super::HeadScanner`] found it, that answers `request`. Errors have status 502.
pub fn parse_response(head: &[u8], max_fields: usize, request: &Request) -> Result<Response, HttpError> {
    let mut storage = vec![httparse::EMPTY_HEADER; max_fields];
    let mut parsed = httparse::Response::new(&mut storage);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(HttpError::gateway("the origin sent too many fields")),
        _ => return Err(HttpError::gateway("the origin does not speak HTTP/1")),
    }
    let (Some(status), Some(minor)) = (parsed.code, parsed.version) else {
        return Err(HttpError::gateway("the origin does not speak HTTP/1"));
    };
    let reason = parsed.reason.unwrap_or_default();
    let as_gateway = |error: HttpError| HttpError { status: 502, ..error };
    let fields = Fields::new(parsed.headers).map_err(as_gateway)?;
    let is_interim = (100..200).contains(&status);
    // Upgrade was not passed on, so nobody can have agreed to it.
    if !(100..1000).contains(&status) || status == 101 {
        return Err(HttpError::gateway("the origin sent a status that was not asked for"));
    }
    let told = fields.body().map_err(as_gateway)?;
    // RFC 9112 §6.3: these have no body, whatever their fields say.
    let bodiless = request.is_head || is_interim || status == 204 || status == 304;
    let body = if bodiless { Body::Length(0) } else { told.unwrap_or(Body::UntilEnd) };
    let unchunk = body == Body::Chunked && request.is_1_0;
    let keeps_client = request.keep_alive && body != Body::UntilEnd;
    let mut response = Response {
        head: Vec::new(),
        is_interim,
        body,
        unchunk,
        keeps_origin: minor == 1 && !fields.connection("close") && body != Body::UntilEnd,
        keeps_client,
    };
    if is_interim && request.is_1_0 {
        return Ok(response);
    }
    let out = &mut response.head;
    out.extend(format!("HTTP/1.1 {status} {reason}\r\n").bytes());
    fields.write(out, if request.is_1_0 { &["transfer-encoding", "trailer"] } else { &[] });
    out.extend(format!("Via: 1.{minor} ekiden\r\n").bytes());
    if !keeps_client && !is_interim {
        out.extend(b"Connection: close\r\n");
    }
    out.extend(b"\r\n");
    Ok(response)
}

/// The proxy's own response, after which it closes the connection: `text` is one line for people.
pub fn status_message(status: u16, text: &str) -> Vec<u8> {
    let reason = match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Bad Gateway",
    };
    let more = match status {
        401 => "WWW-Authenticate: Basic realm=\"ftp\"\r\n",
        405 => "Allow: GET, HEAD\r\n",
        407 => "Proxy-Authenticate: Basic realm=\"ekiden\"\r\n",
        _ => "",
    };
    let length = text.len() + 1;
    let fields = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    format!("HTTP/1.1 {status} {reason}\r\n{fields}{more}Content-Length: {length}\r\n\r\n{text}\n").into_bytes()
}
