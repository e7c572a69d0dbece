//! Hosts and ports as people write them: one reader for all commands and files.
//!
//! `HOST` is a name, an IPv4 address, or an IPv6 address with or without brackets, which may have a zone: the interface on
//! which it counts (RFC 4007 section 11). `HOST:PORT` has IPv6 addresses in brackets (RFC 3986 section 3.2.2): without them
//! the meaning of the last number is ambiguous.

mod error;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

pub use error::AddressError;

/// The longest host name, in bytes.
const NAME_MOST: usize = 255;

/// The longest zone, in bytes: the name of an interface.
const ZONE_MOST: usize = 15;

/// What is shown of a text that is no address, in characters.
const SHOWN_MOST: usize = 80;

/// A name without the dot of the root, with which it is the same name (RFC 1034 section 3.1).
pub fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// A host, as somebody has written it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostText {
    /// An address.
    Ip(IpAddr),
    /// An IPv6 address on one interface, by name or number.
    Zoned(Ipv6Addr, String),
    /// A name: 1 to 255 letters, digits, `-`, `_` and `.`, in lower case, not all of them digits, `-` and `.`.
    Name(String),
}

/// A host and a port from 1 to 65535.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host.
    pub host: HostText,
    /// The port.
    pub port: u16,
}

impl HostText {
    /// Reads a host without a port.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::NoHost(String::new()));
        }
        let in_brackets = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(v6) = in_brackets.or(Some(text).filter(|text| text.contains(':'))) {
            return ipv6(v6)?.ok_or_else(|| AddressError::Host(shown(text)));
        }
        if let Ok(v4) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Ip(v4.into()));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name =
            text.len() <= NAME_MOST && text.bytes().all(allowed) && !text.starts_with('.') && !text.contains("..");
        // Every domain at the top has a letter (RFC 1123 section 2.1).
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.'));
        if is_name && is_number {
            return Err(AddressError::Number(shown(text)));
        }
        if is_name { Ok(Self::Name(text.to_ascii_lowercase())) } else { Err(AddressError::Host(shown(text))) }
    }

    /// As the system's resolver takes it: without brackets, with the zone.
    pub fn bare(&self) -> String {
        match self {
            Self::Ip(ip) => ip.to_string(),
            Self::Zoned(ip, zone) => format!("{ip}%{zone}"),
            Self::Name(name) => name.clone(),
        }
    }

    /// The address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Zoned(ip, _) => Some((*ip).into()),
            Self::Name(_) => None,
        }
    }
}

impl HostPort {
    /// Reads a host and a port; the host alone has the port `default`.
    ///
    /// # Errors
    /// As [`HostPort::optional`].
    pub fn with_default(text: &str, default: u16) -> Result<Self, AddressError> {
        let (host, port) = Self::optional(text)?;
        Ok(Self { host, port: port.unwrap_or(default) })
    }

    /// Reads a host, and a port if there is one.
    ///
    /// # Errors
    /// If there is no host, the port is none, or it is an IPv6 address without brackets whose last number may be a port.
    pub fn optional(text: &str) -> Result<(HostText, Option<u16>), AddressError> {
        let (host, port) = split(text)?;
        match other_reading(text).filter(|_| port.is_none()) {
            Some(or) => Err(AddressError::Ambiguous { text: shown(text), or }),
            None => Ok((host, port)),
        }
    }

    /// Reads a host and a port that others are told: an address of one link may be without its zone.
    ///
    /// # Errors
    /// If there is no host or no port, or it is none.
    pub fn as_told(text: &str) -> Result<Self, AddressError> {
        let (host, port) = split(text)?;
        match (port, host) {
            (Some(port), host) => Ok(Self { host, port }),
            (None, _) if text.starts_with('[') || !text.contains(':') => Err(AddressError::NoPort(shown(text))),
            (None, _) => Err(AddressError::Bare { text: shown(text), or: other_reading(text) }),
        }
    }

    /// Itself, unless it is of one link and does not say of which.
    fn with_its_link(self, text: &str) -> Result<Self, AddressError> {
        match self {
            Self { host: HostText::Ip(IpAddr::V6(ip)), port } if ip.is_unicast_link_local() => {
                Err(AddressError::NoZone { text: shown(text), right: format!("[{ip}%INTERFACE]:{port}") })
            }
            _ => Ok(self),
        }
    }

    /// Reads where to listen: an address of this host with its zone, and a port, or 0 for any. A name is no such place.
    ///
    /// # Errors
    /// If it is something else.
    pub fn listening(text: &str) -> Result<(IpAddr, Option<String>, u16), AddressError> {
        if let Some(port) = any_host(text) {
            return Err(AddressError::AnyHost { text: shown(text), port });
        }
        let Self { host, port } = match split_off_any_port(text) {
            Some(host) => Self { host: HostText::parse(host)?, port: 0 }.with_its_link(text)?,
            None => text.parse()?,
        };
        match host {
            HostText::Ip(ip) => Ok((ip, None, port)),
            HostText::Zoned(ip, zone) => Ok((ip.into(), Some(zone), port)),
            HostText::Name(_) => Err(AddressError::Name(shown(text))),
        }
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::as_told(text)?.with_its_link(text)
    }
}

/// The port, if the text has nothing else but what stands for any host elsewhere.
fn any_host(text: &str) -> Option<u16> {
    let port = text.strip_prefix("*:").or(text.strip_prefix(':')).unwrap_or(text);
    port.parse().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The host, if the port is 0.
fn split_off_any_port(text: &str) -> Option<&str> {
    let host = text.strip_suffix(":0")?;
    (host.starts_with('[') && host.ends_with(']') || !host.contains(':')).then_some(host)
}

/// The host, and the port if there is one.
fn split(text: &str) -> Result<(HostText, Option<u16>), AddressError> {
    if let Some((more, rest)) = url(text) {
        let rest = HostText::parse(&rest).map_or(rest, |host| format!("{host}:PORT"));
        return Err(AddressError::Url { text: shown(text), more: shown(more), rest: shown(&rest) });
    }
    let behind = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let colon = text[behind..].rfind(':').map(|colon| behind + colon);
    // Without brackets more than one colon is an IPv6 address's.
    let colon = colon.filter(|colon| behind > 0 || !text[..*colon].contains(':'));
    let Some(colon) = colon else { return Ok((host_of(text, "")?, None)) };
    let (host, port) = (&text[..colon], &text[colon + 1..]);
    if host.is_empty() {
        return Err(AddressError::NoHost(shown(text)));
    }
    let host = host_of(host, &text[colon..])?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(port @ 1..) if is_number => Ok((host, Some(port))),
        _ => Err(AddressError::Port { text: shown(text), port: shown(port) }),
    }
}

/// The host before `port`, which has its colon; or what would be right with that.
fn host_of(text: &str, port: &str) -> Result<HostText, AddressError> {
    let error = match HostText::parse(text) {
        Err(AddressError::UrlZone { right, .. }) => {
            return Err(AddressError::UrlZone { text: shown(text) + &shown(port), right: right + &shown(port) });
        }
        Err(error @ AddressError::Host(_)) => error,
        read => return read,
    };
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    // Without brackets a port is not split off an IPv6 address.
    let right = match inside {
        Some(inside) => HostText::parse(inside).ok().map(|host| format!("{host}{}", shown(port))),
        None => other_reading(text),
    };
    Err(right.map_or(error, |right| AddressError::Brackets { text: shown(text) + &shown(port), right }))
}

/// What of a URL there is that no address has, and what would be one. A length of a prefix is no part of an address either.
fn url(text: &str) -> Option<(&str, String)> {
    let without_path = |text| str::split(text, '/').next().unwrap_or_default().to_owned();
    if let Some((scheme, rest)) = text.split_once("://") {
        return Some((&text[..scheme.len() + 3], without_path(rest)));
    }
    if let Some((user, rest)) = text.split_once('@') {
        return Some((&text[..=user.len()], without_path(rest)));
    }
    let (before, behind) = text.split_at(text.find('/')?);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let length_and_port = behind[1..].split_once(':').filter(|(length, port)| is_number(length) && is_number(port));
    let host = HostText::parse(before).ok();
    Some(match length_and_port.zip(host) {
        Some(((length, port), host)) => (&behind[..=length.len()], format!("{host}:{port}")),
        None => (behind, before.to_owned()),
    })
}

/// What an IPv6 address without brackets would be if its last number were a port.
fn other_reading(text: &str) -> Option<String> {
    let (address, port) = text.rsplit_once(':').filter(|_| !text.starts_with('['))?;
    let is_port = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|_| is_port)?;
    ipv6(address).ok().flatten().map(|_| format!("[{address}]:{port}"))
}

/// The address, if it is one.
fn ipv6(text: &str) -> Result<Option<HostText>, AddressError> {
    let Some((address, zone)) = text.split_once('%') else {
        // An IPv4 address may be written as one of IPv6 (RFC 4291 section 2.5.5.2).
        return Ok(text.parse::<Ipv6Addr>().ok().map(|ip| HostText::Ip(IpAddr::from(ip).to_canonical())));
    };
    let is_zone = |zone: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        (1..=ZONE_MOST).contains(&zone.len()) && zone.bytes().all(allowed)
    };
    let address = address.parse::<Ipv6Addr>().ok();
    let Some((address, zone)) = address.zip(Some(zone).filter(is_zone)) else { return Ok(None) };
    match zone.strip_prefix("25").filter(|name| name.starts_with(|first: char| first.is_ascii_alphabetic())) {
        Some(name) => Err(AddressError::UrlZone { text: shown(text), right: format!("[{address}%{name}]") }),
        None => Ok(Some(HostText::Zoned(address, zone.into()))),
    }
}

/// What somebody has written, fit for a line on a terminal.
fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN_MOST).map(|c| if crate::is_unseen(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN_MOST).is_some() {
        shown.push('…');
    }
    shown
}

impl fmt::Display for HostText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(_)) | Self::Name(_) => f.write_str(&self.bare()),
            Self::Ip(IpAddr::V6(_)) | Self::Zoned(..) => write!(f, "[{}]", self.bare()),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What each text is with a port, where one may be left out (7), and where one is needed.
    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, with_default, needed) in [
            ("city.example", Ok("city.example:7"), Err("needs a port")),
            ("City.Example.:80", Ok("city.example.:80"), Ok("city.example.:80")),
            ("192.0.2.1", Ok("192.0.2.1:7"), Err("needs a port")),
            ("192.0.2.1:80", Ok("192.0.2.1:80"), Ok("192.0.2.1:80")),
            ("::1", Ok("[::1]:7"), Err("write [::1]:PORT")),
            ("[::1]", Ok("[::1]:7"), Err("needs a port")),
            ("[::1]:80", Ok("[::1]:80"), Ok("[::1]:80")),
            ("::", Ok("[::]:7"), Err("write [::]:PORT")),
            ("2001:db8::1", Ok("[2001:db8::1]:7"), Err("write [2001:db8::1]:PORT")),
            (
                "2001:db8::1:7100",
                Err("write [2001:db8::1:7100] for the address without a port, or [2001:db8::1]:7100"),
                Err("write [2001:db8::1:7100]:PORT, or [2001:db8::1]:7100 if"),
            ),
            ("2001:db8::1:0", Ok("[2001:db8::1:0]:7"), Err("write [")),
            ("2001:db8::1:99999", Err("not an address"), Err("not an address")),
            ("2001:db8:0:0:0:0:0:80", Ok("[2001:db8::80]:7"), Err("write [")),
            ("fe80::1%eth0", Ok("[fe80::1%eth0]:7"), Err("write [fe80::1%eth0]:PORT")),
            ("[fe80::1%eth0]:80", Ok("[fe80::1%eth0]:80"), Ok("[fe80::1%eth0]:80")),
            ("[fe80::1%3]:80", Ok("[fe80::1%3]:80"), Ok("[fe80::1%3]:80")),
            ("fe80::1%eth0:80", Err("write [fe80::1%eth0]:80"), Err("write [fe80::1%eth0]:80")),
            ("1:2:3:4:5:6:7:8:80", Err("write [1:2:3:4:5:6:7:8]:80"), Err("write [1:2:3:4:5:6:7:8]:80")),
            ("[fe80::1%25eth0]:80", Err("write [fe80::1%eth0]:80;"), Err("write [fe80::1%eth0]:80;")),
            ("fe80::1%25eth0", Err("write [fe80::1%eth0];"), Err("write [fe80::1%eth0];")),
            ("[fe80::1%25]:80", Ok("[fe80::1%25]:80"), Ok("[fe80::1%25]:80")),
            ("[fe80::1%251]:80", Ok("[fe80::1%251]:80"), Ok("[fe80::1%251]:80")),
            ("[fe80::1]:80", Ok("[fe80::1]:80"), Err("write [fe80::1%INTERFACE]:80 with its name")),
            ("[febf::1]:80", Ok("[febf::1]:80"), Err("write [febf::1%INTERFACE]:80")),
            ("[fec0::1]:80", Ok("[fec0::1]:80"), Ok("[fec0::1]:80")),
            ("192.0.2.1/24:80", Err("without /24, as in 192.0.2.1:80"), Err("without /24, as in 192.0.2.1:80")),
            ("192.0.2.1/24", Err("without /24, as in 192.0.2.1:PORT"), Err("without /24, as in 192.0.2.1:PORT")),
            ("2001:db8::1/64:80", Err("as in [2001:db8::1]:80"), Err("as in [2001:db8::1]:80")),
            ("http://[::1]/a:b", Err("without http://, as in [::1]:PORT"), Err("without http://, as in [::1]:PORT")),
            ("fe80::1%", Err("not an address"), Err("not an address")),
            ("192.0.2.1%eth0:80", Err("not an address"), Err("not an address")),
            ("[192.0.2.1]:80", Err("write 192.0.2.1:80;"), Err("write 192.0.2.1:80;")),
            ("[192.0.2.1]", Err("write 192.0.2.1;"), Err("write 192.0.2.1;")),
            ("[city.example]:80", Err("write city.example:80;"), Err("write city.example:80;")),
            ("::ffff:192.0.2.1", Ok("192.0.2.1:7"), Err("write [")),
            ("", Err("a host is missing"), Err("a host is missing")),
            (":80", Err("a host is missing"), Err("a host is missing")),
            ("[]:80", Err("not an address"), Err("not an address")),
            ("[::1]80", Err("not an address"), Err("not an address")),
            ("::1]:80", Err("not an address"), Err("not an address")),
            ("city.example:", Err("the port must be"), Err("the port must be")),
            ("city.example:0", Err("the port must be"), Err("the port must be")),
            ("city.example:65536", Err("not '65536'"), Err("not '65536'")),
            ("city.example:+80", Err("not '+80'"), Err("not '+80'")),
            ("city.example:http", Err("not 'http'"), Err("not 'http'")),
            ("http://city.example:80", Err("without http://, as in city.example:80"), Err("without http://")),
            ("me@city.example:80", Err("without me@, as in city.example:80"), Err("without me@")),
            ("city.example:80/", Err("without /, as in city.example:80"), Err("without /")),
            ("city example:80", Err("not an address"), Err("not an address")),
            ("192.0.2.300:80", Err("'192.0.2.300' is no IPv4 address: write"), Err("'192.0.2.300' is no IPv4 address")),
            ("192.0.2.1-192.0.2.9", Err("192.0.2.9' is no IPv4 address"), Err("192.0.2.9' is no IPv4 address")),
            ("192.0.2.1.:80", Err("no host name has digits alone"), Err("no host name has digits alone")),
            ("127.1:80", Err("is no IPv4 address"), Err("is no IPv4 address")),
            ("80", Err("is no IPv4 address"), Err("is no IPv4 address")),
            ("1a.2:80", Ok("1a.2:80"), Ok("1a.2:80")),
            (".example:80", Err("not an address"), Err("not an address")),
            ("a..example:80", Err("not an address"), Err("not an address")),
            ("caf\u{e9}.example:80", Err("not an address"), Err("not an address")),
        ] {
            for (read, expected) in [(HostPort::with_default(text, 7), with_default), (text.parse(), needed)] {
                match (read, expected) {
                    (Ok(read), Ok(expected)) => assert_eq!(read.to_string(), expected, "{text}"),
                    (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{text}: {error}"),
                    (read, expected) => panic!("{text}: {read:?} instead of {expected:?}"),
                }
            }
        }
    }

    #[test]
    fn a_listener_has_an_address_and_a_port_or_any() {
        for (text, expected) in [
            ("127.0.0.1:80", Ok("127.0.0.1 None 80")),
            ("127.0.0.1:0", Ok("127.0.0.1 None 0")),
            ("[::]:0", Ok(":: None 0")),
            ("[fe80::1%eth0]:80", Ok("fe80::1 Some(\"eth0\") 80")),
            ("localhost:80", Err("where to listen is no name")),
            ("localhost:0", Err("where to listen is no name")),
            ("127.0.0.1", Err("needs a port")),
            (":80", Err("write 0.0.0.0:80 for all IPv4 addresses of this host, [::]:80 for IPv6, or 127.0.0.1:80 for")),
            ("80", Err("write 0.0.0.0:80 for")),
            ("*:80", Err("write 0.0.0.0:80 for")),
            ("*:0", Err("write 0.0.0.0:0 for")),
            ("::1", Err("write [::1]:PORT")),
            ("::1:0", Err("write [::1:0]:PORT")),
            ("[fe80::1]:80", Err("write [fe80::1%INTERFACE]:80")),
            ("[fe80::1]:0", Err("write [fe80::1%INTERFACE]:0")),
            ("192.0.2.1/24:80", Err("as in 192.0.2.1:80")),
        ] {
            match (HostPort::listening(text), expected) {
                (Ok((ip, zone, port)), Ok(expected)) => assert_eq!(format!("{ip} {zone:?} {port}"), expected, "{text}"),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{text}: {error}"),
                (read, expected) => panic!("{text}: {read:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn what_a_terminal_would_act_on_is_not_said_and_a_long_text_is_cut() {
        let said = "\u{1b}[2J".parse::<HostPort>().unwrap_err().to_string();
        assert!(!said.contains('\u{1b}'), "{said:?}");
        let said = format!("{}:x", "a".repeat(1000)).parse::<HostPort>().unwrap_err().to_string();
        assert!(said.chars().count() < 200, "{said}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_comes_back(text in "[a-z0-9:.%\\[\\]/@-]{0,40}|\\PC{0,20}") {
            for read in [text.parse::<HostPort>(), HostPort::with_default(&text, 7)].into_iter().flatten() {
                prop_assert_ne!(read.port, 0);
                prop_assert_eq!(HostPort::as_told(&read.to_string()), Ok(read.clone()));
                prop_assert_eq!(HostText::parse(&read.host.bare()), Ok(read.host));
            }
        }

        #[test]
        fn every_address_is_read_in_each_of_its_forms(ip: Ipv6Addr, port in 1..=u16::MAX) {
            let read = HostPort::as_told(&format!("[{ip}]:{port}")).unwrap();
            let canonical = IpAddr::from(ip).to_canonical();
            prop_assert_eq!((read.host.ip(), read.port), (Some(canonical), port));
            // Read as the address, or said to be unclear.
            match HostPort::with_default(&ip.to_string(), port) {
                Ok(read) => prop_assert_eq!(read.host.ip(), Some(canonical)),
                Err(error) => {
                    let is_unclear = matches!(error, AddressError::Ambiguous { .. });
                    prop_assert!(is_unclear, "{}", error);
                }
            }
        }
    }
}
