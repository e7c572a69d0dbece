//! The session of a connection with TLS, and the memory that it holds.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ekiden_net::socket;
use ekiden_net::tcp_info::tcp_info;
use tokio::net::TcpStream;

use crate::budget::Holding;
use crate::session::Session;

/// The mutex lets both directions of a stream share the session. They run in one task, so it is never contended.
pub struct Tls(Box<Mutex<Counted>>);

struct Counted {
    session: Session,
    /// What it holds, in the budget.
    holding: Holding,
    /// Bytes read from the socket since somebody asked.
    read: usize,
    /// All bytes read from it.
    total: u64,
    /// Where both directions stood when this side said its end, if that demands an answer.
    said: Option<SaidEnd>,
}

/// In TLS 1.2 whoever gets close_notify answers with its own, and drops what it has to send (RFC 5246 §7.2.1). So behind this side's end it is no
/// end of what the other side sends; but it may have been said before this side's arrived.
struct SaidEnd {
    /// What had come before, of all that is read.
    came: u64,
    /// What the other kernel has acknowledged when it has this side's end. `None`: the socket has not taken that yet.
    sent: Option<u64>,
    /// Whether the other side's close_notify is an answer, once it was seen.
    is_answered: Option<bool>,
}

/// The session while it is used. Behind that, what it holds counts.
pub struct Locked<'a>(MutexGuard<'a, Counted>);

impl Tls {
    pub fn of(session: Session) -> Self {
        Self(Box::new(Mutex::new(Counted { session, holding: Holding::default(), read: 0, total: 0, said: None })))
    }

    pub fn lock(&self) -> Locked<'_> {
        Locked(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locked<'_> {
    /// As [`Session::receive`]. What is read counts.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Counted { session, read: count, total, .. } = &mut *self.0;
        session.receive(buffer, |room| {
            read(room).inspect(|n| {
                *count += n;
                *total += *n as u64;
            })
        })
    }

    /// As [`Session::peek`].
    pub fn peek(
        &mut self,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Counted { session, total, .. } = &mut *self.0;
        session.peek(buffer, |room| read(room).inspect(|n| *total += *n as u64))
    }

    /// How many bytes were read since this was asked, with what TLS adds: many more than were received, where records are padded or small.
    pub fn take_read(&mut self) -> usize {
        std::mem::take(&mut self.0.read)
    }

    /// Notes that this side's end is about to be said on `socket`.
    pub fn says_end(&mut self, socket: &TcpStream) {
        if self.demands_answers() && self.0.said.is_none() {
            let came = self.0.total + socket::unread(socket);
            self.0.said = Some(SaidEnd { came, sent: None, is_answered: None });
        }
    }

    /// Notes that `socket` has taken all of this side's end.
    pub fn said_end(&mut self, socket: &TcpStream) {
        if let Some(said) = &mut self.0.said {
            // Asked in this order it is no more than that.
            let acked = tcp_info(socket).map_or(0, |info| info.acked_bytes);
            said.sent.get_or_insert(acked + socket::unacknowledged(socket));
        }
    }

    /// Whether the end that the other side has said only answers this side's.
    pub fn has_answered(&mut self, socket: &TcpStream) -> bool {
        let Counted { session, total, said, .. } = &mut *self.0;
        let Some(said) = said.as_mut().filter(|_| session.has_ended()) else { return false };
        let has_arrived = |sent: u64| tcp_info(socket).is_ok_and(|info| info.acked_bytes >= sent);
        let judge = || *total > said.came && said.sent.is_some_and(has_arrived);
        *said.is_answered.get_or_insert_with(judge)
    }
}

impl Deref for Locked<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0.session
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0.session
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Counted { session, holding, .. } = &mut *self.0;
        holding.set(if session.is_unproven() { 0 } else { session.unread() + session.unsent() + session.shown() });
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS")
    }
}
