//! Bulk data from the client to the server, over some connections at once.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{MsgFlags, recv};

use super::{Cpu, Interval, Path, Times, joined, observe};

/// Small enough for a CPU's second-level cache, large enough that system calls do not count.
const WRITE_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 1 << 20;

/// Runs `streams` at once. Every byte sent must arrive, and every stream must end cleanly.
pub fn run(path: Path, streams: usize, times: Times, cpu: Cpu) -> Result<Interval> {
    let listener = path.listen()?;
    let pairs = (0..streams).map(|_| path.pair(&listener)).collect::<Result<Vec<_>>>()?;
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let (stop, received) = (&stop, &received);
    thread::scope(|scope| {
        let (sources, sinks): (Vec<_>, Vec<_>) = pairs
            .into_iter()
            .map(|(client, server)| {
                (scope.spawn(move || source(client, stop)), scope.spawn(move || sink(&server, received)))
            })
            .unzip();
        let interval = observe(received, times, cpu);
        stop.store(true, Ordering::Relaxed);
        let sent = sources.into_iter().map(joined).sum::<Result<u64>>()?;
        sinks.into_iter().try_for_each(joined)?;
        let arrived = received.load(Ordering::Relaxed);
        ensure!(sent == arrived, "{sent} bytes were sent, {arrived} arrived");
        interval
    })
}

/// Sends until it is told to stop, and returns how many bytes.
fn source(mut socket: TcpStream, stop: &AtomicBool) -> Result<u64> {
    let data = vec![0x5a; WRITE_BYTES];
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        match socket.write(&data) {
            Ok(count) => sent += count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(stuck(error)).context("a stream cannot be sent"),
        }
    }
    Ok(sent)
}

/// Receives until the end of the stream. MSG_TRUNC drops the bytes in the kernel instead of copying them out.
fn sink(socket: &TcpStream, received: &AtomicU64) -> Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
            Ok(0) => return Ok(()),
            Ok(count) => drop(received.fetch_add(count as u64, Ordering::Relaxed)),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(stuck(errno.into())).context("a stream does not end well"),
        }
    }
}

/// The kernel calls a timeout "would block".
fn stuck(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { io::Error::from(ErrorKind::TimedOut) } else { error }
}
