//! Sockets whose `TCP_INFO` is looked at from time to time, by another task than the one that has them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_tcp_info::TcpInfo;

use crate::tcp_info::tcp_info_with_memory;

/// Sockets that are watched, each with what is kept of it.
#[derive(Debug)]
pub struct WatchedSockets<T>(Mutex<All<T>>);

#[derive(Debug)]
struct All<T> {
    next: u64,
    sockets: HashMap<u64, (RawFd, T)>,
}

/// Watches a socket until it is dropped. It borrows the socket, which so outlives it.
#[derive(Debug)]
pub struct Watched<'a, T> {
    all: &'a WatchedSockets<T>,
    number: u64,
}

/// The same for whoever has the socket itself, and drops this before the socket is closed: else it would be about whatever socket gets the
/// number next. Their order as fields of one structure sees to that.
#[derive(Debug)]
pub struct Attached<T> {
    all: Arc<WatchedSockets<T>>,
    number: u64,
}

impl<T> Default for WatchedSockets<T> {
    fn default() -> Self {
        Self(Mutex::new(All { next: 0, sockets: HashMap::new() }))
    }
}

impl<T> WatchedSockets<T> {
    /// Watches a socket.
    pub fn watch<'a>(&'a self, socket: &'a impl AsFd, kept: T) -> Watched<'a, T> {
        Watched { all: self, number: self.add(socket, kept) }
    }

    /// The same for the one that has the socket.
    pub fn attach(self: &Arc<Self>, socket: &impl AsFd, kept: T) -> Attached<T> {
        Attached { all: self.clone(), number: self.add(socket, kept) }
    }

    fn add(&self, socket: &impl AsFd, kept: T) -> u64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.next;
        all.next += 1;
        all.sockets.insert(number, (socket.as_fd().as_raw_fd(), kept));
        number
    }

    /// Looks at each socket.
    pub fn look(&self, mut at: impl FnMut(&mut T, io::Result<TcpInfo>)) {
        self.each(|_, kept, socket| at(kept, tcp_info_with_memory(&socket)));
    }

    /// Visits each socket. Its number is the same each time, and never that of another.
    pub fn each(&self, mut at: impl FnMut(u64, &mut T, BorrowedFd<'_>)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, (fd, kept)) in &mut all.sockets {
            // SAFETY: the descriptor is open: the watcher borrows the socket, or has it, and stops watching under this lock.
            at(*number, kept, unsafe { BorrowedFd::borrow_raw(*fd) });
        }
    }

    /// How many sockets are watched.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sockets.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Attached<T> {
    /// Ceases to watch the socket, with a last look at it.
    pub fn end<R>(&self, last: impl FnOnce(T, BorrowedFd<'_>) -> R) -> Option<R> {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (fd, kept) = all.sockets.remove(&self.number)?;
        // SAFETY: as above.
        Some(last(kept, unsafe { BorrowedFd::borrow_raw(fd) }))
    }
}

impl<T> Drop for Attached<T> {
    fn drop(&mut self) {
        self.end(|_, _| ());
    }
}

impl<T> Watched<'_, T> {
    /// Ceases to watch the socket, and returns what was kept of it.
    pub fn end(self) -> Option<T> {
        self.take()
    }

    fn take(&self) -> Option<T> {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.sockets.remove(&self.number).map(|(_, kept)| kept)
    }
}

impl<T> Drop for Watched<'_, T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_socket_is_looked_at_while_it_is_watched() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let all = WatchedSockets::default();
        let watched = all.watch(&socket, 0);
        all.look(|seen, info| *seen += u32::from(info.unwrap().cwnd_segments > 0));
        assert_eq!((all.len(), watched.end(), all.len()), (1, Some(1), 0));
        drop(all.watch(&socket, 0));
        assert!(all.is_empty());
    }
}
