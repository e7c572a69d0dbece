//! Requests to a proxy: CONNECT (RFC 9110 §9.3.6) and the absolute form (RFC 9112 §3.2.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::HttpError;
use super::fields::{Body, Fields, connection_line, framing};
use super::ftp_url::Fetch;
use super::own::{options, trace};
use crate::target::Target;

/// A request, understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// CONNECT: a tunnel is wanted. There is no body and no head to send on.
    pub is_connect: bool,
    /// Where to.
    pub target: Target,
    /// Set for an `ftp` URL: this is to be fetched by FTP. There is no body and no head to send on.
    pub ftp: Option<Box<Fetch>>,
    /// Set if the request may go no further (RFC 9110 §7.6.2): the response to it. There is no head to send on.
    pub answer: Option<Vec<u8>>,
    /// The head for the origin.
    pub head: Vec<u8>,
    /// The body behind it.
    pub body: Body,
    /// What Connection lists, in lower case: fields of the trailer, too, that are for this hop only (RFC 9110 §7.6.1).
    pub listed: Vec<String>,
    /// HEAD: the response has no body.
    pub is_head: bool,
    /// Asking twice does what asking once does (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// The client may send another request on the connection.
    pub keep_alive: bool,
    /// The client speaks HTTP/1.0: no chunks and no interim responses.
    pub is_1_0: bool,
    /// `user:password` of Proxy-Authorization, if it is Basic (RFC 7617).
    pub credentials: Option<Vec<u8>>,
}

/// Reads a whole head, as [`super::HeadScanner`] found it, of at most `max_fields` fields.
pub fn parse_request(head: &[u8], max_fields: usize) -> Result<Request, HttpError> {
    let mut storage = vec![httparse::EMPTY_HEADER; max_fields];
    let mut parsed = httparse::Request::new(&mut storage);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HttpError { status: 431, reason: "the head has more fields than limits.http_fields" });
        }
        Err(httparse::Error::Version) => return Err(of_version(head)),
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => {
            return Err(HttpError::bad("a header field is malformed"));
        }
        _ => return Err(HttpError::bad("not an HTTP request")),
    }
    let (Some(method), Some(uri), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(HttpError::bad("not an HTTP request"));
    };
    let fields = Fields::new(parsed.headers)?;
    let is_1_0 = minor == 0;
    // RFC 9112 §3.2; but the target of CONNECT is the host, and lftp leaves the field out.
    let may_lack = is_1_0 || method == "CONNECT";
    if fields.all("host").count() > 1 || (!may_lack && fields.all("host").next().is_none()) {
        return Err(HttpError::bad("there must be one Host field"));
    }
    // RFC 9112 §6.1: a recipient of HTTP/1.0 cannot trust that the coding was understood on the way.
    if is_1_0 && fields.all("transfer-encoding").next().is_some() {
        return Err(HttpError::bad("Transfer-Encoding in HTTP/1.0"));
    }
    let told = fields.body()?;
    let body = told.unwrap_or(Body::Length(0));
    let mut request = Request {
        is_connect: method == "CONNECT",
        target: Target { host: crate::Host::Name(String::new()), port: 0 },
        ftp: None,
        answer: None,
        head: Vec::new(),
        body,
        listed: Vec::new(),
        is_head: method == "HEAD",
        is_idempotent: matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"),
        keep_alive: !fields.connection("close") && (!is_1_0 || asks_to_keep(&fields)),
        is_1_0,
        credentials: fields.all("proxy-authorization").next().and_then(basic),
    };
    if request.is_connect {
        request.target = Target::parse(uri, None).map_err(|_| HttpError::bad("CONNECT needs host:port"))?;
        // RFC 9110 §9.3.6: bytes behind the head are the tunnel's, so nothing else may claim them.
        if body != Body::Length(0) {
            return Err(HttpError::bad("CONNECT has no body"));
        }
        return Ok(request);
    }
    if let Some(url) = after_scheme(uri, "ftp://") {
        return for_ftp(request, url, method, &fields);
    }
    let (authority, path) = split_uri(uri, method)?;
    request.target = Target::parse(authority, Some(80)).map_err(|_| HttpError::bad("not a host in the URI"))?;
    if method == "TRACE" && body != Body::Length(0) {
        return Err(HttpError::bad("TRACE has no body"));
    }
    let forwards = max_forwards(&fields, method)?;
    if forwards == Some(0) {
        // Its body is not read.
        request.keep_alive &= body == Body::Length(0);
        let line = format!("{method} {uri} HTTP/1.{minor}\r\n");
        let connection = connection_line(is_1_0, request.keep_alive);
        let answer = if method == "TRACE" { trace(&line, &fields, connection) } else { options(connection) };
        request.answer = Some(answer);
        return Ok(request);
    }
    let head = &mut request.head;
    // RFC 9112 §3.2.2: Host is what the URI says, whatever the client wrote.
    head.extend(format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\n").bytes());
    head.extend(framing(told).bytes());
    let mut skip = vec!["host"];
    if is_1_0 {
        // RFC 9110 §10.1.1: a client of HTTP/1.0 cannot wait for 100.
        skip.push("expect");
    }
    if let Some(forwards) = forwards {
        skip.push("max-forwards");
        head.extend(format!("Max-Forwards: {}\r\n", forwards - 1).bytes());
    }
    fields.write(head, &skip);
    head.extend(format!("Via: 1.{minor} ekiden\r\n\r\n").bytes());
    request.listed = fields.into_listed();
    Ok(request)
}

/// What is wrong with a request line behind whose URI stands no version that is known. RFC 9112 §3: a space in the URI is an invalid
/// line, and no other version.
fn of_version(head: &[u8]) -> HttpError {
    let line = head.trim_ascii_start().split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    match words[..] {
        [_, _, version] if version.starts_with(b"HTTP/") => {
            HttpError { status: 505, reason: "only HTTP/1.0 and HTTP/1.1" }
        }
        [_, _, .., version] if version.starts_with(b"HTTP/") => {
            HttpError::bad("a space in the URI, which is %20 there")
        }
        _ => HttpError::bad("not an HTTP request"),
    }
}

/// Whether a client of HTTP/1.0 asks for another request on its connection.
///
/// RFC 9112 §9.3 forbids a proxy to grant it, because an old proxy in between may pass the field on without acting on it, and
/// then wait for an end. Programs that ask this of a proxy today speak to it themselves, and measure or poll with it.
fn asks_to_keep(fields: &Fields<'_>) -> bool {
    let lists =
        |value: &[u8]| value.split(|&byte| byte == b',').any(|v| v.trim_ascii().eq_ignore_ascii_case(b"keep-alive"));
    fields.connection("keep-alive") || fields.all("proxy-connection").any(lists)
}

/// How far a request of the two methods that count it may go (RFC 9110 §7.6.2).
fn max_forwards(fields: &Fields<'_>, method: &str) -> Result<Option<u64>, HttpError> {
    let mut values = fields.all("max-forwards").filter(|_| matches!(method, "OPTIONS" | "TRACE"));
    let Some(value) = values.next() else { return Ok(None) };
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if !is_number || values.next().is_some() {
        return Err(HttpError::bad("Max-Forwards is not one number"));
    }
    // What is more than we can count becomes as much as we can.
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    Ok(Some(number.unwrap_or(u64::MAX)))
}

/// A request for an `ftp` URL.
fn for_ftp(mut request: Request, url: &str, method: &str, fields: &Fields<'_>) -> Result<Request, HttpError> {
    if !matches!(method, "GET" | "HEAD") {
        return Err(HttpError { status: 405, reason: "ftp URLs can be read only, by GET and HEAD" });
    }
    if request.body != Body::Length(0) {
        return Err(HttpError::bad("a request for an ftp URL has no body"));
    }
    let login = fields.all("authorization").next().and_then(basic);
    let (target, mut fetch) = Fetch::parse(url, login)?;
    // RFC 9110 §13.1.5 and §14.2: a range under a condition, and any that is not the rest of a file, may be ignored.
    if fields.all("if-range").next().is_none() && fields.all("range").count() == 1 {
        fetch.offset = fields.all("range").next().and_then(rest_from).unwrap_or(0);
    }
    (request.target, request.ftp) = (target, Some(Box::new(fetch)));
    Ok(request)
}

/// The first byte of `bytes=N-`.
fn rest_from(range: &[u8]) -> Option<u64> {
    let first = std::str::from_utf8(range).ok()?.strip_prefix("bytes=")?.strip_suffix('-')?;
    first.parse().ok().filter(|_| first.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What follows this scheme, if the URI has it.
fn after_scheme<'a>(uri: &'a str, scheme: &str) -> Option<&'a str> {
    uri.split_at_checked(scheme.len()).filter(|(found, _)| found.eq_ignore_ascii_case(scheme)).map(|(_, rest)| rest)
}

/// The authority of an absolute `http` URI, and the origin form of the rest.
fn split_uri<'a>(uri: &'a str, method: &str) -> Result<(&'a str, String), HttpError> {
    let rest = after_scheme(uri, "http://")
        .ok_or(HttpError::bad("a proxy takes CONNECT or a URI that begins with http:// or ftp://"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // RFC 9110 §4.2.4: user information in a URI is an error, often a deception.
    if authority.contains('@') || path.contains('#') {
        return Err(HttpError::bad("the URI has user information or a fragment"));
    }
    let path = match path {
        // RFC 9112 §3.2.4.
        "" if method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    Ok((authority, path))
}

fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(rest.trim()).ok())?
}

impl std::fmt::Debug for Request {
    /// Without credentials and without the head, which may hold some.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { is_connect, target, body, .. } = self;
        write!(f, "Request {{ is_connect: {is_connect}, target: {target}, body: {body:?} }}")
    }
}
