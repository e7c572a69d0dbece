//! A TCP connection as the relay reads and writes it, with or without TLS.
//!
//! Without TLS it is the socket, and its bytes may also be spliced. Either way only one task uses it: there is one reader and
//! one writer at a time.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream as StdStream};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use ekiden_keys::Fingerprint;
use ekiden_net::socket::{self, KeepaliveTimeouts};
use ekiden_net::tcp_info::tcp_info;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::session::Session;
use crate::wire::{self, is_transient};
use tls::{Locked, Tls};

mod on_wire;
mod pieces;
pub(crate) mod tls;

/// A connection to a host or a node. It resets when dropped, unless [`Connection::end_cleanly`] was called.
#[derive(Debug)]
pub struct Connection {
    /// Before the socket: it is dropped while the socket is open. Boxed twice: most have none.
    pace: Option<Box<Box<dyn Pace>>>,
    socket: TcpStream,
    tls: Option<Tls>,
}

/// What paces a connection's socket. It is dropped before the socket is closed; the kernel then sends what is left at the same pace.
pub trait Pace: fmt::Debug + Send + Sync {
    /// The socket will serve somebody else.
    fn lift(&self);
}

/// An idle connection outside of any event loop. When dropped, it ends cleanly.
#[derive(Debug)]
pub struct Resting {
    /// `None` once it has been woken.
    socket: Option<StdStream>,
    tls: Option<Tls>,
}

/// A host whose handshake failed. It has been sent the alert that says why.
#[derive(Debug)]
pub struct Unsecured {
    /// Why, as a line for the node's operator. [`io::ErrorKind::PermissionDenied`]: one of the two refuses the other's certificate.
    pub why: io::Error,
    /// Its connection.
    pub socket: TcpStream,
}

impl From<TcpStream> for Connection {
    fn from(socket: TcpStream) -> Self {
        Self { pace: None, socket, tls: None }
    }
}

impl Connection {
    /// Makes a TLS connection of `socket` and a new `session`. Returns when the handshake is over and the other side's key is
    /// known.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if one of the two nodes refuses the other's key. If it is this one, the other has
    /// been sent an alert.
    pub async fn start_tls(socket: TcpStream, session: Session) -> io::Result<Self> {
        let connection = Self { pace: None, socket, tls: Some(Tls::of(session)) };
        match connection.shake_hands().await.and_then(|()| connection.speaks_leg_protocol()) {
            Ok(()) => Ok(connection),
            Err(error) => {
                connection.send_alert();
                connection.end_cleanly();
                Err(error)
            }
        }
    }

    /// The same of a host's connection.
    ///
    /// # Errors
    /// The handshake failed. The host has been sent an alert, if there is one for that, and may still have to read it.
    pub(crate) async fn start_tls_of_host(socket: TcpStream, session: Session) -> Result<Self, Unsecured> {
        let connection = Self { pace: None, socket, tls: Some(Tls::of(session)) };
        match connection.shake_hands().await {
            Ok(()) => Ok(connection),
            Err(why) => {
                connection.send_alert();
                Err(Unsecured { why, socket: connection.socket })
            }
        }
    }

    /// Sends the alert without waiting until the socket is writable: an alert is short, and all that was sent before it has been
    /// taken.
    fn send_alert(&self) {
        if let Some(tls) = &self.tls {
            let _ = tls.lock().flush(|records| socket::send(&self.socket, records, false));
        }
    }

    fn speaks_leg_protocol(&self) -> io::Result<()> {
        match self.tls.as_ref().is_some_and(|tls| tls.lock().is_our_protocol()) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol over TLS")),
        }
    }

    /// The TCP socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The socket, if there is no TLS. Then its bytes may be spliced.
    pub fn plain(&self) -> Option<&TcpStream> {
        self.tls.is_none().then_some(&self.socket)
    }

    /// This side's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// With TLS, the key that the other node has proven to have.
    pub fn peer_key(&self) -> Option<Fingerprint> {
        self.tls.as_ref()?.lock().peer_key().map(|key| Fingerprint::of(key))
    }

    /// With TLS, the certificate that the host has shown.
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        self.tls.as_ref()?.lock().peer_key().map(|certificate| certificate.to_vec())
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

    /// Receives as soon as there is something. 0 is the end of the connection. With TLS it is an error if the connection ended
    /// without close_notify.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        wire::poll_receive(self, cx, buffer)
    }

    /// As [`Connection::poll_receive`]. The future may be dropped without losing data.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        wire::receive(self, buffer).await
    }

    /// Behind this side's end: frees what was received, and discards what still comes until TCP has ended.
    pub async fn discard_to_end(&self) {
        if let Some(tls) = &self.tls {
            tls.lock().stop_receiving();
        }
        let mut sink = vec![0; 4096];
        while self.socket.readable().await.is_ok() {
            match receive(&self.socket, &mut sink) {
                Ok(1..) => {}
                Err(error) if is_transient(&error) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Fills the buffer.
    pub async fn receive_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
        wire::receive_exact(self, buffer).await
    }

    /// Receives what is there, if the event loop knows the socket to be readable.
    pub fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => receive(&self.socket, buffer),
            Some(tls) => {
                self.unless_answered(tls.lock(), |tls| tls.receive(buffer, |room| receive(&self.socket, room)))
            }
        }
    }

    /// With TLS: how many bytes of the socket were read to receive since this was asked, with what TLS adds.
    pub fn take_read(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.lock().take_read())
    }

    /// As [`Connection::try_receive`], but asks the socket in any case. Right after accepting, data is mostly there although
    /// the event loop does not know it yet.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => socket::receive(&self.socket, buffer),
            Some(tls) => {
                self.unless_answered(tls.lock(), |tls| tls.receive(buffer, |room| socket::receive(&self.socket, room)))
            }
        }
    }

    /// As [`Connection::try_receive`], but leaves the bytes to be received.
    pub fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_io(Interest::READABLE, || socket::peek(&self.socket, buffer)),
            Some(tls) => self.unless_answered(tls.lock(), |tls| tls.peek(buffer, |room| receive(&self.socket, room))),
        }
    }

    /// What `heard` says, but for an end that only answers this side's: that is none.
    fn unless_answered(
        &self,
        mut tls: Locked<'_>,
        heard: impl FnOnce(&mut Locked<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let heard = heard(&mut tls);
        // Asked as soon as the end has come, which may be behind what was heard now.
        let has_answered = tls.has_answered(&self.socket);
        match heard {
            Ok(0) if has_answered => Err(io::ErrorKind::UnexpectedEof.into()),
            heard => heard,
        }
    }

    /// As [`Connection::receive_now`], but leaves the bytes to be received.
    pub fn peek_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => socket::peek(&self.socket, buffer),
            Some(tls) => {
                self.unless_answered(tls.lock(), |tls| tls.peek(buffer, |room| socket::receive(&self.socket, room)))
            }
        }
    }

    /// Waits for the next byte, which stays to be received. Its connection's end is an error.
    pub async fn peek_first(&self) -> io::Result<u8> {
        let mut first = [0];
        loop {
            self.readable().await?;
            match self.try_peek(&mut first) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(first[0]),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for something unread, or for the end: 0. With a node's TLS it looks at what the socket has, and not at what was decrypted before.
    pub async fn peek_end(&self) -> io::Result<usize> {
        let is_of_host = self.is_of_host();
        loop {
            let seen = match is_of_host {
                true => {
                    self.readable().await?;
                    self.try_peek(&mut [0])
                }
                false => {
                    self.socket.readable().await?;
                    self.socket.try_io(Interest::READABLE, || socket::peek(&self.socket, &mut [0]))
                }
            };
            match seen {
                Err(error) if is_transient(&error) => {}
                other => return other,
            }
        }
    }

    /// Whether a connection that should be silent is silent and alive. Messages of TLS itself do not count.
    pub fn is_quiet(&self) -> bool {
        is_quiet(&self.socket, self.tls.as_ref())
    }

    /// Sends as much of `bytes` as can be taken now. [`Connection::poll_flush`] must follow. With `more`, the kernel may hold
    /// the bytes back until the next send.
    pub fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        match &self.tls {
            None => self.write(bytes, more),
            Some(tls) => tls.lock().send(bytes, |records| self.write(records, false)),
        }
    }

    /// Waits until the socket has taken all bytes that [`Connection::try_send`] has taken.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_pending() {
            ready!(self.socket.poll_write_ready(cx))?;
            match self.try_flush() {
                Err(error) if is_transient(&error) => {}
                other => return Poll::Ready(other),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends all of `bytes`.
    pub async fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        wire::send_all(self, bytes).await
    }

    /// Sends a last few bytes, if the socket takes them at once.
    pub fn send_last(&self, bytes: &[u8]) -> bool {
        wire::send_last(self, bytes)
    }

    /// Sends the end behind all that was sent: with a host's TLS close_notify and then FIN, else FIN alone.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: the socket does not take close_notify yet. [`Connection::poll_flush`] must follow, and then this again.
    pub fn shut_down(&self) -> io::Result<()> {
        if let Some(tls) = self.tls.as_ref().filter(|_| self.is_of_host()) {
            let mut session = tls.lock();
            session.says_end(&self.socket);
            session.close()?;
            session.flush(|records| self.write(records, false))?;
            session.said_end(&self.socket);
        }
        SockRef::from(&self.socket).shutdown(Shutdown::Write)
    }

    /// When the connection is closed from now on, the kernel delivers what was sent, then the end of the connection. If it
    /// cannot, the connection is reset: the other side never sees a false end.
    pub fn end_cleanly(&self) {
        end_cleanly(&self.socket, self.tls.as_ref());
    }

    /// As [`Connection::end_cleanly`], for a connection that is closed while the other side may have no room yet for the data.
    pub fn leave_to_kernel(&self) {
        self.end_cleanly();
        // If this fails, the kernel only gives up sooner.
        let _ = socket::pause_longest(&self.socket);
    }

    /// Is paced by this from now on, and by nothing else.
    pub fn pace_by(&mut self, pace: Option<Box<dyn Pace>>) {
        self.lift_pace();
        self.pace = pace.map(Box::new);
    }

    fn lift_pace(&mut self) {
        if let Some(pace) = self.pace.take() {
            pace.lift();
        }
    }

    /// The socket itself. `None` if there is TLS on it.
    pub fn into_socket(mut self) -> Option<TcpStream> {
        self.lift_pace();
        self.tls.is_none().then_some(self.socket)
    }

    /// Takes the socket out of the event loop. `None` if there is TLS on it.
    pub fn into_plain(mut self) -> Option<StdStream> {
        self.lift_pace();
        match self.tls {
            None => self.socket.into_std().ok(),
            Some(_) => None,
        }
    }

    /// Takes the connection out of the event loop. `None` if it is not at rest.
    pub fn rest(mut self) -> Option<Resting> {
        self.lift_pace();
        let Self { socket, tls, .. } = self;
        if tls.as_ref().is_some_and(|tls| !tls.lock().is_at_rest()) {
            return None;
        }
        Some(Resting { socket: Some(socket.into_std().ok()?), tls })
    }

    /// Whether some bytes that [`Connection::try_send`] has taken have yet to be taken by the socket.
    pub fn has_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().has_pending())
    }

    /// The memory of bytes that were received and not yet taken by the caller. With TLS it counts in the budget, as that of bytes which the
    /// socket has yet to take.
    pub fn unread(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.lock().unread())
    }

    fn try_flush(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        tls.lock().flush(|records| self.write(records, false))
    }

    fn write(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        self.socket.try_io(Interest::WRITABLE, || socket::send(&self.socket, bytes, more))
    }

    async fn shake_hands(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        tls.lock().begin()?;
        poll_fn(|cx| self.poll_flush(cx)).await?;
        while tls.lock().is_handshaking() {
            self.socket.readable().await?;
            // Reads only until the handshake is over: payload that comes after it stays to be received.
            let seen = tls.lock().peek(&mut [0], |room| receive(&self.socket, room));
            match seen {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if !is_transient(&error) => return Err(error),
                _ => {}
            }
            poll_fn(|cx| self.poll_flush(cx)).await?;
        }
        Ok(())
    }

    /// Whether a host speaks TLS on it.
    fn is_of_host(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().is_host())
    }
}

impl Resting {
    /// Whether it is silent and alive.
    pub fn is_quiet(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| is_quiet(socket, self.tls.as_ref()))
    }

    /// The payload of its full segments. `None` if it is gone.
    pub fn segment_bytes(&self) -> Option<u32> {
        tcp_info(self.socket.as_ref()?).ok().map(|info| info.mss_bytes)
    }

    /// Makes the kernel probe the other end soon and often. Returns the timeouts from before, or `None` if the socket does not
    /// allow it.
    pub fn watch_closely(&self) -> Option<KeepaliveTimeouts> {
        socket::watch_closely(self.socket.as_ref()?).ok()
    }

    /// Ends [`Resting::watch_closely`].
    pub fn restore(&self, timeouts: &KeepaliveTimeouts) {
        // If this fails, the connection keeps the shorter timeouts.
        let _ = self.socket.as_ref().map(|socket| timeouts.restore(socket));
    }

    /// Brings the connection back into the current event loop.
    pub fn wake(mut self) -> io::Result<Connection> {
        let socket = self.socket.take().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Connection { pace: None, socket: TcpStream::from_std(socket)?, tls: self.tls.take() })
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            end_cleanly(socket, self.tls.as_ref());
        }
    }
}

fn end_cleanly(socket: &impl AsFd, tls: Option<&Tls>) {
    if let Some(tls) = tls {
        let mut session = tls.lock();
        // If this fails, the other side takes the connection for cut off, which is never a false end.
        let _ = session.close().and_then(|()| session.flush(|records| socket::send(socket, records, false)));
    }
    let _ = socket::end_on_close(socket);
}

fn is_quiet(socket: &impl AsFd, tls: Option<&Tls>) -> bool {
    let Some(tls) = tls else { return socket::is_quiet(socket) };
    let mut session = tls.lock();
    let nothing = session.peek(&mut [0], |room| socket::receive(socket, room));
    matches!(nothing, Err(error) if error.kind() == io::ErrorKind::WouldBlock) && !session.has_more()
}

/// Receives. If that is known to have emptied the socket, its readiness is cleared at once, which saves the call that would
/// find nothing.
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
