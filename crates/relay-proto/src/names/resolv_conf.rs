//! resolv.conf: the name servers, and how short names are completed (resolv.conf(5)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ekiden_units::without_dot;

use super::{Odd, lines, shown, words};

/// What a resolv.conf says, within the bounds of glibc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvConf {
    /// At most three. If none is named, this host's name server is used, as resolv.conf(5) says.
    pub servers: Vec<NameServer>,
    /// The last `search` or `domain`: domains without a dot at either end, the root as the empty text. `None` if there is none:
    /// the domain is then that of the host's own name.
    pub search: Option<Vec<String>>,
    /// A name with at least this number of dots is first asked for as it is; 0 to 15.
    pub ndots: usize,
    /// The timeout of a server's answer; 1 to 30 s.
    pub timeout_s: u64,
    /// How often the servers are asked; 1 to 5.
    pub attempts: usize,
    /// Whether the servers take turns.
    pub rotate: bool,
    /// Whether they are asked by TCP alone.
    pub tcp_only: bool,
    /// Whether they may send long answers by UDP (EDNS, RFC 6891).
    pub edns0: bool,
    /// Whether they are asked for IPv4 addresses alone.
    pub no_aaaa: bool,
    /// Whether a name without a dot is not asked for as it is, if there is a search list.
    pub no_tld_query: bool,
}

/// A name server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameServer {
    /// The address.
    pub ip: IpAddr,
    /// The interface on which it is valid, by name or number (RFC 4007 section 11).
    pub zone: Option<String>,
}

/// The most servers, dots, seconds and attempts: MAXNS, RES_MAXNDOTS, RES_MAXRETRANS and RES_MAXRETRY of glibc's `resolv.h`.
const SERVERS_MOST: usize = 3;
const NDOTS_MOST: usize = 15;
const TIMEOUT_MOST_S: u64 = 30;
const ATTEMPTS_MOST: usize = 5;

/// The longest domain and the longest part of it (RFC 1035 section 2.3.4), in bytes as they are written.
const DOMAIN_MOST: usize = 253;
const LABEL_MOST: usize = 63;

impl Default for ResolvConf {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            search: None,
            ndots: 1,
            timeout_s: 5,
            attempts: 2,
            rotate: false,
            tcp_only: false,
            edns0: false,
            no_aaaa: false,
            no_tld_query: false,
        }
    }
}

impl ResolvConf {
    /// Reads a resolv.conf; also returns what was left out. Unknown options and keywords are ignored.
    pub fn parse(bytes: &[u8]) -> (Self, Vec<Odd>) {
        let (mut conf, mut odd) = (Self::default(), Vec::new());
        for (line, text) in lines(bytes) {
            let mut said = |reason: String| odd.push(Odd { line, reason });
            let mut words = words(text).take_while(|word| !word.starts_with(b"#") && !word.starts_with(b";"));
            let Some(keyword) = words.next() else { continue };
            let values: Vec<&[u8]> = words.collect();
            match (keyword, &values[..]) {
                (b"nameserver" | b"domain", []) => said(format!("'{}' has no value", shown(keyword))),
                (b"search" | b"options", []) => {}
                (b"nameserver" | b"domain" | b"search" | b"options", _) if !text.starts_with(keyword) => {
                    said(format!("'{}' counts only at the beginning of its line", shown(keyword)));
                }
                (b"nameserver", [server, ..]) => match NameServer::parse(server) {
                    Some(_) if conf.servers.len() == SERVERS_MOST => {
                        said(format!("only the first {SERVERS_MOST} name servers count"));
                    }
                    Some(server) => conf.servers.push(server),
                    None => said(format!("'{}' is not the address of a name server", shown(server))),
                },
                (b"domain", [domain, ..]) => conf.search = Some(domains(&[domain], said)),
                (b"search", all) => conf.search = Some(domains(all, said)),
                (b"options", all) => all.iter().filter_map(|word| conf.option(word)).for_each(said),
                // Of other systems, or of no meaning for name servers.
                (b"sortlist" | b"lookup" | b"family", _) => {}
                _ => said(format!("'{}' is no keyword here", shown(keyword))),
            }
        }
        if conf.servers.is_empty() {
            conf.servers.push(NameServer { ip: Ipv4Addr::LOCALHOST.into(), zone: None });
        }
        (conf, odd)
    }

    /// Takes an option, or says what is wrong with it.
    fn option(&mut self, word: &[u8]) -> Option<String> {
        let (name, value) = match word.iter().position(|&byte| byte == b':') {
            Some(colon) => (&word[..colon], number(&word[colon + 1..])),
            None => (word, None),
        };
        match (name, value) {
            (b"ndots", Some(dots)) => self.ndots = dots.min(NDOTS_MOST as u64) as usize,
            (b"timeout", Some(seconds)) => self.timeout_s = seconds.clamp(1, TIMEOUT_MOST_S),
            (b"attempts", Some(times)) => self.attempts = times.clamp(1, ATTEMPTS_MOST as u64) as usize,
            (b"ndots" | b"timeout" | b"attempts", None) => {
                return Some(format!("'{}' needs a number, such as ndots:1", shown(word)));
            }
            (b"rotate", _) => self.rotate = true,
            (b"use-vc" | b"usevc", _) => self.tcp_only = true,
            (b"edns0", _) => self.edns0 = true,
            (b"no-aaaa", _) => self.no_aaaa = true,
            (b"no-tld-query" | b"no_tld_query", _) => self.no_tld_query = true,
            (b"single-request", _) => return Some("'single-request' is not followed".into()),
            _ => {}
        }
        None
    }
}

impl NameServer {
    fn parse(word: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(word).ok()?;
        let (ip, zone) = match text.split_once('%') {
            Some((ip, zone)) if !zone.is_empty() => (ip.parse::<Ipv6Addr>().ok()?.into(), Some(zone.to_owned())),
            Some(_) => return None,
            None => (ipv4(text).map(IpAddr::V4).or_else(|| text.parse().ok())?, None),
        };
        // Linux connects to this host for this address.
        let ip = match ip {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Some(Self { ip, zone })
    }
}

/// An IPv4 address in any form of inet_aton(3), which glibc reads name servers with: one to four numbers, each decimal, octal with a leading 0
/// or hexadecimal with 0x. The last one fills the bytes that are left.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let part = |text: &str| {
        let (digits, radix) = match text.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&text[2..], 16),
            [b'0', _, ..] => (&text[1..], 8),
            _ => (text, 10),
        };
        // No sign, which the number parser accepts.
        u32::from_str_radix(digits, radix).ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    let parts = text.split('.').map(part).collect::<Option<Vec<_>>>()?;
    let (last, bytes) = parts.split_last().filter(|(_, bytes)| bytes.len() < 4)?;
    let before = bytes
        .iter()
        .zip(0..)
        .try_fold(0, |ip, (byte, at)| Some(ip | u32::from(u8::try_from(*byte).ok()?) << (24 - 8 * at)))?;
    let is_room = u64::from(*last) < 1 << (32 - 8 * bytes.len());
    is_room.then(|| Ipv4Addr::from(before | last))
}

/// A number of any length; too large a one is as good as the largest.
fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).map(|number| number.unwrap_or(u64::MAX))
}

/// The domains of a search list. `said` gets a message for each text that is none.
fn domains(words: &[&[u8]], mut said: impl FnMut(String)) -> Vec<String> {
    let domain = |word: &&[u8]| {
        let domain = domain(word);
        if domain.is_none() {
            said(format!("'{}' is not a domain", shown(word)));
        }
        domain
    };
    words.iter().filter_map(domain).collect()
}

fn domain(word: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(word).ok()?;
    // glibc takes a leading dot for the one that joins the domain to a name.
    let text = text.strip_prefix('.').unwrap_or(text);
    let text = without_dot(text);
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=LABEL_MOST).contains(&label.len()) && label.bytes().all(allowed)
    };
    let is_domain = text.is_empty() || text.len() <= DOMAIN_MOST && text.split('.').all(is_label);
    is_domain.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: impl AsRef<[u8]>) -> ResolvConf {
        ResolvConf::parse(text.as_ref()).0
    }

    fn odd(text: impl AsRef<[u8]>) -> Vec<String> {
        ResolvConf::parse(text.as_ref()).1.iter().map(ToString::to_string).collect()
    }

    fn server(ip: &str) -> NameServer {
        NameServer { ip: ip.parse().unwrap(), zone: None }
    }

    #[test]
    fn a_line_without_a_meaning_is_told() {
        for line in ["garbage line", "NAMESERVER 192.0.2.1", "nameserver", "nameserver # 192.0.2.1", "domain"] {
            assert_eq!(odd(line).len(), 1, "{line}");
        }
        for line in ["", "search", "options", "sortlist 10.0.0.0", "lookup file bind", "# x", "; x"] {
            assert_eq!(odd(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn an_odd_line_costs_that_line_alone() {
        let long = "a".repeat(64);
        for (line, search) in [
            ("search .home", &["home"][..]),
            ("search a.example . b.example.", &["a.example", "", "b.example"]),
            (&format!("search {long} b"), &["b"]),
            ("search a..b b", &["b"]),
            ("search b # c d", &["b"]),
            ("search a\nsearch b\tc", &["b", "c"]),
            ("search a\ndomain b c", &["b"]),
            ("search a\nsearch \nsearch", &["a"]),
            ("search a\n search b", &["a"]),
            (&format!("search {long}"), &[]),
        ] {
            let conf = parse(format!("nameserver 192.0.2.1\n{line}\nnameserver 192.0.2.2\n"));
            assert_eq!(conf.search.unwrap(), search, "{line}");
            assert_eq!(conf.servers, [server("192.0.2.1"), server("192.0.2.2")], "{line}");
        }
        assert_eq!(odd(format!("\nsearch {long} b")), [format!("line 2: '{long}' is not a domain")]);
        assert_eq!(odd(" search b"), ["line 1: 'search' counts only at the beginning of its line"]);
        assert_eq!(parse("").search, None);
    }

    #[test]
    fn name_servers_are_taken_as_they_are_written() {
        let text = b"\xef\xbb\xbfnameserver 192.0.2.1 x\r\nnameserver\t::1\r\nnameserver 192.0.2.256\nnameserver\n\
                     #nameserver 192.0.2.4\n; nameserver 192.0.2.5\nnameserver fe80::1%eth0\n# caf\xe9\nnameserver 192.0.2.6";
        let zoned = NameServer { ip: "fe80::1".parse().unwrap(), zone: Some("eth0".into()) };
        assert_eq!(parse(text).servers, [server("192.0.2.1"), server("::1"), zoned]);
        assert_eq!(
            odd(text),
            [
                "line 3: '192.0.2.256' is not the address of a name server",
                "line 4: 'nameserver' has no value",
                "line 9: only the first 3 name servers count"
            ]
        );
        assert_eq!(odd("nameserver fe80::1%\nnameserver 127.0.0.1%lo").len(), 2);
    }

    #[test]
    fn an_address_of_a_name_server_has_any_form_of_inet_aton() {
        for (text, ip) in [
            ("127.1", "127.0.0.1"),
            ("127.0.1", "127.0.0.1"),
            ("10.1.258", "10.1.1.2"),
            ("10.65537", "10.1.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0X7F000001", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("0", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::", "::1"),
            ("255.255.255.255", "255.255.255.255"),
        ] {
            assert_eq!(parse(format!("nameserver {text}")).servers, [server(ip)], "{text}");
        }
        for text in [
            "127.",
            ".1",
            "1.2.3.4.5",
            "1.2.3.256",
            "256.1",
            "1.16777216",
            "4294967296",
            "08.1",
            "0x.1",
            "0x",
            "+1",
            "1.-1",
            "1.+1",
            "0x+1",
            "a",
        ] {
            assert_eq!(odd(format!("nameserver {text}")).len(), 1, "{text}");
        }
    }

    #[test]
    fn options_are_within_the_bounds_of_glibc() {
        let said = |text: &str| {
            let conf = parse(format!("options {text}"));
            (conf.ndots, conf.timeout_s, conf.attempts)
        };
        for (text, taken) in [
            ("", (1, 5, 2)),
            ("ndots:5 timeout:2 attempts:4", (5, 2, 4)),
            ("timeout:0 attempts:0 ndots:0", (0, 1, 1)),
            ("ndots:99 timeout:99 attempts:99", (15, 30, 5)),
            ("ndots:99999999999999999999999 timeout:1", (15, 1, 2)),
            ("ndots:five timeout:-1 attempts:", (1, 5, 2)),
            ("ndots:2\noptions ndots:3 trust-ad unheard-of:7", (3, 5, 2)),
        ] {
            assert_eq!(said(text), taken, "{text}");
        }
        assert_eq!(odd("options ndots:five edns0"), ["line 1: 'ndots:five' needs a number, such as ndots:1"]);
        assert_eq!(odd("options unheard-of\nsortlist 192.0.2.0"), [""; 0]);
        assert_eq!(odd("options single-request single-request-reopen"), ["line 1: 'single-request' is not followed"]);
        let conf = parse("options rotate edns0 use-vc no-aaaa no-tld-query");
        assert!(conf.rotate && conf.edns0 && conf.tcp_only && conf.no_aaaa && conf.no_tld_query);
    }

    proptest! {
        #[test]
        fn no_line_takes_another_with_it(
            before in proptest::collection::vec(any::<u8>(), 0..200),
            after in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let file = [&before[..], b"\nnameserver 192.0.2.7\noptions timeout:0\n", &after[..]].concat();
            let (conf, odd) = ResolvConf::parse(&file);
            prop_assert!(conf.servers.contains(&server("192.0.2.7")) || conf.servers.len() == SERVERS_MOST);
            prop_assert!((1..=TIMEOUT_MOST_S).contains(&conf.timeout_s));
            prop_assert!((1..=ATTEMPTS_MOST).contains(&conf.attempts));
            prop_assert!(conf.ndots <= NDOTS_MOST);
            prop_assert!(conf.search.iter().flatten().all(|domain| domain.len() <= DOMAIN_MOST));
            prop_assert!(odd.iter().all(|odd| !odd.reason.contains(char::is_control)));
        }
    }
}
