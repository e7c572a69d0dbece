//! Short connections that begin at a fixed rate, whether or not those before them have been answered: what a relay does
//! with more work than it can do.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ekiden_net::socket::open_files;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};

use super::echo::{self, BATCH};
use super::storm::{self, Call};
use super::{Path, joined};

/// Connections begun before answers are looked at again.
const BURST: u64 = 64;

/// Files that are left for the server and everything else.
const SPARE_FILES: u64 = 4096;

/// The timeout of the last answers, from the beginning of the last connection.
const DRAIN: Duration = Duration::from_secs(60);

/// What became of the connections.
#[derive(Debug, Clone, Default)]
pub struct Flood {
    /// Begun. Fewer than asked for if as many wait as files may be open.
    pub offered: u64,
    /// Answered within the measured part, per second.
    pub rate: f64,
    /// Answered in the end.
    pub answered: u64,
    /// Reset, or refused by the kernel: told so before any answer.
    pub refused: u64,
    /// Ended as if nothing more were to come, with the answer missing or incomplete.
    pub lost: u64,
    /// Neither answered nor refused when patience ended.
    pub left: u64,
    /// Milliseconds from the begin to the answer, of those that were answered.
    pub waited: Vec<f64>,
}

/// Begins `rate` connections per second for `offering`, of which the time before `measured` is not measured, and waits for
/// the answers.
pub fn run(path: Path, rate: f64, offering: Duration, measured: Duration) -> Result<Flood> {
    let listener = path.listen()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| echo::serve(&listener, &stop));
        let client = scope.spawn(|| client(path, rate, offering, measured));
        let flood = joined(client);
        stop.store(true, Ordering::Relaxed);
        joined(server)?;
        flood
    })
}

fn client(path: Path, rate: f64, offering: Duration, measured: Duration) -> Result<Flood> {
    if let Some(namespace) = path.client {
        namespace.enter()?;
    }
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let (mut calls, mut free): (Vec<Option<(Call, Instant)>>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut flood, mut open, mut in_time) = (Flood::default(), 0, 0u64);
    let mut events = [EpollEvent::empty(); BATCH];
    let most = open_files()?.saturating_sub(SPARE_FILES);
    let begun = Instant::now();
    loop {
        let now = begun.elapsed();
        let due = if now < offering { (rate * now.as_secs_f64()) as u64 } else { 0 };
        for _ in 0..due.saturating_sub(flood.offered).min(BURST).min(most.saturating_sub(open)) {
            let index = free.pop().unwrap_or_else(|| {
                calls.push(None);
                calls.len() - 1
            });
            let call = storm::call(path.connect, &epoll, index).context("is the limit of open files too low?")?;
            calls[index] = Some((call, Instant::now()));
            (flood.offered, open) = (flood.offered + 1, open + 1);
        }
        if now >= offering && (open == 0 || now >= offering + DRAIN) {
            break;
        }
        let ready = epoll.wait(&mut events, 1u8)?;
        for event in &events[..ready] {
            let index = event.data() as usize;
            let Some((call, since)) = calls.get_mut(index).and_then(Option::as_mut) else { continue };
            match storm::progress(call) {
                Ok(false) => continue,
                Ok(true) => {
                    flood.answered += 1;
                    flood.waited.push(since.elapsed().as_secs_f64() * 1e3);
                    let at = begun.elapsed();
                    in_time += u64::from(at <= offering && at + measured > offering);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused | io::ErrorKind::BrokenPipe => {
                        flood.refused += 1;
                    }
                    _ => flood.lost += 1,
                },
            }
            calls[index] = None;
            free.push(index);
            open -= 1;
        }
    }
    flood.rate = in_time as f64 / measured.as_secs_f64();
    flood.left = open;
    Ok(flood)
}
