//! Connects to a destination, an address or a name, within one time limit.

use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ekiden_net::socket::{self, SocketError, canonical};
use ekiden_net::{device, transparent};
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};
use ekiden_units::{HostPort, HostText};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::Tcp;
use crate::exit::names::Resolver;
use crate::exit::policy::Policy;
use crate::exit::spare::{Asker, Spare};
use crate::host::congestion;

mod race;
pub mod used;

/// How a connection is made.
#[derive(Clone, Copy)]
pub struct Dial<'a> {
    /// The client whose address the connection has, if not this node's.
    pub client: Option<SocketAddr>,
    /// Its TCP settings.
    pub tcp: &'a Tcp,
    /// Resolves names.
    pub names: &'a Resolver,
    /// Whom names are looked up for.
    pub asker: Asker<'a>,
    /// The descriptors that it may open beside its own socket.
    pub spare: &'a Spare,
    /// The time limit, for all addresses together.
    pub limit: Duration,
    /// The addresses that are refused; `None` refuses none.
    pub policy: Option<&'a Policy<'a>>,
}

impl Dial<'_> {
    /// Connects to `target`. Addresses that are refused are not tried.
    ///
    /// # Errors
    /// Of all failures the one that says most about the destination.
    pub async fn connect(&self, target: &Target) -> Result<TcpStream, Failure> {
        if let Host::Ip(ip) = target.host {
            let address = canonical(SocketAddr::new(ip, target.port));
            if let Some(refusal) = self.policy.and_then(|policy| policy.refusal(address)) {
                return Err(refusal.of(target));
            }
            return self.connect_at(address, target).await;
        }
        // Boxed: this future is large, and on the hot path names are rare.
        Box::pin(race::connect(self, target)).await
    }

    /// Connects to a peer, whose address may have a zone.
    ///
    /// # Errors
    /// As [`Dial::connect`], and if the zone's interface is not there.
    pub async fn connect_peer(&self, place: &HostPort) -> Result<TcpStream, Failure> {
        let target = |host| Target { host, port: place.port };
        match &place.host {
            HostText::Ip(ip) => self.connect(&target(Host::Ip(*ip))).await,
            HostText::Name(name) => self.connect(&target(Host::Name(name.clone()))).await,
            HostText::Zoned(ip, zone) => {
                let index = device::zone_index(zone).map_err(|error| Failure::new(FailureCode::Other, error))?;
                let address = SocketAddrV6::new(*ip, place.port, 0, index);
                self.connect_at(address.into(), &target(Host::Ip((*ip).into()))).await
            }
        }
    }

    async fn connect_at(&self, address: SocketAddr, target: &Target) -> Result<TcpStream, Failure> {
        match timeout(self.limit, attempt(address, self.client, self.tcp)).await {
            Ok(connected) => connected.map_err(|error| failure(target, &error)),
            Err(_) => Err(timed_out(target)),
        }
    }
}

async fn attempt(address: SocketAddr, client: Option<SocketAddr>, tcp: &Tcp) -> io::Result<TcpStream> {
    // If the destination is this machine itself, its answers to the client's address would not come back to the socket.
    let client = client.filter(|client| client.is_ipv4() == address.is_ipv4() && !transparent::is_own(address.ip()));
    if let Some(client) = client {
        // Boxed: rare, and larger than what is usual.
        return Box::pin(attempt_as(client, address, tcp)).await;
    }
    let socket = match used::take(address, &tcp.options) {
        Some(socket) => socket,
        None => new_socket(address, tcp)?,
    };
    let stream = connect(socket, address).await?;
    congestion::connected(&stream, tcp);
    Ok(stream)
}

/// The event loop tells an error together with the end of the wait, so that the kernel need not be asked for one.
async fn connect(socket: OwnedFd, address: SocketAddr) -> io::Result<TcpStream> {
    socket::begin_connect(&socket, address)?;
    let stream = TcpStream::from_std(socket.into())?;
    let ready = stream.ready(Interest::WRITABLE | Interest::ERROR).await?;
    match ready.is_error() || ready.is_write_closed() {
        true => Err(stream.take_error()?.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())),
        false => Ok(stream),
    }
}

/// Connects from the address of `client`, and from the same port unless an earlier connection to `address` still has it.
async fn attempt_as(client: SocketAddr, address: SocketAddr, tcp: &Tcp) -> io::Result<TcpStream> {
    let from = async |same_port| {
        let socket = new_socket(address, tcp)?;
        transparent::bind_as(&socket, client, same_port)?;
        let stream = connect(socket, address).await?;
        congestion::connected(&stream, tcp);
        io::Result::Ok(stream)
    };
    match from(true).await {
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
            tracing::debug!("another port than that of {client} for {address}: {error}");
            from(false).await
        }
        other => other,
    }
}

fn new_socket(address: SocketAddr, tcp: &Tcp) -> io::Result<OwnedFd> {
    congestion::outgoing(address, tcp).map_err(|error| match error {
        SocketError::Io(error) => error,
        error => io::Error::other(error.to_string()),
    })
}

fn timed_out(target: &Target) -> Failure {
    Failure::new(FailureCode::TimedOut, format_args!("{target} did not answer in time"))
}

fn failure(target: &Target, error: &io::Error) -> Failure {
    use io::ErrorKind as K;
    let (code, what) = match error.kind() {
        K::ConnectionRefused => (FailureCode::Refused, "connection refused"),
        K::NetworkUnreachable => (FailureCode::NetworkUnreachable, "network unreachable"),
        K::HostUnreachable => (FailureCode::HostUnreachable, "host unreachable"),
        K::TimedOut => (FailureCode::TimedOut, "timed out"),
        // EMFILE, ENFILE: 24, 23 on every Linux.
        _ if matches!(error.raw_os_error(), Some(23 | 24)) => (FailureCode::Overloaded, "out of descriptors"),
        K::OutOfMemory => (FailureCode::Overloaded, "out of memory"),
        _ => return Failure::new(FailureCode::Other, format_args!("{target}: {error}")),
    };
    Failure::new(code, format_args!("{target}: {what}"))
}
