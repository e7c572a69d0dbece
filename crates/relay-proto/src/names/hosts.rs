//! The hosts file: an address and its names in each line (hosts(5)).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ekiden_units::without_dot;

use super::{Odd, lines, shown, words};
use crate::target::Host;

/// The names of a hosts file, and their addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    addresses: BTreeMap<Box<str>, Vec<IpAddr>>,
}

impl Hosts {
    /// Reads a hosts file, and what of it was left out.
    pub fn parse(bytes: &[u8]) -> (Self, Vec<Odd>) {
        let (mut hosts, mut odd) = (Self::default(), Vec::new());
        for (line, text) in lines(bytes) {
            let text = text.split(|&byte| byte == b'#').next().unwrap_or_default();
            let mut words = words(text);
            let Some(first) = words.next() else { continue };
            let Some(ip) = std::str::from_utf8(first).ok().and_then(|word| word.parse().ok()) else {
                odd.push(Odd { line, reason: format!("'{}' is not an IP address", shown(first)) });
                continue;
            };
            for word in words {
                match std::str::from_utf8(word).ok().and_then(|word| Host::parse(word).ok()) {
                    Some(Host::Name(name)) => hosts.add(&name, ip),
                    _ => odd.push(Odd { line, reason: format!("'{}' is not a host name", shown(word)) }),
                }
            }
        }
        (hosts, odd)
    }

    /// The addresses of a name: those of IPv6 first, each family in the file's order.
    pub fn addresses(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        let name = name.to_ascii_lowercase();
        let found = self.addresses.get(without_dot(&name)).map_or(&[][..], Vec::as_slice);
        let of = |v6: bool| found.iter().copied().filter(move |ip| ip.is_ipv6() == v6);
        of(true).chain(of(false))
    }

    fn add(&mut self, name: &str, ip: IpAddr) {
        let all = self.addresses.entry(without_dot(name).into()).or_default();
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(hosts: &Hosts, name: &str) -> Vec<String> {
        hosts.addresses(name).map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn an_odd_line_costs_that_line_alone() {
        let file = b"\xef\xbb\xbf127.0.0.1\tlocalhost\r\n\
            # caf\xe9\n\
            192.0.2.300 wrong\n\
            \t 192.0.2.7 Web.Example\x0bweb # caf\xe9\n\
            192.0.2.8 caf\xe9 other\n\
            192.0.2.9\n\
            2001:db8::7 web.example.\n\
            fe80::1%eth0 zoned\n\
            192.0.2.10 last";
        let (hosts, odd) = Hosts::parse(file);
        for (name, found) in [
            ("localhost", &["127.0.0.1"][..]),
            ("WEB.example", &["2001:db8::7", "192.0.2.7"]),
            ("web.example.", &["2001:db8::7", "192.0.2.7"]),
            ("web", &["192.0.2.7"]),
            ("other", &["192.0.2.8"]),
            ("last", &["192.0.2.10"]),
            ("wrong", &[]),
            ("", &[]),
        ] {
            assert_eq!(addresses(&hosts, name), found, "{name}");
        }
        let odd: Vec<_> = odd.iter().map(ToString::to_string).collect();
        assert_eq!(
            odd,
            [
                "line 3: '192.0.2.300' is not an IP address",
                "line 5: 'caf\u{fffd}' is not a host name",
                "line 8: 'fe80::1%eth0' is not an IP address",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_line_takes_another_with_it(
            before in proptest::collection::vec(any::<u8>(), 0..200),
            after in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let file = [&before[..], b"\n192.0.2.7 the-one\n", &after[..]].concat();
            let (hosts, odd) = Hosts::parse(&file);
            prop_assert!(hosts.addresses("the-one").any(|ip| ip.to_string() == "192.0.2.7"));
            let lines = file.iter().filter(|&&byte| byte == b'\n').count() + 1;
            prop_assert!(odd.iter().all(|odd| (1..=lines).contains(&odd.line)));
            prop_assert!(odd.iter().all(|odd| !odd.reason.contains(char::is_control)));
        }
    }
}
