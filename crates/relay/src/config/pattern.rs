//! A set of destinations, as people write it.

use std::fmt;
use std::net::IpAddr;

use ekiden_relay_proto::{Host, Target};
use ekiden_units::{AddressError, HostPort, NetworkError, network, without_dot};
use ipnet::{IpNet, Ipv4Net};

use crate::config::address::embedded_v4;

/// A set of destinations: `10.0.0.0/8`, `192.0.2.1`, `.example.jp` (the domain and all below it),
/// `example.org` (that name), `*` (all); each optionally with `:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    hosts: Hosts,
    port: Option<u16>,
}

/// The hosts of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hosts {
    All,
    Net(IpNet),
    /// A domain and all below it.
    Suffix(String),
    Name(String),
}

impl Pattern {
    /// Reads a pattern. The error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not a destination: use a network (10.0.0.0/8), an address, a domain (.example.jp), a name or *, with or without :port ([2001:db8::/32]:80)"
            )
        };
        if let Some(domain) = text.strip_prefix("*.") {
            return Err(format!("'{text}' is not a destination: write '.{domain}' for a domain and all below it"));
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(format!("'{text}' is not a destination: write the host alone, without '{scheme}://'"));
        }
        // An IPv6 address whose last number may be a port: it would refuse, or allow, another host than was meant.
        if let Err(error @ AddressError::Ambiguous { .. }) = HostPort::optional(text) {
            return Err(error.to_string());
        }
        let (hosts, port) = match text.rsplit_once(':') {
            Some((hosts, port)) if !hosts.contains(':') || hosts.ends_with(']') => (hosts, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            Some(port) => {
                let number = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
                let wrong = || {
                    format!(
                        "'{text}' is not a destination: '{port}' is not one port from 1 to 65535; all ports are meant without"
                    )
                };
                Some(number.filter(|&number| number != 0u16).ok_or_else(wrong)?)
            }
            None => None,
        };
        let bare = hosts.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(hosts);
        let hosts = if hosts == "*" {
            Hosts::All
        } else if bare.contains('/') {
            Hosts::Net(canonical(network(bare).map_err(|error| match error {
                NetworkError::Network(_) => wrong(),
                NetworkError::HostBits(_) | NetworkError::Prefix { .. } => error.to_string(),
            })?))
        } else if let Some(domain) = hosts.strip_prefix('.') {
            match Host::parse(domain).map_err(|_| wrong())? {
                Host::Name(name) => Hosts::Suffix(without_dot(&name).into()),
                Host::Ip(_) => return Err(wrong()),
            }
        } else {
            match Host::parse(hosts).map_err(|_| wrong())? {
                Host::Name(name) => Hosts::Name(without_dot(&name).into()),
                Host::Ip(ip) => Hosts::Net(ip.to_canonical().into()),
            }
        };
        Ok(Self { hosts, port })
    }

    /// The network (`None`: all addresses) and the port (`None`: all ports). `None` if the pattern is a name or domain.
    pub fn addresses(&self) -> Option<(Option<IpNet>, Option<u16>)> {
        match self.hosts {
            Hosts::All => Some((None, self.port)),
            Hosts::Net(net) => Some((Some(net), self.port)),
            Hosts::Name(_) | Hosts::Suffix(_) => None,
        }
    }

    /// Its hosts, and its port (`None`: all ports).
    pub(super) fn parts(&self) -> (&Hosts, Option<u16>) {
        (&self.hosts, self.port)
    }

    /// Whether it is for all hosts, at all ports or at one.
    pub fn is_for_all_hosts(&self) -> bool {
        self.hosts == Hosts::All
    }

    /// How narrow the set is: of two that match a destination, the greater one is meant.
    pub fn specificity(&self) -> (u8, usize, bool) {
        let (kind, length) = match &self.hosts {
            Hosts::All => (0, 0),
            Hosts::Net(net) => (1, usize::from(net.prefix_len())),
            Hosts::Suffix(domain) => (1, domain.len()),
            Hosts::Name(_) => (2, 0),
        };
        (kind, length, self.port.is_some())
    }

    /// Whether `target` is in the set.
    pub fn matches(&self, target: &Target) -> bool {
        if self.port.is_some_and(|port| port != target.port) {
            return false;
        }
        match (&self.hosts, &target.host) {
            (Hosts::All, _) => true,
            // An IPv4 network also means its addresses written as IPv4-mapped IPv6.
            (Hosts::Net(net), Host::Ip(ip)) => net.contains(&ip.to_canonical()) || net.contains(ip),
            (Hosts::Name(name), Host::Name(host)) => name == without_dot(host),
            (Hosts::Suffix(domain), Host::Name(host)) => {
                let rest = without_dot(host).strip_suffix(domain.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            _ => false,
        }
    }

    /// Whether all that is in `other` is in this set too.
    pub fn covers(&self, other: &Self) -> bool {
        if self.port.is_some() && self.port != other.port {
            return false;
        }
        match (&self.hosts, &other.hosts) {
            (Hosts::All, _) => true,
            (Hosts::Net(net), Hosts::Net(other)) => net.contains(other),
            (Hosts::Suffix(domain), Hosts::Suffix(name) | Hosts::Name(name)) => {
                name.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Hosts::Name(name), Hosts::Name(other)) => name == other,
            _ => false,
        }
    }

    /// Whether `target` is in the set, or an IPv6 address by which packets may reach an IPv4 address in it.
    pub fn reaches(&self, target: &Target) -> bool {
        if self.matches(target) {
            return true;
        }
        let Host::Ip(ip) = target.host else { return false };
        embedded_v4(ip).is_some_and(|v4| self.matches(&Target { host: Host::Ip(v4.into()), port: target.port }))
    }
}

/// Turns a network of IPv4-mapped addresses into the IPv4 network that it means.
fn canonical(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
        (IpAddr::V4(v4), Some(length)) if net.addr().is_ipv6() => Ipv4Net::new(v4, length).map_or(net, IpNet::from),
        _ => net,
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.hosts, self.port) {
            (Hosts::All, _) => f.write_str("*")?,
            (Hosts::Net(net @ IpNet::V6(_)), Some(_)) => write!(f, "[{net}]")?,
            (Hosts::Net(net), _) => write!(f, "{net}")?,
            (Hosts::Suffix(domain), _) => write!(f, ".{domain}")?,
            (Hosts::Name(name), _) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_is_narrower() {
        let covers = |a: &str, b: &str| Pattern::parse(a).unwrap().covers(&Pattern::parse(b).unwrap());
        for (wide, narrow) in [
            ("*", "10.0.0.0/8"),
            ("10.0.0.0/8", "10.1.0.0/16"),
            ("10.0.0.0/8", "10.0.0.1:80"),
            (".jp", "a.jp"),
            ("a.jp", "a.jp"),
        ] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
            assert!(wide == narrow || !covers(narrow, wide), "{narrow} {wide}");
        }
        for (one, other) in
            [("10.0.0.0/8:80", "10.0.0.1"), (".jp", "ajp"), (".jp", "10.0.0.1"), ("10.0.0.0/8", "11.0.0.0/8")]
        {
            assert!(!covers(one, other), "{one} {other}");
        }
    }
}
