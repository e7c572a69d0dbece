//! SOCKS4 and 4a, server side: the CONNECT command. A name is asked for by an address 0.0.0.x (4a). There is no password.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::socks5::Step;
use crate::target::{Host, Target};

/// The most bytes of a user's or host's name.
const NAME_MOST: usize = 255;
/// The most bytes that a request takes: both names end with a zero.
pub const MAX_REQUEST: usize = 8 + 2 * (NAME_MOST + 1);

/// Looks at all bytes of a client that have arrived. It has no [`Step::Reply`] and no [`Step::Login`].
pub fn step(input: &[u8]) -> Step {
    request(input).unwrap_or(Step::More)
}

/// The answer to a request: granted with the bound address, or refused.
pub fn reply(is_granted: bool, bound: Option<SocketAddr>) -> [u8; 8] {
    let bound = match bound {
        Some(SocketAddr::V4(bound)) => bound,
        _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
    };
    let [high, low] = bound.port().to_be_bytes();
    let [a, b, c, d] = bound.ip().octets();
    [0, if is_granted { 0x5a } else { 0x5b }, high, low, a, b, c, d]
}

/// Refuses a client that is not known: there is no password to give.
pub fn without_password() -> Step {
    refuse("SOCKS4 has no password, and this listener has users")
}

fn request(input: &[u8]) -> Option<Step> {
    let [version, rest @ ..] = input else { return None };
    if *version != 4 {
        return Some(refuse("not a SOCKS4 request"));
    }
    let [command, high, low, rest @ ..] = rest else { return None };
    if *command != 1 {
        return Some(refuse("only the CONNECT command is supported"));
    }
    let (address, rest) = rest.split_first_chunk::<4>()?;
    let user = match ended(rest) {
        Ended::Text(user) => user,
        Ended::More => return None,
        Ended::TooLong => return Some(refuse("a user's name of more than 255 bytes")),
    };
    let rest = &rest[user.len() + 1..];
    let (host, used) = match address {
        [0, 0, 0, last] if *last != 0 => match ended(rest) {
            Ended::Text(name) => {
                (std::str::from_utf8(name).ok().and_then(|name| Host::parse(name).ok()), name.len() + 1)
            }
            Ended::More => return None,
            Ended::TooLong => return Some(refuse("a host's name of more than 255 bytes")),
        },
        address => (Some(Host::Ip(IpAddr::from(*address))), 0),
    };
    let port = u16::from_be_bytes([*high, *low]);
    Some(match host {
        Some(host) if port != 0 => {
            Step::Connect { consumed: input.len() - rest.len() + used, target: Target { host, port } }
        }
        _ => refuse("not a destination"),
    })
}

enum Ended<'a> {
    Text(&'a [u8]),
    More,
    TooLong,
}

/// What stands before the first zero.
fn ended(input: &[u8]) -> Ended<'_> {
    match input.iter().take(NAME_MOST + 1).position(|byte| *byte == 0) {
        Some(length) => Ended::Text(&input[..length]),
        None if input.len() > NAME_MOST => Ended::TooLong,
        None => Ended::More,
    }
}

fn refuse(reason: &'static str) -> Step {
    Step::Refuse { reply: reply(false, None).to_vec(), reason }
}
