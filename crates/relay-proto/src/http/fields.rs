//! What requests and responses have in common: which fields are for the next hop only, and how the body ends.

use httparse::{EMPTY_HEADER, Header, Status, parse_headers};

use super::HttpError;

/// RFC 9110 §7.6.1, and what older clients send to proxies.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "proxy-connection", "keep-alive", "te", "upgrade", "proxy-authorization", "proxy-authenticate"];

/// Fields that say where a message ends or goes: no Connection field may remove them.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "host"];

/// RFC 9110 §6.5.1: fields by which a message is routed, permitted, modified or read. In a trailer they come too late for a
/// reader that acts on the head, and would count for a reader that merges the two.
const HEAD_ONLY: [&str; 22] = [
    "age",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "forwarded",
    "location",
    "max-forwards",
    "pragma",
    "range",
    "retry-after",
    "set-cookie",
    "trailer",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];

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

/// The parsed fields of a head.
pub struct Fields<'a> {
    fields: &'a [Header<'a>],
    /// What Connection lists, in lower case.
    listed: Vec<String>,
}

impl<'a> Fields<'a> {
    pub fn new(fields: &'a [Header<'a>]) -> Result<Self, HttpError> {
        let mut listed = Vec::new();
        for value in fields.iter().filter(|f| f.name.eq_ignore_ascii_case("connection")).map(|f| f.value) {
            let value = std::str::from_utf8(value).map_err(|_| HttpError::bad("a Connection field is not text"))?;
            listed.extend(value.split(',').map(|token| token.trim().to_ascii_lowercase()));
        }
        if listed.iter().any(|token| FRAMING.contains(&token.as_str())) {
            return Err(HttpError::bad("Connection lists a field that frames the message"));
        }
        Ok(Self { fields, listed })
    }

    /// Whether Connection lists `option`.
    pub fn connection(&self, option: &str) -> bool {
        self.listed.iter().any(|token| token == option)
    }

    /// What Connection lists, in lower case.
    pub fn into_listed(self) -> Vec<String> {
        self.listed
    }

    /// All values of one field.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    }

    /// Writes every field that is meant for the next recipient, except those that `skip` names and those that tell how the
    /// body ends, which [`framing`] writes.
    pub fn write(&self, out: &mut Vec<u8>, skip: &[&str]) {
        let ours = ["content-length", "transfer-encoding"];
        for field in self.fields {
            let name = field.name.to_ascii_lowercase();
            let for_us = HOP_BY_HOP.contains(&name.as_str()) || self.connection(&name);
            if for_us || ours.contains(&name.as_str()) || skip.contains(&name.as_str()) {
                continue;
            }
            write_field(field, out);
        }
    }

    /// Writes every field as it came, except those that `skip` names.
    pub fn write_all_but(&self, out: &mut Vec<u8>, skip: &[&str]) {
        let kept = self.fields.iter().filter(|field| !skip.iter().any(|name| field.name.eq_ignore_ascii_case(name)));
        kept.for_each(|field| write_field(field, out));
    }

    /// RFC 9112 §6.3 as far as the fields decide it. `None`: there is neither field.
    pub fn body(&self) -> Result<Option<Body>, HttpError> {
        let mut codings = self.all("transfer-encoding");
        let mut lengths = self.all("content-length").peekable();
        match (codings.next(), lengths.peek()) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(HttpError::bad("both Transfer-Encoding and Content-Length")),
            (Some(_), None) if codings.next().is_some() => Err(HttpError::bad("more than one Transfer-Encoding")),
            (Some(coding), None) => only_chunked(coding).map(Some),
            (None, Some(_)) => {
                // RFC 9110 §8.6: one number said more than once may count as one.
                let mut numbers = lengths.flat_map(|value| value.split(|&byte| byte == b',')).map(number);
                let first = numbers.next().flatten();
                match first.filter(|_| numbers.all(|other| other == first)) {
                    Some(length) => Ok(Some(Body::Length(length))),
                    None => Err(HttpError::bad("Content-Length is not one number")),
                }
            }
        }
    }
}

/// The line that tells a recipient how the body ends; empty without a body, and for one that ends with the connection.
pub fn framing(told: Option<Body>) -> String {
    match told {
        Some(Body::Length(length)) => format!("Content-Length: {length}\r\n"),
        Some(Body::Chunked) => "Transfer-Encoding: chunked\r\n".to_owned(),
        Some(Body::UntilEnd) | None => String::new(),
    }
}

/// The line that tells a client whether its connection goes on; empty where its version says so.
pub fn connection_line(is_1_0: bool, goes_on: bool) -> &'static str {
    match (is_1_0, goes_on) {
        (_, false) => "Connection: close\r\n",
        (true, true) => "Connection: keep-alive\r\n",
        (false, true) => "",
    }
}

/// Writes of a `trailer`, which ends with an empty line, the fields that may stand in one, and the empty line; but not those
/// that the head's Connection has `listed`.
pub fn write_trailer(trailer: &[u8], listed: &[String], out: &mut Vec<u8>) -> Result<(), HttpError> {
    let mut storage = vec![EMPTY_HEADER; trailer.iter().filter(|&&byte| byte == b'\n').count()];
    let Ok(Status::Complete((_, fields))) = parse_headers(trailer, &mut storage) else {
        return Err(HttpError::bad("the trailer is malformed"));
    };
    for field in fields {
        let name = field.name.to_ascii_lowercase();
        let is_of_head = [&HOP_BY_HOP[..], &FRAMING, &HEAD_ONLY].iter().any(|names| names.contains(&name.as_str()));
        if !is_of_head && !name.starts_with("if-") && !listed.contains(&name) {
            write_field(field, out);
        }
    }
    out.extend(b"\r\n");
    Ok(())
}

fn write_field(field: &Header<'_>, out: &mut Vec<u8>) {
    for part in [field.name.as_bytes(), b": ", field.value, b"\r\n"] {
        out.extend(part);
    }
}

/// Digits, perhaps with blanks around them.
fn number(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?.trim_matches([' ', '\t']);
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// RFC 9112 §6.1 and §7: of the codings only `chunked` is known here, and it is applied once.
fn only_chunked(value: &[u8]) -> Result<Body, HttpError> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let codings: Vec<&str> = text.split(',').map(|coding| coding.trim_matches([' ', '\t'])).collect();
    let is_token =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let is_chunked = |text: &&str| text.eq_ignore_ascii_case("chunked");
    match &codings[..] {
        [one] if is_chunked(one) => Ok(Body::Chunked),
        codings if !codings.iter().all(|coding| is_token(coding)) => {
            Err(HttpError::bad("Transfer-Encoding is not a list of codings"))
        }
        codings if codings.iter().filter(|coding| is_chunked(coding)).count() > 1 => {
            Err(HttpError::bad("the chunked coding is applied more than once"))
        }
        _ => Err(HttpError { status: 501, reason: "a transfer coding other than chunked" }),
    }
}
