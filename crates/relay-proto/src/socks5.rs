//! SOCKS5, server side: RFC 1928 with the CONNECT command, RFC 1929 user and password.
//!
//! [`Server`] is fed what has arrived so far and says what to send, or what was asked for. It keeps no bytes
//! of its own: the caller keeps what was not consumed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::mixup::{Guess, Spoken, guess};
use crate::target::{Host, Target};

/// The most bytes any one message takes: RFC 1929's, 1 + 1 + 255 + 1 + 255.
pub const MAX_MESSAGE: usize = 513;

/// Where the conversation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    Password,
    Request,
    Over,
}

/// One client's handshake.
#[derive(Debug)]
pub struct Server {
    state: State,
    needs_password: bool,
}

/// What follows from the bytes given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet: give the same bytes again with more behind them.
    More,
    /// Drop `consumed` bytes and send `reply`.
    Reply {
        /// Bytes of the input that are done with.
        consumed: usize,
        /// What to send.
        reply: Vec<u8>,
    },
    /// Drop `consumed` bytes, check the password and go on with [`Server::password`].
    Login {
        /// Bytes of the input that are done with.
        consumed: usize,
        /// The user's name as sent.
        user: Vec<u8>,
        /// The password as sent.
        password: Vec<u8>,
    },
    /// Drop `consumed` bytes and connect; then answer with [`reply`].
    Connect {
        /// Bytes of the input that are done with; what follows is payload.
        consumed: usize,
        /// Where to.
        target: Target,
    },
    /// Send `reply`, if any, and close.
    Refuse {
        /// What to send.
        reply: Vec<u8>,
        /// For the log.
        reason: &'static str,
    },
}

impl Server {
    /// A conversation about to begin. With `needs_password`, only RFC 1929 is accepted.
    pub fn new(needs_password: bool) -> Self {
        Self { state: State::Greeting, needs_password }
    }

    /// Looks at all bytes that have arrived and were not consumed.
    pub fn step(&mut self, input: &[u8]) -> Step {
        let step = match self.state {
            State::Greeting => self.greeting(input),
            State::Password => login(input),
            State::Request => request(input),
            State::Over => Some(refuse(Vec::new(), "data after the end of the handshake")),
        };
        match &step {
            None | Some(Step::Login { .. }) => {}
            Some(Step::Reply { .. }) if self.needs_password => self.state = State::Password,
            Some(Step::Reply { .. }) => self.state = State::Request,
            Some(_) => self.state = State::Over,
        }
        step.unwrap_or(Step::More)
    }

    /// The verdict on a [`Step::Login`]: what to send, and whether to go on.
    pub fn password(&mut self, right: bool) -> ([u8; 2], bool) {
        self.state = if right { State::Request } else { State::Over };
        ([1, u8::from(!right)], right)
    }

    /// RFC 1928 §3.
    fn greeting(&self, input: &[u8]) -> Option<Step> {
        let rest = match guess(input) {
            Guess::More => return None,
            Guess::Speaks(Spoken::Socks5) => input.get(1..)?,
            Guess::Speaks(other) => {
                let reason = match other {
                    Spoken::Http => "it speaks HTTP, not SOCKS5",
                    Spoken::Tls => "it speaks TLS, not SOCKS5",
                    _ => "it speaks SOCKS4, not SOCKS5 (kind = \"mixed\" takes both)",
                };
                return Some(refuse(other.refusal(Spoken::Socks5), reason));
            }
            Guess::Unknown => return Some(refuse(Vec::new(), "it does not speak SOCKS5")),
        };
        let (count, methods) = rest.split_first()?;
        let methods = methods.get(..usize::from(*count))?;
        let wanted = if self.needs_password { 2 } else { 0 };
        if !methods.contains(&wanted) {
            let reason = match self.needs_password {
                true => "it offers no password, which this listener wants of its users",
                false => "it offers no access without a password, and this listener has no users",
            };
            return Some(refuse(vec![5, 0xff], reason));
        }
        Some(Step::Reply { consumed: 2 + methods.len(), reply: vec![5, wanted] })
    }
}

/// The reply to a [`Step::Connect`] (RFC 1928 §6): 0 and the bound address, or
/// [`crate::FailureCode::socks_reply`].
pub fn reply(code: u8, bound: Option<SocketAddr>) -> Vec<u8> {
    let bound = bound.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    let mut out = vec![5, code, 0];
    match bound.ip() {
        IpAddr::V4(ip) => {
            out.push(1);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
    }
    out.extend(bound.port().to_be_bytes());
    out
}

/// RFC 1929 §2.
fn login(input: &[u8]) -> Option<Step> {
    let [version, rest @ ..] = input else { return None };
    if *version != 1 {
        return Some(refuse(vec![1, 1], "not RFC 1929 version 1"));
    }
    let (user, rest) = counted(rest)?;
    let (password, _) = counted(rest)?;
    let consumed = 3 + user.len() + password.len();
    Some(Step::Login { consumed, user: user.to_vec(), password: password.to_vec() })
}

/// RFC 1928 §4.
fn request(input: &[u8]) -> Option<Step> {
    let [version, rest @ ..] = input else { return None };
    if *version != 5 {
        return Some(refuse(reply(1, None), "not a SOCKS5 request"));
    }
    let [command, _reserved, kind, rest @ ..] = rest else { return None };
    let (address, rest) = match kind {
        1 => rest.split_at_checked(4)?,
        4 => rest.split_at_checked(16)?,
        3 => counted(rest)?,
        _ => return Some(refuse(reply(8, None), "unknown address type")),
    };
    let [high, low, rest @ ..] = rest else { return None };
    if *command != 1 {
        return Some(refuse(reply(7, None), "only the CONNECT command is supported"));
    }
    let host = match kind {
        1 => <[u8; 4]>::try_from(address).ok().map(|ip| Host::Ip(Ipv4Addr::from(ip).into())),
        4 => <[u8; 16]>::try_from(address).ok().map(|ip| Host::Ip(Ipv6Addr::from(ip).into())),
        _ => std::str::from_utf8(address).ok().and_then(|name| Host::parse(name).ok()),
    };
    let port = u16::from_be_bytes([*high, *low]);
    match host {
        Some(host) if port != 0 => {
            Some(Step::Connect { consumed: input.len() - rest.len(), target: Target { host, port } })
        }
        _ => Some(refuse(reply(1, None), "not a destination")),
    }
}

/// A length octet and as many bytes.
fn counted(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = input.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

fn refuse(reply: Vec<u8>, reason: &'static str) -> Step {
    Step::Refuse { reply, reason }
}
