//! Files of one size, a connection for each: how long each takes, at a fixed rate or with a fixed number at any time.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{MsgFlags, recv};

use super::echo::{BATCH, TICK_MS};
use super::{Path, joined, storm};

/// Bytes of each file.
pub const FILE: usize = 8 << 20;

/// The maximum number of transfers that are begun before the running ones are looked at again.
const BURST: u64 = 64;
/// The timeout of the last transfers, from the beginning of the last one.
const DRAIN: Duration = Duration::from_secs(60);
/// The listener's name among events.
const LISTENER: u64 = u64::MAX;

/// When transfers begin.
#[derive(Debug, Clone, Copy)]
pub enum Begin {
    /// When another ends, so that this number of transfers runs at any time.
    AtATime(u64),
    /// At this rate per second, whether or not those before them have ended.
    PerSecond(f64),
}

/// The results of the transfers.
#[derive(Debug, Clone, Default)]
pub struct Transfers {
    /// Begun.
    pub begun: u64,
    /// Files per second that were complete while transfers still began.
    pub rate: f64,
    /// Seconds from the begin to the end, of those that arrived in whole.
    pub took: Vec<f64>,
    /// Reset or refused.
    pub refused: u64,
    /// Ended as if that were all, and incomplete; or not over when patience ended.
    pub lost: u64,
}

/// Runs transfers that begin within `offering`, and waits for the last.
pub fn run(path: Path, begin: Begin, offering: Duration) -> Result<Transfers> {
    let listener = path.listen()?;
    listener.set_nonblocking(true)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &stop));
        let transfers = joined(scope.spawn(|| fetch(path, begin, offering)));
        stop.store(true, Ordering::Relaxed);
        joined(server)?;
        transfers
    })
}

/// One connection, and what it has sent or got.
struct Transfer {
    socket: TcpStream,
    bytes: usize,
    begun: Instant,
}

/// Sends a file to everyone who connects.
fn serve(listener: &TcpListener, stop: &AtomicBool) -> Result<()> {
    let file = vec![0x5a; FILE];
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut transfers: Vec<Option<Transfer>> = Vec::new();
    let mut events = [EpollEvent::empty(); BATCH];
    while !stop.load(Ordering::Relaxed) {
        let ready = epoll.wait(&mut events, TICK_MS)?;
        for event in &events[..ready] {
            if event.data() == LISTENER {
                // A client that has left meanwhile does not matter.
                let Ok((socket, _)) = listener.accept() else { continue };
                socket.set_nonblocking(true)?;
                let place = socket.as_raw_fd() as usize;
                epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLOUT, place as u64))?;
                if transfers.len() <= place {
                    transfers.resize_with(place + 1, || None);
                }
                transfers[place] = Some(Transfer { socket, bytes: 0, begun: Instant::now() });
            } else if let Some(place) = transfers.get_mut(event.data() as usize)
                && let Some(transfer) = place
            {
                match transfer.socket.write(&file[transfer.bytes..]) {
                    Ok(count) => transfer.bytes += count,
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    // The client notices.
                    Err(_) => transfer.bytes = FILE,
                }
                if transfer.bytes >= FILE {
                    *place = None;
                }
            }
        }
    }
    Ok(())
}

fn fetch(path: Path, begin: Begin, offering: Duration) -> Result<Transfers> {
    if let Some(namespace) = path.client {
        namespace.enter()?;
    }
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let (mut running, mut free): (Vec<Option<Transfer>>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut transfers, mut open, mut in_time) = (Transfers::default(), 0u64, 0u64);
    let mut events = [EpollEvent::empty(); BATCH];
    let mut buffer = vec![0; FILE];
    let start = Instant::now();
    loop {
        let now = start.elapsed();
        let due = match begin {
            _ if now >= offering => 0,
            Begin::AtATime(count) => count - open,
            Begin::PerSecond(rate) => ((rate * now.as_secs_f64()) as u64).saturating_sub(transfers.begun),
        };
        for _ in 0..due.min(BURST) {
            let place = free.pop().unwrap_or_else(|| {
                running.push(None);
                running.len() - 1
            });
            let socket = storm::connect(path.connect).context("is the limit of open files too low?")?;
            epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, place as u64))?;
            running[place] = Some(Transfer { socket, bytes: 0, begun: Instant::now() });
            (transfers.begun, open) = (transfers.begun + 1, open + 1);
        }
        if now >= offering && (open == 0 || now >= offering + DRAIN) {
            break;
        }
        let ready = epoll.wait(&mut events, 1u8)?;
        for event in &events[..ready] {
            let place = event.data() as usize;
            let Some(Some(transfer)) = running.get_mut(place) else { continue };
            match recv(transfer.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT) {
                Ok(0) if transfer.bytes == FILE => {
                    transfers.took.push(transfer.begun.elapsed().as_secs_f64());
                    in_time += u64::from(start.elapsed() <= offering);
                }
                Ok(0) => transfers.lost += 1,
                Ok(count) => {
                    transfer.bytes += count;
                    continue;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(_) => transfers.refused += 1,
            }
            running[place] = None;
            free.push(place);
            open -= 1;
        }
    }
    transfers.lost += open;
    transfers.rate = in_time as f64 / offering.as_secs_f64();
    ensure!(!transfers.took.is_empty(), "no file arrives");
    Ok(transfers)
}
