//! Connecting to the peers that have an address.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use ekiden_net::socket::{self, TcpOptions};
use ekiden_transport::segments::{Proof, Unproven};
use ekiden_transport::{Connection, dial};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{GREETING, Node, http_proxy, late};
use crate::carry::{CarryError, receive_hello, send_hello};
use crate::config::{Config, Peer};
use crate::frame::Hello;

/// The timeout of a connection attempt, unless an existing connection stalls.
const CONNECTING: Duration = Duration::from_secs(10);
/// The delay without an answer after which a host's next address is tried in parallel.
const NEXT_ADDRESS: Duration = Duration::from_secs(1);
/// The pause before a peer is dialled again: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(15)];

/// A connection that lasted at least this time resets the pause.
const LASTING: Duration = Duration::from_secs(1);

impl Node {
    /// Keeps one connection to a peer that has an address.
    pub async fn keep_dialling(self: Rc<Self>, peer: usize, number: u8) {
        let (name, slot) = (self.name(peer), &self.peers[peer].slots[usize::from(number)]);
        let mut pause = PAUSES[0];
        loop {
            // The peer may have connected to this node.
            while slot.current.borrow().is_some() {
                slot.ended.notified().await;
            }
            match self.dial(peer, number, CONNECTING, || true).await {
                Ok((connection, theirs)) => {
                    let began = Instant::now();
                    self.peers[peer].told.take();
                    Rc::clone(&self).serve(peer, theirs, connection, true).await;
                    // A peer that accepts connections and ends them at once is dialled no faster than one that refuses them.
                    if began.elapsed() >= LASTING {
                        pause = PAUSES[0];
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    // Each reason is logged once, whichever connection met it.
                    if self.peers[peer].told.replace(Some(error.clone())).as_ref() == Some(&error) {
                        tracing::debug!("cannot connect to {name}: {error}");
                    } else {
                        self.lines.warn("dial", name, format_args!("cannot connect to {name}: {error}"));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Connects to a peer, and verifies its identity. Returns the peer's greeting, and the connection's number here. Until
    /// the greeting, the peer keeps another connection of this number; `is_wanted` says whether the new one is still to take
    /// its place.
    pub async fn dial(
        &self,
        peer: usize,
        number: u8,
        connecting: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(Connection, Hello), CarryError> {
        let (name, settings) = (self.name(peer), &self.config.peers[peer]);
        let connection = reach(&self.config, (name, settings), connecting).await?;
        if !is_wanted() {
            return Err(io::Error::other("it goes on").into());
        }
        let Greeted { connection, theirs, .. } = greet(connection, self.hello(peer, number)).await?;
        self.check(&theirs, settings.classes.connections())?;
        Ok((connection, Hello { connection: number, ..theirs }))
    }
}

/// A connection to a verified peer.
pub struct Greeted {
    /// The connection.
    pub connection: Connection,
    /// The peer's greeting.
    pub theirs: Hello,
    /// The time from this side's greeting to the peer's.
    pub took: Duration,
}

/// Connects to a peer, verifies its identity, and greets it.
pub async fn ask(config: &Config, peer: (&str, &Peer), ours: Hello) -> Result<Greeted, CarryError> {
    greet(reach(config, peer, CONNECTING).await?, ours).await
}

/// Connects to a peer within the time `connecting`, verifies its identity, and checks that full segments pass.
async fn reach(config: &Config, (name, peer): (&str, &Peer), connecting: Duration) -> Result<Connection, CarryError> {
    let attempt = async |max_segment| {
        let tcp = TcpOptions { max_segment, ..config.tcp.clone() };
        let socket = timeout(connecting, connect_to(config, &tcp, peer)).await.map_err(|_| late())??;
        let dialled = timeout(GREETING, dial(socket, &peer.security, &config.name)).await;
        dialled.map_err(|_| late())?.map_err(|error| refused(error.into()))
    };
    let dialled = peer.segments.dial(name, Proof::Always, attempt).await;
    let (connection, prelude) = dialled.map_err(|unproven| match unproven {
        Unproven::Attempt(error) => error,
        Unproven::Broken(error) => refused(error.into()),
    })?;
    connection.send_all(&prelude).await?;
    Ok(connection)
}

/// Greets a peer that has proven its key.
async fn greet(connection: Connection, ours: Hello) -> Result<Greeted, CarryError> {
    timeout(GREETING, exchange_hellos(connection, ours)).await.map_err(|_| late())?.map_err(refused)
}

async fn exchange_hellos(connection: Connection, ours: Hello) -> Result<Greeted, CarryError> {
    let begin = Instant::now();
    send_hello(&connection, &ours).await?;
    let theirs = receive_hello(&connection).await?;
    Ok(Greeted { connection, theirs, took: begin.elapsed() })
}

/// Connects to a peer, directly or through its HTTP proxy.
async fn connect_to(config: &Config, tcp: &TcpOptions, peer: &Peer) -> Result<TcpStream, CarryError> {
    let Some((host, port)) = &peer.address else { return Err(CarryError::Closed) };
    let Some(proxy) = &peer.http_proxy else { return Ok(connect(config, tcp, host, *port).await?) };
    let (proxy_host, proxy_port) = &proxy.address;
    let through = async {
        let mut socket = connect(config, tcp, proxy_host, *proxy_port).await?;
        http_proxy::connect(&mut socket, proxy, host, *port).await?;
        Ok(socket)
    };
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("the HTTP proxy {proxy_host}:{proxy_port}: {error}")).into()
    };
    through.await.map_err(named)
}

/// Connects to the one of a host's addresses that answers first. Each is tried when the one before has failed, or has not
/// answered for a while (RFC 8305, section 5).
async fn connect(config: &Config, tcp: &TcpOptions, host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    let found = lookup_host((host, port)).await.map_err(|error| {
        let error = error.to_string();
        let why = error.strip_prefix("failed to lookup address information: ").unwrap_or(&error);
        io::Error::new(io::ErrorKind::NotFound, format!("cannot look up the name {host}: {why}"))
    })?;
    let mut addresses = found.collect::<Vec<_>>().into_iter();
    let mut attempts = JoinSet::new();
    loop {
        match addresses.next() {
            Some(address) if is_inside(config, address.ip().to_canonical()) => {
                let message = format!("{host} is {}, which is reached through the tunnel itself", address.ip());
                last = io::Error::other(message);
                continue;
            }
            Some(address) => match socket::outgoing(address, tcp) {
                Ok(socket) => drop(attempts.spawn(async move {
                    let connected = TcpSocket::from_std_stream(socket.into()).connect(address).await;
                    connected.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
                })),
                // A host without IPv6, for example, has no socket for this address, and may have one for the next.
                Err(error) => {
                    last = io::Error::other(error);
                    continue;
                }
            },
            None if attempts.is_empty() => return Err(last),
            None => {}
        }
        match timeout(NEXT_ADDRESS, attempts.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => last = error,
            Ok(Some(Err(error))) => last = io::Error::other(error),
            Ok(None) | Err(_) => {}
        }
    }
}

/// Whether an address is reached through the tunnel.
fn is_inside(config: &Config, address: IpAddr) -> bool {
    config.allowed.peer(address).is_some() || config.device.network_of(address).is_some()
}

/// A peer that ends the connection instead of greeting has a reason, which only it can report. The end may come while this
/// side sends.
fn refused(error: CarryError) -> CarryError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error {
        CarryError::Io(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) => {
            io::Error::other("it refuses this node; its log says why").into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// What a node reports about a peer that proves its identity, reads `bytes` more bytes, and then ends the connection.
    async fn said_of_a_peer_that_reads(bytes: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        dialled.try_write(b"hello").unwrap();
        accepted.read_exact(&mut vec![0; bytes]).await.unwrap();
        // Unread data makes the end a reset.
        drop(accepted);
        sleep(Duration::from_millis(50)).await;
        let ours = Hello::question(3);
        exchange_hellos(Connection::from(dialled), ours).await.map_err(refused).err().unwrap().to_string()
    }

    #[tokio::test]
    async fn a_peer_that_ends_the_connection_refuses_this_node_whenever_its_end_comes() {
        for bytes in [0, 5] {
            assert_eq!(said_of_a_peer_that_reads(bytes).await, "it refuses this node; its log says why");
        }
    }
}
