//! Bulk data from the client to the server, over some connections at once, which few threads serve.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{MsgFlags, recv};

use super::echo::{BATCH, TICK_MS};
use super::{Cpu, IO_TIMEOUT, Interval, Path, Times, joined, observe};
use crate::process;
use crate::stats::jain;

/// Small enough for a CPU's second-level cache, large enough that system calls do not count.
const WRITE_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 1 << 20;
/// Writes to one stream before the next one's turn.
const WRITES: usize = 4;

/// What came out of it.
#[derive(Debug, Clone, Copy)]
pub struct Bulk {
    /// Bytes that arrived.
    pub interval: Interval,
    /// Jain's index over what arrived by each stream: 1 if all got the same, 1/n if one got everything.
    pub fairness: f64,
    /// What `memory` said at the end of the interval, with all streams running.
    pub memory: u64,
}

/// One stream's end, with its place among all streams.
struct End {
    place: usize,
    socket: TcpStream,
}

/// Runs `streams` at once. Every byte sent must arrive, and every stream must end cleanly.
pub fn run(path: Path, streams: usize, times: Times, cpu: Cpu, memory: &dyn Fn() -> Result<u64>) -> Result<Bulk> {
    let listener = path.listen()?;
    let workers = process::cpus()?.min(streams);
    let (mut clients, mut servers): (Vec<_>, Vec<_>) = (0..workers).map(|_| (Vec::new(), Vec::new())).unzip();
    for place in 0..streams {
        let (client, server) = path.pair(&listener)?;
        for (ends, socket) in [(&mut clients, client), (&mut servers, server)] {
            socket.set_nonblocking(true)?;
            ends[place % workers].push(End { place, socket });
        }
    }
    let stop = AtomicBool::new(false);
    let received: Vec<AtomicU64> = (0..streams).map(|_| AtomicU64::new(0)).collect();
    let look = || received.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let (stop, received) = (&stop, &received);
    thread::scope(|scope| {
        let sinks: Vec<_> = servers.into_iter().map(|ends| scope.spawn(move || sink(ends, received))).collect();
        let sources: Vec<_> = clients.into_iter().map(|ends| scope.spawn(move || source(&ends, stop))).collect();
        let observed = observe(&look, times, cpu);
        let memory = memory();
        stop.store(true, Ordering::Relaxed);
        let sent = sources.into_iter().map(joined).sum::<Result<u64>>()?;
        sinks.into_iter().try_for_each(joined)?;
        let arrived: u64 = look().iter().sum();
        ensure!(sent == arrived, "{sent} bytes were sent, {arrived} arrived");
        let observed = observed?;
        let each: Vec<u64> =
            observed.after.iter().zip(&observed.before).map(|(after, before)| after - before).collect();
        let fairness = jain(&each).context("nothing arrives")?;
        Ok(Bulk { interval: observed.interval(each.iter().sum()), fairness, memory: memory? })
    })
}

/// Sends until it is told to stop, and returns how many bytes.
fn source(ends: &[End], stop: &AtomicBool) -> Result<u64> {
    let data = vec![0x5a; WRITE_BYTES];
    let epoll = watch(ends, EpollFlags::EPOLLOUT)?;
    let mut events = [EpollEvent::empty(); BATCH];
    let (mut sent, mut quiet_ms) = (0, 0u128);
    while !stop.load(Ordering::Relaxed) {
        let ready = wait(&epoll, &mut events, &mut quiet_ms).context("streams cannot be sent")?;
        for event in &events[..ready] {
            let mut socket = &ends[event.data() as usize].socket;
            for _ in 0..WRITES {
                match socket.write(&data) {
                    Ok(count) => {
                        sent += count as u64;
                        if count < data.len() {
                            break;
                        }
                    }
                    Err(error) if is_passing(&error) => break,
                    Err(error) => return Err(error).context("a stream cannot be sent"),
                }
            }
        }
    }
    for end in ends {
        end.socket.shutdown(Shutdown::Write).context("a stream cannot be ended")?;
    }
    Ok(sent)
}

/// Receives until the end of all streams. MSG_TRUNC drops the bytes in the kernel instead of copying them out.
fn sink(mut ends: Vec<End>, received: &[AtomicU64]) -> Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let epoll = watch(&ends, EpollFlags::EPOLLIN)?;
    let mut events = [EpollEvent::empty(); BATCH];
    let (mut open, mut quiet_ms) = (ends.len(), 0u128);
    while open > 0 {
        let ready = wait(&epoll, &mut events, &mut quiet_ms).with_context(|| format!("{open} streams do not end"))?;
        for event in &events[..ready] {
            let end = &mut ends[event.data() as usize];
            match recv(end.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
                Ok(0) => {
                    epoll.delete(&end.socket)?;
                    open -= 1;
                }
                Ok(count) => drop(received[end.place].fetch_add(count as u64, Ordering::Relaxed)),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(io::Error::from(errno)).context("a stream does not end well"),
            }
        }
    }
    Ok(())
}

/// Streams are called by their index among `ends`. Level-triggered, so that a turn may leave something for the next.
fn watch(ends: &[End], flags: EpollFlags) -> Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (index, end) in ends.iter().enumerate() {
        epoll.add(&end.socket, EpollEvent::new(flags, index as u64))?;
    }
    Ok(epoll)
}

/// Fails when nothing was ready for [`IO_TIMEOUT`].
fn wait(epoll: &Epoll, events: &mut [EpollEvent], quiet_ms: &mut u128) -> Result<usize> {
    let ready = epoll.wait(events, TICK_MS)?;
    *quiet_ms = if ready > 0 { 0 } else { *quiet_ms + u128::from(TICK_MS) };
    if *quiet_ms > IO_TIMEOUT.as_millis() {
        bail!("nothing moves for {} s", IO_TIMEOUT.as_secs());
    }
    Ok(ready)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
