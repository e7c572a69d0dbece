//! The session of a connection with TLS, and the memory that it holds.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
}

/// The session while it is used. Behind that, what it holds counts.
pub struct Locked<'a>(MutexGuard<'a, Counted>);

impl Tls {
    pub fn of(session: Session) -> Self {
        Self(Box::new(Mutex::new(Counted { session, holding: Holding::default(), read: 0 })))
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
        let Counted { session, read: count, .. } = &mut *self.0;
        session.receive(buffer, |room| read(room).inspect(|n| *count += n))
    }

    /// How many bytes were read since this was asked, with what TLS adds: many more than were received, where records are padded or small.
    pub fn take_read(&mut self) -> usize {
        std::mem::take(&mut self.0.read)
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
