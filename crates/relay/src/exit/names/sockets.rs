//! The sockets of queries to a name server, which may have a link-local address, as `nameserver fe80::1%eth0` in resolv.conf: the
//! resolver knows addresses without a zone, and the kernel wants one. What comes by UDP is read as glibc does.

use std::future::{Future, pending};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider, TokioRuntimeProvider, TokioTime};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::lenient::{self, Room};

type Received<'f> = Pin<Box<dyn Send + Future<Output = io::Result<(usize, SocketAddr)>> + 'f>>;
type Making<S> = Pin<Box<dyn Send + Future<Output = io::Result<S>>>>;

/// A query is sent again after this time without an answer, so often at most, from the same socket.
const AGAIN_AFTER: Duration = Duration::from_millis(400);
const AGAIN_MOST: u32 = 2;

/// Makes the sockets for one server. The addresses by which the resolver calls it do not count.
#[derive(Clone)]
pub struct Sockets {
    sockets: TokioRuntimeProvider,
    /// With its zone.
    pub(super) server: SocketAddr,
}

impl Sockets {
    /// For this server.
    pub fn new(server: SocketAddr) -> Self {
        Self { sockets: TokioRuntimeProvider::default(), server }
    }
}

impl RuntimeProvider for Sockets {
    type Handle = <TokioRuntimeProvider as RuntimeProvider>::Handle;
    type Timer = <TokioRuntimeProvider as RuntimeProvider>::Timer;
    type Udp = QuerySocket;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.sockets.create_handle()
    }

    fn connect_tcp(&self, _: SocketAddr, local: Option<SocketAddr>, limit: Option<Duration>) -> Making<Self::Tcp> {
        self.sockets.connect_tcp(self.server, local, limit)
    }

    fn bind_udp(&self, local: SocketAddr, _: SocketAddr) -> Making<Self::Udp> {
        let server = self.server;
        let bound = self.sockets.bind_udp(local, server);
        Box::pin(async move {
            let socket = bound.await?;
            // So the kernel tells at once where nothing listens.
            socket.connect(server).await?;
            Ok(QuerySocket { socket, server, sent: Mutex::default() })
        })
    }
}

/// A socket for the queries to one server.
pub struct QuerySocket {
    socket: UdpSocket,
    server: SocketAddr,
    sent: Mutex<Sent>,
}

/// The query, when it was sent last, and how often again.
#[derive(Default)]
struct Sent {
    bytes: Vec<u8>,
    at: Option<Instant>,
    again: u32,
}

impl Sent {
    /// When it is to be sent again.
    fn due(&self) -> Option<Instant> {
        self.at.filter(|_| self.again < AGAIN_MOST).map(|at| at + AGAIN_AFTER)
    }

    /// It is sent again now.
    fn again(&mut self) -> Vec<u8> {
        (self.at, self.again) = (Some(Instant::now()), self.again + 1);
        self.bytes.clone()
    }
}

impl QuerySocket {
    /// The next answer, as the resolver can read it.
    async fn received(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut bytes = vec![0; lenient::LONGEST];
        let (length, from) = self.socket.recv_from(&mut bytes).await?;
        let read = lenient::readable(&bytes[..length], Room { whole: buffer.len(), rebuilt: buffer.len() });
        buffer[..read.len()].copy_from_slice(&read);
        Ok((read.len(), from))
    }

    /// Sends the query again, in case it or its answer was lost, whatever else comes meanwhile. It never completes.
    async fn send_again(&self) {
        loop {
            let due = self.sent().due();
            let Some(due) = due else { return pending().await };
            sleep_until(due).await;
            let bytes = self.sent().again();
            // An error comes by `failed`.
            drop(self.socket.send(&bytes).await);
        }
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the kernel has an error of this socket: nothing listens there, or no packet comes there. It is not readable then.
    async fn failed(&self) -> io::Error {
        loop {
            let ready = self.socket.ready(Interest::ERROR).await;
            match ready.and_then(|_| self.socket.take_error()) {
                Ok(Some(error)) | Err(error) => return error,
                Ok(None) => {
                    let _ = self.socket.try_io(Interest::ERROR, || Err::<(), _>(ErrorKind::WouldBlock.into()));
                }
            }
        }
    }
}

impl DnsUdpSocket for QuerySocket {
    type Time = TokioTime;

    fn poll_recv_from(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        DnsUdpSocket::poll_recv_from(&self.socket, cx, buffer)
    }

    fn recv_from<'s, 'b, 'f>(&'s self, buffer: &'b mut [u8]) -> Received<'f>
    where
        's: 'f,
        'b: 'f,
        Self: 'f,
    {
        Box::pin(async {
            tokio::select! {
                biased;
                received = self.received(buffer) => received,
                error = self.failed() => Err(error),
                () = self.send_again() => Err(ErrorKind::TimedOut.into()),
            }
        })
    }

    /// `_target` is the server's address without its zone.
    fn poll_send_to(&self, cx: &mut Context<'_>, bytes: &[u8], _target: SocketAddr) -> Poll<io::Result<usize>> {
        let sent = ready!(DnsUdpSocket::poll_send_to(&self.socket, cx, bytes, self.server));
        *self.sent() = Sent { bytes: bytes.to_vec(), at: Some(Instant::now()), again: 0 };
        Poll::Ready(sent)
    }
}
