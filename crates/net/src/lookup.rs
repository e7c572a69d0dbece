//! The socket addresses of hosts and ports as people write them.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use ekiden_units::{AddressError, HostPort};

use crate::device::zone_index;

/// The addresses of a host, by the system's resolver if it has a name. It may take seconds.
///
/// # Errors
/// If the name cannot be resolved, or an address has the zone of an interface that is not there.
pub fn addresses(place: &HostPort) -> io::Result<Vec<SocketAddr>> {
    Ok((place.host.bare().as_str(), place.port).to_socket_addrs()?.collect())
}

/// Why nothing can listen there; in words for the author of the address.
#[derive(Debug, thiserror::Error)]
pub enum ListeningError {
    /// It is no address of this host with a port.
    #[error(transparent)]
    Text(#[from] AddressError),
    /// The interface of its zone is not there. It may come yet.
    #[error("'{text}': {source}")]
    Interface {
        /// The address.
        text: String,
        /// Which interface.
        source: io::Error,
    },
}

impl ListeningError {
    /// Whether this host lacks something that may come yet.
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Interface { .. })
    }
}

/// Where to listen: an address of this host, with a port or 0 for any.
///
/// # Errors
/// If it is something else, or has the zone of an interface that is not there.
pub fn listening(text: &str) -> Result<SocketAddr, ListeningError> {
    match HostPort::listening(text)? {
        (IpAddr::V6(ip), Some(zone), port) => {
            let index = zone_index(&zone).map_err(|source| ListeningError::Interface { text: text.into(), source })?;
            Ok(SocketAddrV6::new(ip, port, 0, index).into())
        }
        (ip, _, port) => Ok(SocketAddr::new(ip, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_an_interface_by_its_name_or_its_number() {
        for text in ["[fe80::1%lo]:80", "[fe80::1%1]:80"] {
            let place: HostPort = text.parse().unwrap();
            let found = addresses(&place).unwrap();
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["[fe80::1%1]:80"], "{text}");
            assert_eq!(listening(text).unwrap(), found[0]);
        }
        assert!(addresses(&"[fe80::1%none-such]:80".parse().unwrap()).is_err());
        let error = listening("[fe80::1%none-such]:80").unwrap_err();
        assert!(error.is_lack() && error.to_string().contains("there is no network interface 'none-such'"), "{error}");
        assert!(!listening("fe80::1").unwrap_err().is_lack());
        assert_eq!(listening("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(addresses(&"[::1]:7".parse().unwrap()).unwrap()[0].to_string(), "[::1]:7");
    }
}
