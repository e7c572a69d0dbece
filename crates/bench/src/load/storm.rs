//! Short connections, some at any time: connect, send a message, get it back, close.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socket2::{Domain, Socket, Type};

use super::echo::{self, BATCH, TICK_MS};
use super::{Cpu, IO_TIMEOUT, Interval, MESSAGE_BYTES, Path, Times, joined, observe};

/// Runs with `in_flight` connections at any time. Every one of them must be answered.
pub fn run(path: Path, in_flight: usize, times: Times, cpu: Cpu) -> Result<Interval> {
    let listener = path.listen()?;
    let (stop, finish, done) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let server = scope.spawn(|| echo::serve(&listener, &stop));
        let client = scope.spawn(|| client(path, in_flight, &finish, &done));
        let observed = observe(&|| done.load(Ordering::Relaxed), times, cpu);
        finish.store(true, Ordering::Relaxed);
        let finished = joined(client);
        stop.store(true, Ordering::Relaxed);
        joined(server)?;
        finished?;
        let observed = observed?;
        Ok(observed.interval(observed.after - observed.before))
    })
}

/// A connection under way.
pub(super) struct Call {
    socket: TcpStream,
    /// Bytes of the answer so far; none before the question was sent.
    answered: Option<usize>,
}

/// Runs until told to finish, and then until the last answer. `done` counts connections.
fn client(path: Path, in_flight: usize, finish: &AtomicBool, done: &AtomicU64) -> Result<()> {
    if let Some(namespace) = path.client {
        namespace.enter()?;
    }
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut calls: Vec<Option<Call>> = Vec::new();
    for index in 0..in_flight {
        calls.push(Some(call(path.connect, &epoll, index)?));
    }
    let mut events = [EpollEvent::empty(); BATCH];
    let (mut open, mut quiet_ms) = (in_flight, 0u128);
    while open > 0 {
        let ready = epoll.wait(&mut events, TICK_MS)?;
        quiet_ms = if ready > 0 { 0 } else { quiet_ms + u128::from(TICK_MS) };
        if quiet_ms > IO_TIMEOUT.as_millis() {
            bail!("{open} short connections get no answer");
        }
        for event in &events[..ready] {
            let index = event.data() as usize;
            let Some(Some(current)) = calls.get_mut(index) else { continue };
            if !progress(current).context("a short connection fails")? {
                continue;
            }
            // Closing the old one first keeps the number in flight, and takes it out of the epoll.
            calls[index] = None;
            done.fetch_add(1, Ordering::Relaxed);
            match finish.load(Ordering::Relaxed) {
                false => calls[index] = Some(call(path.connect, &epoll, index)?),
                true => open -= 1,
            }
        }
    }
    Ok(())
}

/// Starts a connection; edge-triggered, so that one registration serves the connect and the answer.
pub(super) fn call(address: SocketAddr, epoll: &Epoll, index: usize) -> Result<Call> {
    let socket = connect(address)?;
    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
    epoll.add(&socket, EpollEvent::new(flags, index as u64))?;
    Ok(Call { socket, answered: None })
}

/// A connection that may still be under way.
pub(super) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(nix::errno::Errno::EINPROGRESS as i32) => {
            return Err(error).context("cannot open a short connection");
        }
        _ => {}
    }
    Ok(TcpStream::from(socket))
}

/// Does what can be done now; true when the whole answer has come.
pub(super) fn progress(call: &mut Call) -> io::Result<bool> {
    let Some(answered) = &mut call.answered else {
        return match call.socket.write(&[0x5a; MESSAGE_BYTES]) {
            Ok(MESSAGE_BYTES) => {
                call.answered = Some(0);
                Ok(false)
            }
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        };
    };
    let mut message = [0; MESSAGE_BYTES];
    match call.socket.read(&mut message) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            *answered += count;
            Ok(*answered >= MESSAGE_BYTES)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
