//! What this node, as the exit, connects to: whatever its routes let it, but addresses that are not the public's, and its own,
//! only where `[exit] allow` names them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::transparent::own_addresses;
use ekiden_relay_proto::{Failure, FailureCode, Target};

use crate::config::Config;
use crate::route::ExitRules;

/// How long this host's addresses are believed to stay.
const STAY: Duration = Duration::from_secs(1);

/// Whose choice a destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// A client's or another node's.
    Client,
    /// This node's configuration, or that of the hosts whose connections pass through it. Only routes refuse it.
    Operator,
}

/// What binds an exit that connects to one destination.
pub struct Policy<'a> {
    rules: ExitRules<'a>,
    config: &'a Config,
    own: &'a OwnAddresses,
    /// Whether its addresses may be of any kind.
    any: bool,
}

/// Why an exit does not connect to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A route says so.
    Route,
    /// It is of this kind.
    Kind(&'static str),
}

/// This host's addresses, as they were a moment ago.
#[derive(Debug, Default)]
pub struct OwnAddresses(Mutex<Option<(Instant, Vec<IpAddr>)>>);

impl<'a> Policy<'a> {
    /// For `target`.
    ///
    /// # Errors
    /// The name itself is refused, whatever its addresses.
    pub fn new(config: &'a Config, own: &'a OwnAddresses, target: &Target, choice: Choice) -> Result<Self, Failure> {
        let Some(rules) = config.routes.exit_rules(target) else { return Err(Refusal::Route.of(target)) };
        let any = choice == Choice::Operator || config.exit.allow.iter().any(|pattern| pattern.matches(target));
        Ok(Self { rules, config, own, any })
    }

    /// Why not to connect to `address`; `None`: nothing speaks against it.
    pub fn refusal(&self, address: SocketAddr) -> Option<Refusal> {
        if self.rules.refuses(address) {
            return Some(Refusal::Route);
        }
        if self.any {
            return None;
        }
        let kind =
            special(address.ip()).or_else(|| self.own.contain(address.ip()).then_some("an address of its own"))?;
        let target = address.into();
        let allowed = self.config.exit.allow.iter().any(|pattern| pattern.matches(&target));
        (!allowed).then_some(Refusal::Kind(kind))
    }
}

impl Refusal {
    /// What the one who asked for `target` is told.
    pub fn of(self, target: &Target) -> Failure {
        match self {
            Self::Route => Failure::new(FailureCode::Forbidden, format_args!("a route refuses {target}")),
            Self::Kind(kind) => {
                let text =
                    format_args!("the exit does not connect to {kind} unless its [exit] allow says so: {target}");
                Failure::new(FailureCode::Forbidden, text)
            }
        }
    }
}

impl OwnAddresses {
    /// Whether `ip` is one of this host's.
    fn contain(&self, ip: IpAddr) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, addresses) = match known.take().filter(|(since, _)| since.elapsed() < STAY) {
            Some(fresh) => known.insert(fresh),
            // A kernel that does not say is not the one who should keep the node from its work.
            None => known.insert((Instant::now(), own_addresses().unwrap_or_default())),
        };
        addresses.contains(&ip.to_canonical())
    }
}

/// What kind of address it is, if it is not one of the public's (the registries of special-purpose addresses, RFC 6890).
fn special(ip: IpAddr) -> Option<&'static str> {
    match ip.to_canonical() {
        IpAddr::V4(ip) => special_v4(ip),
        IpAddr::V6(ip) => special_v6(ip),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, ..] = ip.octets();
    Some(match (a, b) {
        // Which Linux takes for itself.
        (0, _) => "an address of this network",
        (127, _) => "a loopback address",
        (10, _) | (172, 16..=31) | (192, 168) => "a private address",
        (100, 64..=127) => "an address behind a carrier's NAT",
        (169, 254) => "a link-local address",
        (224..=239, _) => "a multicast address",
        (240.., _) => "a reserved address",
        _ => return None,
    })
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let embedded = |high: u16, low: u16| special_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an address of this network"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        // IPv4 addresses in IPv6: RFC 4291 section 2.5.5.1, RFC 6052 section 2.1, RFC 3056 section 2.
        [0, 0, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        // A translator's own (RFC 8215).
        [0x64, 0xff9b, 1, ..] | [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_told_from_the_publics() {
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.255",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "fc00::1",
            "fdff::1",
            "ff02::1",
        ] {
            assert!(special(ip.parse().unwrap()).is_some(), "{ip}");
        }
        for ip in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "126.0.0.1",
            "128.0.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "192.0.2.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.0.1",
            "198.51.100.7",
            "223.255.255.255",
            "2001:db8::1",
            "2606:4700::1111",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "::ffff:1.1.1.1",
            "::1.1.1.1",
        ] {
            assert_eq!(special(ip.parse().unwrap()), None, "{ip}");
        }
    }

    #[test]
    fn own_addresses_are_known_in_either_form() {
        let own = OwnAddresses::default();
        assert!(own.contain("127.0.0.1".parse().unwrap()) && own.contain("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!own.contain("192.0.2.77".parse().unwrap()));
    }
}
