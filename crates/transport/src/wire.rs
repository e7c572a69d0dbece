//! What a stream needs of a connection. [`crate::Connection`] implements it with the kernel; tests with hosts and lines in virtual time.

use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ekiden_tcp_info::TcpInfo;

use crate::budget::Room;

/// What can be noticed of a connection that is not being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    /// A FIN is behind what can be read.
    Ended,
    /// It has broken: [`Wire::take_error`] says why.
    Broken,
}

/// Completes when something is noticed.
pub type Watch<'a> = Pin<Box<dyn Future<Output = Noticed> + Send + 'a>>;

/// A connection that one task uses: there is one reader and one writer at a time. It resets when dropped, unless [`Wire::end_cleanly`]
/// was called.
pub trait Wire: Debug + Sized + Send + Sync + 'static {
    /// Moves bytes from one connection to another without copying them.
    type Pipe: Pipe;

    /// How much is moved at a time.
    const SIZES: Sizes = Sizes::USUAL;

    /// How much memory there is for a stream's next piece.
    fn room() -> Room;

    /// Whether there may be something to receive.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Receives what is there, if the event loop knows the connection to be readable. 0 is the end, unless an error was reported before.
    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// How many bytes were read from the kernel since this was asked, if these are not those that were received: with TLS.
    fn take_read(&self) -> usize {
        0
    }

    /// Whether something is there to be received.
    fn has_unread(&self) -> bool;

    /// Discards what is there to be received, before the connection is closed.
    fn discard_unread(&self);

    /// Whether something may be sent.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends as much of `bytes` as can be taken now. [`Wire::poll_flush`] must follow. With `more`, the kernel may hold the bytes back
    /// until the next send.
    fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<usize>;

    /// Waits until all bytes that [`Wire::try_send`] has taken are on their way.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether some bytes that [`Wire::try_send`] has taken are still here. Their memory, and that of bytes that were received and not yet
    /// taken, counts in the budget by the connection itself.
    fn has_pending(&self) -> bool;

    /// Whether a close that [`Wire::end_cleanly`] allows says the end in any case. With TLS it says so only if the kernel takes close_notify
    /// at once.
    fn ends_by_close(&self) -> bool;

    /// Whether its bytes may go through a pipe.
    fn may_be_spliced(&self) -> bool;

    /// Moves up to `most` bytes into an empty pipe. 0 may be the end, or urgent data.
    fn fill(&self, pipe: &mut Self::Pipe, most: usize) -> io::Result<usize>;

    /// Sends what the pipe holds, or part of it.
    fn drain(&self, pipe: &mut Self::Pipe) -> io::Result<usize>;

    /// What its kernel says of it.
    fn info(&self) -> io::Result<TcpInfo>;

    /// Whether it has bytes that its kernel has not sent yet.
    fn has_unsent(&self) -> bool;

    /// Whether the other side's FIN has arrived, also if the connection has broken since.
    fn has_received_end(&self) -> bool;

    /// Completes when it has broken and, if `watches_end`, when it has ended.
    fn watch(&self, watches_end: bool) -> Watch<'_>;

    /// Why it broke. The kernel says so once.
    fn take_error(&self) -> Option<io::Error>;

    /// Sends the end behind all that was sent. A transient error says that [`Wire::poll_flush`] must come first.
    fn shut_down(&self) -> io::Result<()>;

    /// When the connection is closed from now on, the kernel delivers what was sent, then the end of the connection.
    fn end_cleanly(&self);

    /// As [`Wire::end_cleanly`], for a connection that is closed while the other side may have no room yet for the data.
    fn leave_to_kernel(&self);
}

/// A pipe between two connections. Dropped with bytes in it, it loses them.
pub trait Pipe: Debug + Sized + Send + Sync + 'static {
    /// An empty one. `None` if there is none: then bytes must be moved through memory.
    fn take() -> Option<Self>;

    /// Bytes in the pipe.
    fn held(&self) -> usize;

    /// Whether it is smaller than what is usually moved through memory at once.
    fn is_small(&self) -> bool;

    /// Its bytes have to wait for their receiver. Returns how many there are.
    fn wait(&mut self) -> usize;
}

/// How much is moved at a time, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// A piece that fills this many bytes shows that splicing pays.
    pub small: usize,
    /// The most that is read at a time for a stream whose payer has reached its share of the memory.
    pub very_small: usize,
    /// The most that is read at a time when there is no pipe, with a frame's header.
    pub large: usize,
    /// Spliced pieces smaller than this show that splicing no longer pays.
    pub too_small_to_splice: usize,
    /// A small pipe that takes less than this at once is not tried again at once: it has a fixed number of slots, one for each part of a
    /// packet, and the parts may be small.
    pub little_spliced: usize,
    /// What a stream moves before the thread's other streams run: about 0.1 ms of work. A stream that is limited by its window moves one
    /// window between two runs, so these must be close together.
    pub turn: usize,
    /// Limit on the refused data that is discarded. Then reading pauses, so that the sender waits, until the refusal has reached it or
    /// a timeout has passed.
    pub discarded_most: u32,
}

impl Sizes {
    /// Those of real connections.
    pub const USUAL: Self = Self {
        small: 16 << 10,
        very_small: 1 << 10,
        // Four TLS records.
        large: 64 << 10,
        too_small_to_splice: 4 << 10,
        little_spliced: 32 << 10,
        turn: 512 << 10,
        discarded_most: 16 << 20,
    };
}

/// Whether the operation is to be tried again when the connection is ready.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Receives as soon as there is something. 0 is the end.
pub fn poll_receive(wire: &impl Wire, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
    loop {
        ready!(wire.poll_read_ready(cx))?;
        match wire.try_receive(buffer) {
            Err(error) if is_transient(&error) => {}
            other => return Poll::Ready(other),
        }
    }
}

/// As [`poll_receive`]. The future may be dropped without losing data.
pub async fn receive(wire: &impl Wire, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| poll_receive(wire, cx, buffer)).await
}

/// Fills the buffer.
pub async fn receive_exact(wire: &impl Wire, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match receive(wire, &mut buffer[filled..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => filled += n,
        }
    }
    Ok(())
}

/// Sends all of `bytes`.
pub async fn send_all(wire: &impl Wire, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        poll_fn(|cx| wire.poll_write_ready(cx)).await?;
        match wire.try_send(bytes, false) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    poll_fn(|cx| wire.poll_flush(cx)).await
}

/// Sends the end behind all that was sent, as soon as the connection takes it.
pub async fn say_end(wire: &impl Wire) -> io::Result<()> {
    loop {
        match wire.shut_down() {
            Err(error) if is_transient(&error) => poll_fn(|cx| wire.poll_flush(cx)).await?,
            other => return other,
        }
    }
}

/// Sends a last few bytes, if the connection takes them at once.
pub fn send_last(wire: &impl Wire, bytes: &[u8]) -> bool {
    matches!(wire.try_send(bytes, false), Ok(n) if n == bytes.len()) && !wire.has_pending()
}
