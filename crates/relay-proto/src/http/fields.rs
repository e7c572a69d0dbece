//! What requests and responses have in common: which fields are for the next hop only, and how the body ends.

use httparse::Header;

use super::HttpError;
use super::body::Body;

/// RFC 9110 §7.6.1, and what older clients send to proxies.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "proxy-connection", "keep-alive", "te", "upgrade", "proxy-authorization", "proxy-authenticate"];

/// Fields that say where a message ends or goes: no Connection field may remove them.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "host"];

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

    /// All values of one field.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    }

    /// Writes every field that is meant for the next recipient, except those that `skip` names.
    pub fn write(&self, out: &mut Vec<u8>, skip: &[&str]) {
        for field in self.fields {
            let name = field.name.to_ascii_lowercase();
            let for_us = HOP_BY_HOP.contains(&name.as_str()) || self.connection(&name);
            if for_us || skip.contains(&name.as_str()) {
                continue;
            }
            out.extend(field.name.as_bytes());
            out.extend(b": ");
            out.extend(field.value);
            out.extend(b"\r\n");
        }
    }

    /// RFC 9112 §6.3 as far as the fields decide it. `None`: there is neither field.
    pub fn body(&self) -> Result<Option<Body>, HttpError> {
        let mut codings = self.all("transfer-encoding");
        let mut lengths = self.all("content-length");
        match (codings.next(), lengths.next()) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(HttpError::bad("both Transfer-Encoding and Content-Length")),
            (Some(coding), None) => {
                if codings.next().is_some() {
                    return Err(HttpError::bad("more than one Transfer-Encoding"));
                }
                if !coding.eq_ignore_ascii_case(b"chunked") {
                    return Err(HttpError { status: 501, reason: "a transfer coding other than chunked" });
                }
                Ok(Some(Body::Chunked))
            }
            (None, Some(length)) => {
                let number = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                match number.and_then(|text| text.parse().ok()) {
                    Some(length) if lengths.next().is_none() => Ok(Some(Body::Length(length))),
                    _ => Err(HttpError::bad("Content-Length is not one number")),
                }
            }
        }
    }
}
