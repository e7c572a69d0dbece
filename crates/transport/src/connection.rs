//! A TCP connection as the relay reads and writes it, with TLS around its bytes or without.
//!
//! Without, it is the socket, and bytes may also be spliced. Either way there is one task that uses it: one that reads
//! and one that writes at a time.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use ekiden_keys::Fingerprint;
use ekiden_net::socket::{self, KeepaliveTimeouts};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::session::Session;

/// A connection to a host or a node. It resets when dropped, unless [`Connection::end_cleanly`] was called.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    tls: Option<Tls>,
}

/// A connection that rests outside of any event loop. Dropped, it ends.
#[derive(Debug)]
pub struct Resting {
    /// There until it wakes.
    socket: Option<StdStream>,
    tls: Option<Tls>,
}

/// Locked for a moment only, and by nobody else: both directions of a stream share it.
struct Tls(Box<Mutex<Session>>);

impl From<TcpStream> for Connection {
    fn from(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }
}

impl Connection {
    /// Makes a connection over which TLS is spoken; `session` is at its beginning. Returns when the other side is known.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if one of the two keys is not taken. The other side has been told.
    pub async fn start_tls(socket: TcpStream, session: Session) -> io::Result<Self> {
        let connection = Self { socket, tls: Some(Tls(Box::new(Mutex::new(session)))) };
        match connection.shake_hands().await {
            Ok(()) => Ok(connection),
            Err(error) => {
                // An alert is short, and the socket has taken all that was before it, although it may not be known to be writable.
                if let Some(tls) = &connection.tls {
                    let _ = tls.lock().flush(|sealed| socket::send(&connection.socket, sealed, false));
                }
                connection.end_cleanly();
                Err(error)
            }
        }
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The socket, if its bytes are the stream's: then they may be spliced.
    pub fn plain(&self) -> Option<&TcpStream> {
        self.tls.is_none().then_some(&self.socket)
    }

    /// This side's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The key that the other side has proven to have, with TLS.
    pub fn peer_key(&self) -> Option<Fingerprint> {
        self.tls.as_ref()?.lock().peer_key().map(|key| Fingerprint::of(key))
    }

    /// Whether there may be something to receive.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            Some(tls) if tls.lock().has_more() => Poll::Ready(Ok(())),
            _ => self.socket.poll_read_ready(cx),
        }
    }

    /// As [`Connection::poll_read_ready`].
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    /// Whether something may be sent.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    /// Receives once there is something. 0 is the end of the connection; in TLS only if it was said.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            match self.try_receive(buffer) {
                Err(error) if is_transient(&error) => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// As [`Connection::poll_receive`]. Nothing is lost if it is not waited for.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_receive(cx, buffer)).await
    }

    /// Fills the buffer.
    pub async fn receive_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.receive(&mut buffer[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => filled += n,
            }
        }
        Ok(())
    }

    /// Receives what is known to be there.
    pub fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => receive(&self.socket, buffer),
            Some(tls) => tls.lock().receive(buffer, |room| receive(&self.socket, room)),
        }
    }

    /// As [`Connection::try_receive`], also right after accepting, when a socket is not known to be readable but mostly is.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => socket::receive(&self.socket, buffer),
            Some(tls) => tls.lock().receive(buffer, |room| socket::receive(&self.socket, room)),
        }
    }

    /// As [`Connection::try_receive`], leaving the bytes where they are.
    pub fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_io(Interest::READABLE, || socket::peek(&self.socket, buffer)),
            Some(tls) => tls.lock().peek(buffer, |room| receive(&self.socket, room)),
        }
    }

    /// As [`Connection::receive_now`], leaving the bytes where they are.
    pub fn peek_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => socket::peek(&self.socket, buffer),
            Some(tls) => tls.lock().peek(buffer, |room| socket::receive(&self.socket, room)),
        }
    }

    /// Whether a connection that should be silent is silent and alive. What TLS itself says in between is no noise.
    pub fn is_quiet(&self) -> bool {
        is_quiet(&self.socket, self.tls.as_ref())
    }

    /// Sends what is taken now; [`Connection::poll_flush`] must follow. With `more`, the kernel may hold it back until the
    /// next send.
    pub fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        match &self.tls {
            None => send(&self.socket, bytes, more),
            Some(tls) => tls.lock().send(bytes, |sealed| send(&self.socket, sealed, false)),
        }
    }

    /// Waits until the socket has taken all that [`Connection::try_send`] has.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.owes() {
            ready!(self.socket.poll_write_ready(cx))?;
            match self.try_flush() {
                Err(error) if is_transient(&error) => {}
                other => return Poll::Ready(other),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends all of `bytes`.
    pub async fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            poll_fn(|cx| self.poll_write_ready(cx)).await?;
            match self.try_send(bytes, false) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Sends a last few bytes, if the socket takes them at once.
    pub fn send_last(&self, bytes: &[u8]) -> bool {
        matches!(self.try_send(bytes, false), Ok(n) if n == bytes.len()) && !self.owes()
    }

    /// What was sent is to be delivered, then the end of the connection. If this fails it resets: never a wrong end.
    pub fn end_cleanly(&self) {
        end_cleanly(&self.socket, self.tls.as_ref());
    }

    /// As [`Connection::end_cleanly`], for a connection that is closed with data that the other side may have no room for yet.
    pub fn leave_to_kernel(&self) {
        self.end_cleanly();
        // Without, it gives up sooner.
        let _ = socket::pause_longest(&self.socket);
    }

    /// Takes it out of the event loop. `None` if it cannot rest.
    pub fn rest(self) -> Option<Resting> {
        let Self { socket, tls } = self;
        if tls.as_ref().is_some_and(|tls| !tls.lock().is_at_rest()) {
            return None;
        }
        Some(Resting { socket: Some(socket.into_std().ok()?), tls })
    }

    /// Whether the socket has yet to take some of what [`Connection::try_send`] has.
    pub fn owes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().owes())
    }

    /// Bytes of memory that what was received and not yet taken occupies.
    pub fn unread(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.lock().unread())
    }

    /// Bytes of memory that what the socket has yet to take occupies.
    pub fn unsent(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.lock().unsent())
    }

    fn try_flush(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        tls.lock().flush(|sealed| send(&self.socket, sealed, false))
    }

    async fn shake_hands(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        tls.lock().begin()?;
        poll_fn(|cx| self.poll_flush(cx)).await?;
        while tls.lock().is_handshaking() {
            self.socket.readable().await?;
            // Nothing is received but what the handshake brings; what comes behind it waits.
            let seen = tls.lock().peek(&mut [0], |room| receive(&self.socket, room));
            match seen {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if !is_transient(&error) => return Err(error),
                _ => {}
            }
            poll_fn(|cx| self.poll_flush(cx)).await?;
        }
        match tls.lock().is_our_protocol() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol over TLS")),
        }
    }
}

impl Resting {
    /// Whether it is silent and alive.
    pub fn is_quiet(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| is_quiet(socket, self.tls.as_ref()))
    }

    /// Probes the other end soon and often; returns what was set before. `None` if the socket does not allow it.
    pub fn watch_closely(&self) -> Option<KeepaliveTimeouts> {
        socket::watch_closely(self.socket.as_ref()?).ok()
    }

    /// Ends [`Resting::watch_closely`].
    pub fn restore(&self, timeouts: &KeepaliveTimeouts) {
        // At worst it keeps the shorter timeouts.
        let _ = self.socket.as_ref().map(|socket| timeouts.restore(socket));
    }

    /// Brings it back into the current event loop.
    pub fn wake(mut self) -> io::Result<Connection> {
        let socket = self.socket.take().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Connection { socket: TcpStream::from_std(socket)?, tls: self.tls.take() })
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            end_cleanly(socket, self.tls.as_ref());
        }
    }
}

impl Tls {
    fn lock(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TLS")
    }
}

/// Whether the operation is to be tried again when the socket is ready.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn end_cleanly(socket: &impl AsFd, tls: Option<&Tls>) {
    if let Some(tls) = tls {
        let mut session = tls.lock();
        // Without this the other side takes it for cut, which is never wrong.
        let _ = session.close().and_then(|()| session.flush(|sealed| socket::send(socket, sealed, false)));
    }
    let _ = socket::end_on_close(socket);
}

fn is_quiet(socket: &impl AsFd, tls: Option<&Tls>) -> bool {
    let Some(tls) = tls else { return socket::is_quiet(socket) };
    let mut session = tls.lock();
    let nothing = session.peek(&mut [0], |room| socket::receive(socket, room));
    matches!(nothing, Err(error) if error.kind() == io::ErrorKind::WouldBlock) && !session.has_more()
}

/// When the socket is known to be empty its readiness is forgotten at once: that saves the call that would find out.
fn receive(socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut last = 0;
    let got = socket.try_io(Interest::READABLE, || match socket::receive_and_look(socket, buffer) {
        Ok((n, false)) if n > 0 => {
            last = n;
            Err(io::ErrorKind::WouldBlock.into())
        }
        other => other.map(|(n, _)| n),
    });
    if last > 0 { Ok(last) } else { got }
}

fn send(socket: &TcpStream, bytes: &[u8], more: bool) -> io::Result<usize> {
    socket.try_io(Interest::WRITABLE, || socket::send(socket, bytes, more))
}
