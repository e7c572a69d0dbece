//! A server of many connections, in one thread, that sends back what it gets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// Events taken at once.
pub(super) const BATCH: usize = 256;
/// How soon a request to stop is seen, in milliseconds.
pub(super) const TICK_MS: u8 = 20;

/// The listener's name among events; others are called by their descriptor.
const LISTENER: u64 = u64::MAX;

/// Serves until it is told to stop. Sockets are left blocking, which saves a call for each: they are touched only when
/// they are ready.
pub(super) fn serve(listener: &TcpListener, stop: &AtomicBool) -> Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = [EpollEvent::empty(); BATCH];
    while !stop.load(Ordering::Relaxed) {
        let ready = epoll.wait(&mut events, TICK_MS)?;
        for event in &events[..ready] {
            if event.data() == LISTENER {
                let (socket, _) = listener.accept().context("the server cannot accept")?;
                let place = socket.as_raw_fd() as usize;
                epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, place as u64))?;
                if connections.len() <= place {
                    connections.resize_with(place + 1, || None);
                }
                connections[place] = Some(socket);
            } else if let Some(place) = connections.get_mut(event.data() as usize)
                && !place.as_mut().is_some_and(answer)
            {
                *place = None;
            }
        }
    }
    Ok(())
}

/// Sends back what is there; false at the end, or when the connection broke, which the client notices.
fn answer(socket: &mut TcpStream) -> bool {
    let mut message = [0; 4096];
    match socket.read(&mut message) {
        Ok(0) | Err(_) => false,
        Ok(count) => socket.write_all(&message[..count]).is_ok(),
    }
}
