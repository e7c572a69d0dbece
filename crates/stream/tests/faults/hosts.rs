//! A host: what it does by its script, and what it sees.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use ekiden_transport::is_transient;
use ekiden_transport::wire::{self, Wire};
use ekiden_units::random::word;
use tokio::time::{sleep, timeout};

use super::plan::{Finish, Script};
use super::tcp::{World, world};
use super::wire::End;

/// No host takes part for longer.
pub const PATIENCE: Duration = Duration::from_secs(1200);

/// What a host has done and seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub written: usize,
    /// Its end was said behind all that it has written.
    pub has_said_end: bool,
    pub read: usize,
    pub end: Option<Ending>,
    /// When it saw the end, or closed.
    pub at_ms: u64,
    /// When it closed.
    pub left_ms: u64,
    /// When it reset, or closed without having read all.
    pub has_reset_at: Option<u64>,
    /// What it read that was never written.
    pub wrong: Option<String>,
    /// A call has failed: what looks like an end from then on is none.
    has_failed: bool,
}

/// How the other host's direction ended for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Clean,
    Reset,
}

/// Client and server of the first stream, then those of the second.
pub const HOSTS: usize = 4;

/// The bytes that a host writes, from the first on; no host writes more than these, and each its own.
pub fn written_by(host: usize) -> &'static [u8] {
    const MOST: usize = 1 << 13;
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let all = BYTES.get_or_init(|| (0..(HOSTS * MOST) as u64).map(|n| word(7, n) as u8).collect());
    &all[host * MOST..][..MOST]
}

impl Seen {
    /// Takes what a call has received of `due`. False at the end.
    fn takes(&mut self, got: io::Result<usize>, buffer: &[u8], due: &[u8]) -> bool {
        let read = self.read;
        if let Ok(n @ 1..) = got {
            if due.get(read..read + n) != Some(&buffer[..n]) {
                self.wrong = Some(format!("bytes {read} to {} are not what was written", read + n));
            }
            self.read += n;
            return true;
        }
        let is_clean = got.is_ok() && !self.has_failed;
        self.end = Some(if is_clean { Ending::Clean } else { Ending::Reset });
        self.at_ms = world(|world| world.now_ms);
        false
    }
}

/// Plays the script at this end.
pub async fn host(number: usize, script: Script, end: End, seen: Rc<RefCell<Seen>>) {
    let both = async {
        let reads = async {
            reads(number, &script, &end, &seen).await;
            Ok(())
        };
        if script.writes_first {
            writes(number, &script, &end, &seen).await?;
            return reads.await;
        }
        tokio::try_join!(writes(number, &script, &end, &seen), reads).map(drop)
    };
    let early = timeout(PATIENCE, both).await;
    let now = world(|world| world.now_ms);
    let mut seen = seen.borrow_mut();
    seen.left_ms = now;
    let number = end.0;
    std::mem::forget(end);
    match early {
        Err(_) | Ok(Err(Finish::Resets)) => {
            seen.has_reset_at = Some(now);
            world(|world| world.reset(number));
        }
        Ok(_) => match world(|world| closes(world, number)) {
            true => seen.has_said_end |= !seen.has_failed && !world(|world| world.ends[number].needs_close()),
            false if seen.end.is_none() => seen.has_reset_at = Some(now),
            false => {}
        },
    }
    if seen.end.is_none() {
        seen.at_ms = now;
    }
}

/// Closes, with TLS mostly behind close_notify.
fn closes(world: &mut World, number: usize) -> bool {
    if world.ends[number].needs_close() && world.chance(700) {
        world.says_close(number);
    }
    world.close(number)
}

async fn writes(number: usize, script: &Script, end: &End, seen: &RefCell<Seen>) -> Result<(), Finish> {
    let mut at = 0;
    for &(pause, n) in &script.writes {
        sleep(Duration::from_millis(pause)).await;
        at += n;
        // Some of it may have been sent before.
        let from = seen.borrow().written.min(at);
        if write(&written_by(number)[from..at], end, seen).await.is_err() {
            seen.borrow_mut().has_failed = true;
            return Ok(());
        }
    }
    match script.finish {
        Finish::ShutsDown => {
            let said = wire::say_end(end).await.is_ok();
            seen.borrow_mut().has_said_end = said;
            Ok(())
        }
        Finish::Waits => Ok(()),
        early => Err(early),
    }
}

async fn write(mut bytes: &[u8], end: &End, seen: &RefCell<Seen>) -> io::Result<()> {
    while !bytes.is_empty() {
        poll_fn(|cx| end.poll_write_ready(cx)).await?;
        match end.try_send(bytes, false) {
            Ok(n) => {
                bytes = &bytes[n..];
                seen.borrow_mut().written += n;
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    poll_fn(|cx| end.poll_flush(cx)).await
}

async fn reads(number: usize, script: &Script, end: &End, seen: &RefCell<Seen>) {
    let due = written_by(number ^ 1);
    let mut buffer = vec![0; script.reads.0];
    let mut stalls = script.stalls;
    loop {
        if let Some((_, pause)) = stalls.take_if(|(at, _)| seen.borrow().read >= *at) {
            sleep(Duration::from_millis(pause)).await;
        }
        let got = wire::receive(end, &mut buffer).await;
        if !seen.borrow_mut().takes(got, &buffer, due) {
            return;
        }
        if script.reads.1 > 0 {
            sleep(Duration::from_millis(script.reads.1)).await;
        }
    }
}
