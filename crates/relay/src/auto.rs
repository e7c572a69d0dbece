//! `congestion = "auto"`: watches the streams that send on a path, and gives them the congestion control that
//! [`choice`] finds for it.
//!
//! A path is known by the address at its other end, and remembered as long as the node runs: what one stream shows is
//! good for those after it. No packets are sent for it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ekiden_congestion::Algorithm;
use ekiden_congestion::choice::{self, CAREFUL, Look, TOLD};
use ekiden_net::clock::monotonic_ns;
use ekiden_net::socket;
use ekiden_net::tcp_info::{TcpInfo, tcp_info};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::congestion::once;

/// How often a stream that sends is looked at.
const LOOK: Duration = Duration::from_micros(choice::LOOK_US);
/// How rarely one is that stands still.
const LOOK_IDLE: Duration = Duration::from_secs(6);
/// Paths remembered. When they are more, those that nobody uses are forgotten.
const MOST: usize = 4096;

/// All paths of a node that choose for themselves.
#[derive(Debug, Default)]
pub struct Paths(Mutex<HashMap<IpAddr, Arc<Path>>>);

/// What is known of the way to one address.
#[derive(Debug)]
pub struct Path {
    address: IpAddr,
    /// Streams that are sending on it.
    senders: AtomicU32,
    state: Mutex<choice::Path>,
}

/// One stream on a path, looked at from time to time.
#[derive(Debug)]
pub struct Watch {
    path: Arc<Path>,
    timer: Pin<Box<Sleep>>,
    pause: Duration,
    before: Option<TcpInfo>,
    is_sending: bool,
    in_use: Algorithm,
}

impl Paths {
    /// The path to where `stream` is connected; `None` if it is not any more.
    pub fn of(&self, stream: &TcpStream) -> Option<Arc<Path>> {
        let address = stream.peer_addr().ok()?.ip();
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() >= MOST && !paths.contains_key(&address) {
            paths.retain(|_, path| Arc::strong_count(path) > 1);
        }
        let new = || Arc::new(Path { address, senders: AtomicU32::new(0), state: Mutex::default() });
        Some(paths.entry(address).or_insert_with(new).clone())
    }
}

impl Path {
    /// Gives `stream` what its path has.
    pub fn apply(&self, stream: &TcpStream) -> Algorithm {
        let algorithm = self.current();
        if let Err(error) = socket::set_congestion(stream, algorithm.name()) {
            once(&format!("'{algorithm}', which a path needs, cannot be had any more: {error}"));
        }
        algorithm
    }

    fn current(&self) -> Algorithm {
        self.state().current(now_us())
    }

    /// Takes two looks at a stream with [`CAREFUL`].
    fn look(&self, before: &TcpInfo, now: &TcpInfo) {
        let senders = self.senders.load(Ordering::Relaxed).max(1);
        if let Some(told) = self.state().look(&look(before), &look(now), senders, now_us()) {
            tracing::info!("{TOLD}{}: {told}", self.address);
        }
    }

    fn state(&self) -> MutexGuard<'_, choice::Path> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Watches a stream on `path`.
    pub fn new(path: Arc<Path>, stream: &TcpStream) -> Self {
        let in_use = path.apply(stream);
        Self { path, timer: Box::pin(sleep(LOOK)), pause: LOOK, before: None, is_sending: false, in_use }
    }

    /// To be called whenever the stream's task runs; wakes it when it is time to look again.
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &TcpStream) {
        while let Poll::Ready(()) = self.timer.as_mut().poll(cx) {
            self.look(stream);
            self.timer.as_mut().reset(Instant::now() + self.pause);
        }
    }

    fn look(&mut self, stream: &TcpStream) {
        // A connection that has ended has nothing to tell.
        let Ok(now) = tcp_info(stream) else { return };
        let before = self.before.replace(now);
        let was_sending = self.is_sending;
        self.set_sending(before.is_some_and(|before| before.acked_bytes != now.acked_bytes));
        self.pause = if self.is_sending { LOOK } else { (self.pause * 2).min(LOOK_IDLE) };
        if let Some(before) = before
            && was_sending
            && self.is_sending
            && self.in_use == CAREFUL
        {
            self.path.look(&before, &now);
        }
        if self.path.current() != self.in_use {
            self.in_use = self.path.apply(stream);
        }
    }

    fn set_sending(&mut self, is_sending: bool) {
        match (self.is_sending, is_sending) {
            (false, true) => self.path.senders.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.path.senders.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        self.is_sending = is_sending;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.set_sending(false);
    }
}

fn now_us() -> u64 {
    monotonic_ns() / 1000
}

fn look(info: &TcpInfo) -> Look {
    Look {
        cwnd: info.cwnd_segments,
        ssthresh: Some(info.ssthresh_segments).filter(|&ssthresh| ssthresh < i32::MAX as u32),
        rtt_us: info.rtt_us,
        rtt_min_us: info.rtt_min_us,
        retransmits: info.retransmits,
    }
}
