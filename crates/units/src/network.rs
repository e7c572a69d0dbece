//! Networks as people write them: one reader for all files and commands.

use std::net::IpAddr;

use ipnet::IpNet;

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is neither an address nor a network.
    #[error("'{0}' is not a network, such as 192.168.1.0/24")]
    Network(String),
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
    match read.map_err(|_| NetworkError::Network(text.into()))? {
        net if net == net.trunc() => Ok(net),
        net => Err(NetworkError::HostBits(net)),
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
            ("10.0.0.0/33", Err("'10.0.0.0/33' is not a network, such as 192.168.1.0/24")),
            ("10.0.0.1-10.0.0.9", Err("'10.0.0.1-10.0.0.9' is not a network, such as 192.168.1.0/24")),
        ] {
            let read = network(text).map(|net| net.to_string()).map_err(|error| error.to_string());
            assert_eq!(read, expected.map(str::to_owned).map_err(str::to_owned));
        }
    }
}
