//! Reaching a peer through an HTTP proxy: CONNECT (RFC 9110, section 9.3.6).

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::{HttpProxy, Login};

/// The longest answer that is read.
const ANSWER_MOST: usize = 16 << 10;
/// The most fields of an answer.
const FIELDS_MOST: usize = 100;
/// The maximum number of characters of a proxy's answer that are logged.
const WORDS_MOST: usize = 80;

/// Why a proxy has made no way.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// It was given none.
    #[error("it wants a user and a password ({0}): http_proxy_user and http_proxy_password_file")]
    Login(String),
    /// A wrong password, or user.
    #[error("it does not take this user and password ({0}): http_proxy_user and http_proxy_password_file have them")]
    WrongLogin(String),
    /// It may not.
    #[error("it does not connect there ({0}): it must allow CONNECT to this address and port")]
    Forbidden(String),
    /// It cannot.
    #[error("it cannot connect there ({0})")]
    Gateway(String),
    /// Any other answer.
    #[error("it answers {0}")]
    Other(String),
    /// It speaks something else.
    #[error("it does not speak HTTP/1; is this the address of an HTTP proxy?")]
    NotHttp,
    /// Its answer does not end.
    #[error("its answer is longer than {ANSWER_MOST} bytes")]
    TooLong,
    /// The peer does not speak first.
    #[error("it sends more than its answer before the peer was asked anything")]
    More,
}

impl ProxyError {
    /// What it means where the proxy was given a login, or not.
    fn with(self, had_login: bool) -> Self {
        match self {
            Self::Login(said) if had_login => Self::WrongLogin(said),
            other => other,
        }
    }
}

/// Asks the proxy at the other end of `socket` for a way to `host` and `port`.
pub async fn connect(socket: &mut TcpStream, proxy: &HttpProxy, host: &str, port: u16) -> io::Result<()> {
    socket.write_all(&request(proxy, host, port)).await?;
    let mut answer = Vec::new();
    loop {
        match check(&answer).map_err(|error| error.with(proxy.login.is_some())) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
        if socket.read_buf(&mut answer).await? == 0 {
            return Err(io::Error::other("it closed the connection without an answer"));
        }
    }
}

fn request(proxy: &HttpProxy, host: &str, port: u16) -> Vec<u8> {
    let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let encoded = |Login { user, password, .. }: &Login| STANDARD.encode(format!("{user}:{password}"));
    let login = proxy.login.as_ref().map(|login| format!("Proxy-Authorization: Basic {}\r\n", encoded(login)));
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n", login.unwrap_or_default()).into_bytes()
}

/// Whether the way is open, from what the proxy has said so far.
fn check(mut answer: &[u8]) -> Result<bool, ProxyError> {
    const VERSION: &[u8] = b"HTTP/1.";
    let is_long = answer.len() >= ANSWER_MOST;
    loop {
        let known = answer.len().min(VERSION.len());
        if answer.get(..known) != VERSION.get(..known) {
            return Err(ProxyError::NotHttp);
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MOST];
        let mut parsed = httparse::Response::new(&mut fields);
        let length = match parsed.parse(answer) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if !is_long => return Ok(false),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Err(ProxyError::TooLong),
            Err(_) => return Err(ProxyError::NotHttp),
        };
        let code = parsed.code.unwrap_or_default();
        let rest = answer.get(length..).unwrap_or_default();
        let reason: String = parsed.reason.unwrap_or_default().chars().take(WORDS_MOST).collect();
        let said = format!("{code} {reason}").trim_end().to_owned();
        match code {
            // What the proxy says meanwhile; the answer follows.
            100..=199 if is_long => return Err(ProxyError::TooLong),
            100..=199 => answer = rest,
            200..=299 if rest.is_empty() => return Ok(true),
            200..=299 => return Err(ProxyError::More),
            // Some proxies answer a wrong password as a server would.
            401 | 407 => return Err(ProxyError::Login(said)),
            403 | 405 => return Err(ProxyError::Forbidden(said)),
            502..=504 => return Err(ProxyError::Gateway(said)),
            _ => return Err(ProxyError::Other(said)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_request_names_the_peer_and_has_the_login() {
        let proxy = |login: Option<&str>| HttpProxy {
            address: ("proxy".into(), 3128),
            login: login.map(|password| Login {
                user: "Aladdin".into(),
                password: password.into(),
                file: Default::default(),
            }),
        };
        let text = |proxy: HttpProxy, host: &str| String::from_utf8(request(&proxy, host, 7100)).unwrap();
        assert_eq!(text(proxy(None), "192.0.2.1"), "CONNECT 192.0.2.1:7100 HTTP/1.1\r\nHost: 192.0.2.1:7100\r\n\r\n");
        // RFC 7617, section 2.
        assert_eq!(
            text(proxy(Some("open sesame")), "fd00::1"),
            "CONNECT [fd00::1]:7100 HTTP/1.1\r\nHost: [fd00::1]:7100\r\n\
             Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"
        );
    }

    #[test]
    fn each_answer_is_told_apart() {
        assert_eq!(check(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"), Ok(true));
        assert_eq!(check(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\n"), Ok(true));
        assert_eq!(check(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 2"), Ok(false));
        assert_eq!(check(b""), Ok(false));
        let cases: [(&[u8], &str); 9] = [
            (b"HTTP/1.1 407 Who are you\r\n\r\n", "it wants a user and a password (407 Who are you)"),
            (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "it wants a user and a password (401 Unauthorized)"),
            (b"HTTP/1.1 403 Forbidden\r\n\r\n", "it does not connect there (403 Forbidden)"),
            (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "it cannot connect there (502 Bad Gateway)"),
            (b"HTTP/1.1 500\r\n\r\n", "it answers 500"),
            (b"SSH-2.0-OpenSSH", "it does not speak HTTP/1"),
            (b"HTTP/1.1 2x0 OK\r\n\r\n", "it does not speak HTTP/1"),
            (b"HTTP/1.1 200 OK\r\n\r\nEKTN", "it sends more than its answer"),
            (&[b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; ANSWER_MOST]].concat(), "its answer is longer"),
        ];
        for (answer, error) in cases {
            let said = check(answer).unwrap_err().to_string();
            assert!(said.starts_with(error), "{said}");
        }
    }

    #[test]
    fn a_login_that_is_refused_is_told_from_none() {
        for answer in [&b"HTTP/1.1 401 No\r\n\r\n"[..], b"HTTP/1.1 407 No\r\n\r\n"] {
            let said = |had_login| check(answer).unwrap_err().with(had_login).to_string();
            assert!(said(true).starts_with("it does not take this user and password (40"), "{}", said(true));
            assert!(said(false).starts_with("it wants a user and a password (40"), "{}", said(false));
        }
        let other = check(b"HTTP/1.1 403 No\r\n\r\n").unwrap_err();
        assert!(other.with(true).to_string().starts_with("it does not connect there"));
    }

    #[test]
    fn a_proxy_that_says_to_wait_again_and_again_is_given_up() {
        let once = b"HTTP/1.1 100\r\n\r\n";
        let waiting = once.repeat(ANSWER_MOST / once.len() - 1);
        // On little of the stack, however often it says so.
        let judged = std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || (check(&waiting), check(&[&waiting[..], once, once].concat())));
        assert_eq!(judged.unwrap().join().unwrap(), (Ok(false), Err(ProxyError::TooLong)));
    }

    proptest! {
        #[test]
        fn whatever_a_proxy_says_is_judged_without_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = check(&bytes);
            let _ = check(&[b"HTTP/1.1 200 OK\r\n".to_vec(), bytes].concat());
        }
    }
}
