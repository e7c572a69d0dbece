//! Which connections are watched.

use std::net::{IpAddr, SocketAddr};

use ekiden_net::lookup;
use ekiden_net::sock_diag::{self, TcpSocket, sockets_of};
use ekiden_units::{AddressError, HostPort, HostText};

/// One end of a connection, as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// An address, or a name for some.
    host: HostText,
    /// 0 is any.
    port: u16,
}

impl std::str::FromStr for End {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = HostPort::optional(text)?;
        Ok(Self { host, port: port.unwrap_or(0) })
    }
}

/// A name that stands for no address.
#[derive(Debug, thiserror::Error)]
#[error("cannot find '{name}': {source}")]
pub struct NameNotFound {
    name: String,
    source: std::io::Error,
}

/// What connections must have, all of it.
pub struct Filter {
    local: Option<(Vec<IpAddr>, u16)>,
    remote: Option<(Vec<IpAddr>, u16)>,
    /// On either side; 0 is any.
    port: u16,
    pid: Option<u32>,
}

impl Filter {
    /// Looks names up, and that the process is there.
    pub fn new(local: Option<&End>, remote: Option<&End>, port: Option<u16>, pid: Option<u32>) -> anyhow::Result<Self> {
        if let Some(pid) = pid {
            sockets_of(pid)?;
        }
        let [local, remote] = [local, remote].map(|end| end.map(resolve).transpose());
        Ok(Self { local: local?, remote: remote?, port: port.unwrap_or_default(), pid })
    }

    /// The ports on this side and the other by which the kernel can choose; 0 is any.
    pub fn ports(&self) -> [u16; 2] {
        [&self.local, &self.remote].map(|end| end.as_ref().map_or(0, |(_, port)| *port))
    }

    /// Those of the sockets that are wanted, beside those that were chosen by their numbers before: sockets without a program.
    pub fn choose<'a>(
        &self,
        sockets: &'a [TcpSocket],
        mut is_known: impl FnMut(u64) -> bool,
    ) -> Result<Vec<&'a TcpSocket>, sock_diag::Error> {
        let own = match self.pid {
            // A process that has ended has no sockets; what it has closed is still sent.
            Some(pid) => match sockets_of(pid) {
                Err(sock_diag::Error::NoProcess(_)) => Some(Default::default()),
                found => Some(found?),
            },
            None => None,
        };
        let fits = |end: &Option<(Vec<IpAddr>, u16)>, address: SocketAddr| {
            end.as_ref()
                .is_none_or(|(hosts, port)| hosts.contains(&address.ip()) && (*port == 0 || *port == address.port()))
        };
        let is_wanted = |socket: &&TcpSocket| {
            fits(&self.local, socket.local)
                && fits(&self.remote, socket.remote)
                && (self.port == 0 || [socket.local.port(), socket.remote.port()].contains(&self.port))
        };
        let is_own = |socket: &&TcpSocket| match &own {
            None => true,
            Some(own) => {
                socket.inode != 0 && own.contains(&socket.inode) || socket.inode == 0 && is_known(socket.cookie)
            }
        };
        Ok(sockets.iter().filter(is_wanted).filter(is_own).collect())
    }
}

fn resolve(end: &End) -> Result<(Vec<IpAddr>, u16), NameNotFound> {
    let place = HostPort { host: end.host.clone(), port: end.port };
    let found = match end.host.ip() {
        Some(address) => vec![address.to_canonical()],
        None => {
            let found = lookup::addresses(&place);
            let found = found.map_err(|source| NameNotFound { name: end.host.bare(), source })?;
            found.into_iter().map(|found| found.ip()).collect()
        }
    };
    Ok((found, end.port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_addresses_or_names_with_or_without_a_port() {
        let read = |text: &str| text.parse::<End>().map(|end| (end.host.bare(), end.port));
        let is = |host: &str, port| Ok((host.to_owned(), port));
        assert_eq!(read("192.0.2.1"), is("192.0.2.1", 0));
        assert_eq!(read("192.0.2.1:80"), is("192.0.2.1", 80));
        assert_eq!(read("2001:db8::1"), is("2001:db8::1", 0));
        assert_eq!(read("[2001:db8::1]"), is("2001:db8::1", 0));
        assert_eq!(read("[2001:db8::1]:80"), is("2001:db8::1", 80));
        assert_eq!(read("server:443"), is("server", 443));
        for wrong in ["", ":80", "server:0", "server:x", "server:70000", "[x]:1:2"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
