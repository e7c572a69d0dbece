//! Networks as people write them: one reader for all files and commands.

use std::net::IpAddr;

use ipnet::IpNet;

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is neither an address nor a network.
    #[error("'{0}' is not a network, such as 192.168.1.0/24")]
    Network(String),
    /// The prefix is longer than the address.
    #[error("'{text}': the prefix of an {family} network has 0 to {most} bits", family = if *most == 32 { "IPv4" } else { "IPv6" })]
    Prefix {
        /// What was read.
        text: String,
        /// The bits of an address of this family.
        most: u8,
    },
    /// It is an address in a network.
    #[error("{0} is no network: {around} is the one around it", around = .0.trunc())]
    HostBits(IpNet),
}

/// Reads a network, or an address alone: that of one host.
///
/// # Errors
/// If it is none, or an address has bits behind the prefix: it may be the length that is wrong.
pub fn network(text: &str) -> Result<IpNet, NetworkError> {
    let read = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    match read.map_err(|_| unread(text))? {
        net if net == net.trunc() => Ok(net),
        net => Err(NetworkError::HostBits(net)),
    }
}

fn unread(text: &str) -> NetworkError {
    let text = text.to_owned();
    let parts = text.split_once('/').map(|(address, prefix)| (address.parse(), prefix.parse::<i64>()));
    match parts {
        Some((Ok(IpAddr::V4(_)), Ok(_))) => NetworkError::Prefix { text, most: 32 },
        Some((Ok(IpAddr::V6(_)), Ok(_))) => NetworkError::Prefix { text, most: 128 },
        _ => NetworkError::Network(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_no_host_bits() {
        for (text, expected) in [
            ("10.0.0.0/8", Ok("10.0.0.0/8")),
            ("10.0.0.1", Ok("10.0.0.1/32")),
            ("2001:db8::/32", Ok("2001:db8::/32")),
            ("10.0.0.1/8", Err("10.0.0.1/8 is no network: 10.0.0.0/8 is the one around it")),
            ("2001:db8::1/32", Err("2001:db8::1/32 is no network: 2001:db8::/32 is the one around it")),
            ("10.0.0.0/33", Err("'10.0.0.0/33': the prefix of an IPv4 network has 0 to 32 bits")),
            ("::1/129", Err("'::1/129': the prefix of an IPv6 network has 0 to 128 bits")),
            ("10.0.0.0/x", Err("'10.0.0.0/x' is not a network, such as 192.168.1.0/24")),
            ("10.0.0.1-10.0.0.9", Err("'10.0.0.1-10.0.0.9' is not a network, such as 192.168.1.0/24")),
        ] {
            let read = network(text).map(|net| net.to_string()).map_err(|error| error.to_string());
            assert_eq!(read, expected.map(str::to_owned).map_err(str::to_owned));
        }
    }
}
