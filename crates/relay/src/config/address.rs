//! Tells public addresses from special ones, and finds IPv4 addresses that are embedded in IPv6 addresses.
//!
//! Most kinds are those of IANA's registries of special-purpose addresses (RFC 6890). Multicast (RFC 1112 section 4, RFC 4291
//! section 2.7) and site-local addresses (RFC 3879) are not in them. Addresses for documentation count as public: no network
//! uses them, and examples have them in the place of public ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of a special address. `None` if it is public.
pub fn special(ip: IpAddr) -> Option<&'static str> {
    match ip.to_canonical() {
        IpAddr::V4(ip) => special_v4(ip),
        IpAddr::V6(ip) => special_v6(ip),
    }
}

/// The IPv4 address that packets to `ip` may reach: `ip` itself, or the address that is embedded in it for translation or for a
/// tunnel.
pub fn embedded_v4(ip: IpAddr) -> Option<Ipv4Addr> {
    let ip = match ip.to_canonical() {
        IpAddr::V4(ip) => return Some(ip),
        IpAddr::V6(ip) => ip,
    };
    match ip.segments() {
        // The unspecified address and loopback.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // IPv4-compatible (RFC 4291 section 2.5.5.1), IPv4-translated (RFC 2765 section 2.1), NAT64 (RFC 6052 section 2.1).
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // 6to4 (RFC 3056 section 2).
        | [0x2002, high, low, ..] => Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        _ => None,
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    Some(match ip.octets() {
        // Linux takes 0.0.0.0 for this host.
        [0, ..] => "an address of this network",
        [127, ..] => "a loopback address",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private address",
        [100, 64..=127, ..] => "an address behind a carrier's NAT",
        [169, 254, ..] => "a link-local address",
        // Azure answers each of its machines there, by what it is.
        [168, 63, 129, 16] => "an address of the cloud's platform",
        [192, 0, 0, _] => "an address of the IETF's protocols",
        [198, 18..=19, ..] => "an address for benchmarks",
        // Relays of 6to4 (RFC 7526).
        [192, 88, 99, _] => "a reserved address",
        [224..=239, ..] => "a multicast address",
        [240..=255, ..] => "a reserved address",
        _ => return None,
    })
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    if let Some(ip) = embedded_v4(ip.into()) {
        return special_v4(ip);
    }
    Some(match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "an address of this network",
        [0, 0, 0, 0, 0, 0, 0, 1] => "a loopback address",
        // Translation within a site (RFC 8215); unique local addresses (RFC 4193).
        [0x64, 0xff9b, 1, ..] | [0xfc00..=0xfdff, ..] => "a private address",
        // Discard-only addresses (RFC 6666) and the dummy prefix (RFC 9780).
        [0x100, 0, 0, 0 | 1, ..] => "a reserved address",
        // Among them are Teredo, benchmarks, ORCHID identifiers and anycast addresses.
        [0x2001, 0..=0x1ff, ..] => "an address of the IETF's protocols",
        // Segment routing (RFC 9602).
        [0x5f00, ..] => "a reserved address",
        [0xfe80..=0xfebf, ..] => "a link-local address",
        [0xfec0..=0xfeff, ..] => "a site-local address",
        [0xff00..=0xffff, ..] => "a multicast address",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::special;

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
            "192.0.0.8",
            "192.88.99.1",
            "168.63.129.16",
            "198.18.0.1",
            "198.19.255.255",
            "::ffff:0:10.1.2.3",
            "::ffff:0:127.0.0.1",
            "64:ff9b::c612:1",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:2::1",
            "2001:1ff:ffff::1",
            "5f00::1",
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
            "::ffff:0:1.1.1.1",
            "192.0.1.1",
            "192.88.98.1",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.113.9",
            "2001:200::1",
            "3fff::1",
            "100:0:0:2::1",
        ] {
            assert_eq!(special(ip.parse().unwrap()), None, "{ip}");
        }
    }
}
