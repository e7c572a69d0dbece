//! Processes that take the same address one after the other.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::time::{Duration, Instant};

use super::{SocketError, TcpOptions, ensure_free, listen};
use crate::patience::patiently;

/// The timeout of waiting for a turn. Any program may have the name.
const LONGEST: Duration = Duration::from_millis(250);

/// This process's turn to look whether a port is free, and to listen on it. Sockets with SO_REUSEPORT of two processes of one user share
/// the port silently, so only one may be between the look and the first socket. Others wait until this is dropped, 250 ms at most.
#[derive(Debug)]
pub struct Turn {
    /// An abstract name, which the kernel gives one process of the network namespace at a time. `None` if it could not be had in time.
    _name: Option<UnixDatagram>,
}

impl Turn {
    /// Waits for the turn, and fails if something else listens at `address`. Blocks the thread. The kernel finds a port in place of 0.
    ///
    /// # Errors
    /// As [`ensure_free`].
    pub fn alone_at(address: SocketAddr, only_v6: bool) -> Result<Option<Self>, SocketError> {
        if address.port() == 0 {
            return Ok(None);
        }
        let turn = Self::at(address.port());
        ensure_free(address, only_v6).map(|()| Some(turn))
    }

    fn at(port: u16) -> Self {
        let take = || {
            let name = UnixAddr::from_abstract_name(format!("ekiden/turn/{port}"))?;
            UnixDatagram::bind_addr(&name)
        };
        let is_taken = |error: &std::io::Error| error.kind() == ErrorKind::AddrInUse;
        Self { _name: patiently(Instant::now() + LONGEST, take, is_taken, |_| {}).ok() }
    }
}

/// As [`listen`], but only where nothing else listens at `address`.
///
/// # Errors
/// [`SocketError`].
pub fn listen_alone(address: SocketAddr, only_v6: bool, options: &TcpOptions) -> Result<TcpListener, SocketError> {
    let _turn = Turn::alone_at(address, only_v6)?;
    listen(address, only_v6, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_who_want_an_address_at_once_one_gets_it() {
        for _ in 0..50 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let listen = || listen_alone(address, false, &TcpOptions::default());
            let got: Vec<_> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..8).map(|_| scope.spawn(listen)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(got.iter().filter(|got| got.is_ok()).count(), 1, "{got:?}");
        }
    }

    #[test]
    fn who_does_not_give_up_its_turn_delays_nobody_for_long() {
        let port = 1;
        let first = Turn::at(port);
        let start = Instant::now();
        let second = Turn::at(port);
        assert!(first._name.is_some() && second._name.is_none() && start.elapsed() >= LONGEST);
        drop(first);
        assert!(Turn::at(port)._name.is_some());
    }
}
