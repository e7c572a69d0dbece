//! A client that takes a listener for one of another protocol: known by its first bytes, and refused in its own words.

use crate::http::status_message;

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP, to whatever kind of server.
    Http,
    /// SOCKS version 4 or 4a.
    Socks4,
    /// SOCKS version 5 (RFC 1928).
    Socks5,
    /// TLS (RFC 8446), or what was before it.
    Tls,
}

/// What the first bytes of a client say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guess {
    /// Too little; at most eight bytes are needed.
    More,
    /// None of these.
    Unknown,
    /// This.
    Speaks(Spoken),
}

/// What a client speaks that began with `bytes`.
pub fn guess(bytes: &[u8]) -> Guess {
    const METHODS: [&[u8]; 9] =
        [b"CONNECT ", b"DELETE ", b"GET ", b"HEAD ", b"OPTIONS ", b"PATCH ", b"POST ", b"PUT ", b"TRACE "];
    match bytes {
        [] | [0x16] => Guess::More,
        [4, ..] => Guess::Speaks(Spoken::Socks4),
        [5, ..] => Guess::Speaks(Spoken::Socks5),
        // A record of the type handshake, whose major version is 3.
        [0x16, 3, ..] => Guess::Speaks(Spoken::Tls),
        _ if METHODS.iter().any(|method| bytes.starts_with(method)) => Guess::Speaks(Spoken::Http),
        _ if METHODS.iter().any(|method| method.starts_with(bytes)) => Guess::More,
        _ => Guess::Unknown,
    }
}

impl Spoken {
    /// What the client understands as a refusal. `served` is what the listener speaks.
    pub fn refusal(self, served: Self) -> Vec<u8> {
        match self {
            Self::Http if served == Self::Tls => {
                status_message(400, "this port speaks TLS: the proxy's address begins with https://, not http://")
            }
            Self::Http => status_message(400, &format!("this port speaks {served}, not HTTP")),
            // Request rejected or failed.
            Self::Socks4 => vec![0, 0x5b, 0, 0, 0, 0, 0, 0],
            // No acceptable method (RFC 1928 §3).
            Self::Socks5 => vec![5, 0xff],
            // A fatal alert, handshake_failure (RFC 8446 §6).
            Self::Tls => vec![0x15, 3, 1, 0, 2, 2, 40],
        }
    }
}

impl std::fmt::Display for Spoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Socks4 => "SOCKS4",
            Self::Socks5 => "SOCKS5",
            Self::Tls => "TLS",
        })
    }
}
