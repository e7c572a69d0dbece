//! The client's address: the socket's, or the one in a PROXY protocol header from a trusted balancer.

use std::io;
use std::net::SocketAddr;

use ekiden_net::socket::{self, canonical};
use ekiden_relay_proto::proxy_protocol::{self, Addresses, MAX_HEADER};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access::quota::ClientKey;
use crate::config::Listener;
use crate::exit::spare::Asker;
use crate::shared::Permit;

/// Whose connection it is.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The address at the other end of the connection itself.
    from: SocketAddr,
    /// The addresses in its PROXY protocol header, if it has one.
    proxied: Option<Addresses>,
}

impl Caller {
    /// The client.
    pub fn address(&self) -> SocketAddr {
        self.proxied.map_or(self.from, |proxied| proxied.source)
    }

    /// The same as the asker of what it asks for.
    pub fn asker(&self) -> Asker<'static> {
        Asker { node: None, client: Some(self.address().ip()) }
    }

    /// The client's address, and the address that it connected to. `stream` is its connection.
    pub fn addresses(&self, stream: &TcpStream) -> io::Result<Addresses> {
        match self.proxied {
            Some(proxied) => Ok(proxied),
            None => Ok(Addresses { source: self.from, destination: canonical(stream.local_addr()?) }),
        }
    }
}

/// Learns whose connection `stream` is, which was accepted from the address `from`. `None` if it must be reset: its PROXY
/// protocol header is missing or malformed, or the client has too many connections.
pub async fn learn(permit: &mut Permit, listener: &Listener, stream: &TcpStream, from: SocketAddr) -> Option<Caller> {
    if !listener.expects_proxy_header(from) {
        return Some(Caller { from, proxied: None });
    }
    let (node, client) = (permit.node(), ClientKey::from(from.ip()));
    let limit = node.config().limits.handshake;
    let proxied = match timeout(limit, read(stream)).await {
        Ok(Ok(proxied)) => proxied,
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            let line = format_args!("{from} must begin with a PROXY protocol header on {listener}: {error}");
            node.lines.warn("header", client, line);
            return None;
        }
        Ok(Err(error)) => {
            tracing::debug!("{from} has sent no PROXY protocol header: {error}");
            return None;
        }
        Err(_) => {
            let line = format_args!(
                "{from} must begin with a PROXY protocol header on {listener}, and has not within {limit:?}"
            );
            node.lines.warn("header", client, line);
            return None;
        }
    };
    let caller = Caller { from, proxied };
    permit.count_for(caller.address().ip()).then_some(caller)
}

/// Reads the header from the connection and not a byte more, because what follows may be spliced.
async fn read(stream: &TcpStream) -> io::Result<Option<Addresses>> {
    let mut header = Vec::new();
    loop {
        stream.readable().await?;
        let before = header.len();
        header.resize(MAX_HEADER, 0);
        let seen = match stream.try_io(Interest::READABLE, || socket::peek(stream, &mut header[before..])) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(seen) => seen,
            Err(error) if ekiden_transport::is_transient(&error) => 0,
            Err(error) => return Err(error),
        };
        header.truncate(before + seen);
        let complete =
            proxy_protocol::read(&header).map_err(|malformed| io::Error::new(io::ErrorKind::InvalidData, malformed))?;
        // If the header is not complete yet, all bytes so far belong to it.
        let end = complete.map_or(header.len(), |complete| complete.length);
        take(stream, end - before)?;
        if let Some(complete) = complete {
            return Ok(complete.addresses);
        }
    }
}

/// Discards bytes that were peeked at.
fn take(stream: &TcpStream, mut n: usize) -> io::Result<()> {
    let mut sink = [0; 512];
    while n > 0 {
        let most = n.min(sink.len());
        match socket::receive(stream, &mut sink[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            taken => n -= taken,
        }
    }
    Ok(())
}
