//! Connecting to a destination: by every address its name has, within one limit of time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_net::socket::SocketError;
use ekiden_net::transparent;
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::Tcp;
use crate::congestion;
use crate::exit::Refusal;

/// Connects to `target` within `limit`, from the address of `client` if there is one to act as. Addresses with a `refusal`
/// are not tried.
pub async fn connect(
    target: &Target,
    client: Option<SocketAddr>,
    tcp: &Tcp,
    limit: Duration,
    refusal: impl Fn(SocketAddr) -> Option<Refusal>,
) -> Result<TcpStream, Failure> {
    if let Host::Ip(ip) = target.host {
        let address = SocketAddr::new(ip, target.port);
        if let Some(refusal) = refusal(address) {
            return Err(refusal.of(target));
        }
        return match timeout(limit, attempt(address, client, tcp)).await {
            Ok(connected) => connected.map_err(|error| failure(target, &error)),
            Err(_) => Err(timed_out(target)),
        };
    }
    // Names are rare on the hot path and their future is large.
    Box::pin(connect_name(target, client, tcp, limit, refusal)).await
}

async fn connect_name(
    target: &Target,
    client: Option<SocketAddr>,
    tcp: &Tcp,
    limit: Duration,
    refusal: impl Fn(SocketAddr) -> Option<Refusal>,
) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + limit;
    let lookup = tokio::net::lookup_host((target.host.to_string(), target.port));
    let found: Vec<SocketAddr> = match timeout_at(deadline, lookup).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(_)) => Vec::new(),
        Err(_) => return Err(timed_out(target)),
    };
    if found.is_empty() {
        let text = format_args!("no address for the name {}", target.host);
        return Err(Failure::new(FailureCode::NameNotFound, text));
    }
    let (allowed, refused): (Vec<_>, Vec<_>) =
        found.into_iter().map(|address| (address, refusal(address))).partition(|(_, refusal)| refusal.is_none());
    let mut last = refused.iter().find_map(|(_, refusal)| *refusal).unwrap_or(Refusal::Route).of(target);
    for (i, (address, _)) in allowed.iter().enumerate() {
        // An address that does not answer must leave time for the ones behind it.
        let share = deadline.saturating_duration_since(Instant::now()) / (allowed.len() - i) as u32;
        last = match timeout(share, attempt(*address, client, tcp)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure(target, &error),
            Err(_) => timed_out(target),
        };
    }
    Err(last)
}

async fn attempt(address: SocketAddr, client: Option<SocketAddr>, tcp: &Tcp) -> io::Result<TcpStream> {
    // An answer from this machine itself to the client's address would not come back to the socket.
    let client = client.filter(|client| client.is_ipv4() == address.is_ipv4() && !transparent::is_own(address.ip()));
    if let Some(client) = client {
        return attempt_as(client, address, tcp).await;
    }
    socket(address, tcp)?.connect(address).await
}

/// From the port of `client` too, unless an earlier connection to `address` still has it.
async fn attempt_as(client: SocketAddr, address: SocketAddr, tcp: &Tcp) -> io::Result<TcpStream> {
    let from = async |same_port| {
        let socket = socket(address, tcp)?;
        transparent::bind_as(&socket, client, same_port)?;
        socket.connect(address).await
    };
    match from(true).await {
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
            tracing::debug!("another port than that of {client} for {address}: {error}");
            from(false).await
        }
        other => other,
    }
}

fn socket(address: SocketAddr, tcp: &Tcp) -> io::Result<TcpSocket> {
    match congestion::outgoing(address, tcp) {
        Ok(socket) => Ok(TcpSocket::from_std_stream(socket.into())),
        Err(SocketError::Io(error)) => Err(error),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
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
