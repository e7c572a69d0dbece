//! The proxy's own responses.

use super::fields::Fields;

/// Fields that the response to TRACE leaves out: its reader is not always the author of the request (RFC 9110 §9.3.8).
const SECRETS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// The answer to OPTIONS that may go no further: what a client may ask this proxy for.
/// `connection` is the line of the Connection field, or empty.
pub fn options(connection: &str) -> Vec<u8> {
    let allow = "CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, TRACE";
    format!("HTTP/1.1 200 OK\r\nAllow: {allow}\r\n{connection}Content-Length: 0\r\n\r\n").into_bytes()
}

/// The answer to TRACE that may go no further: what was received, with this request `line`.
/// `connection` is the line of the Connection field, or empty.
pub fn trace(line: &str, fields: &Fields<'_>, connection: &str) -> Vec<u8> {
    let mut received = line.as_bytes().to_vec();
    fields.write_all_but(&mut received, &SECRETS);
    received.extend(b"\r\n");
    let length = received.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: message/http\r\n{connection}Content-Length: {length}\r\n\r\n");
    [head.into_bytes(), received].concat()
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
        407 => "Proxy-Authenticate: Basic realm=\"ekiden\", charset=\"UTF-8\"\r\n",
        _ => "",
    };
    let length = text.len() + 1;
    let fields = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    format!("HTTP/1.1 {status} {reason}\r\n{fields}{more}Content-Length: {length}\r\n\r\n{text}\n").into_bytes()
}
