//! Resets streams on which nothing moves, and those that have run for too long, where the configuration has such limits.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ekiden_net::tcp_info::tcp_info;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::config::Limits;
use crate::stream::pump::PumpError;

/// How many times a stream is checked within the time for which it may be idle.
const CHECKS: u32 = 4;

/// The limits of one stream.
pub struct Expiry {
    idle: Option<Duration>,
    end: Option<Instant>,
    /// When bytes were last seen to move, and how many had moved by then.
    moved: (Instant, u64),
    next: Pin<Box<Sleep>>,
}

impl Expiry {
    /// For a stream that begins now; `None` if nothing limits it.
    pub fn new(limits: &Limits) -> Option<Box<Self>> {
        let now = Instant::now();
        let (idle, end) = (limits.idle, limits.lifetime.map(|lifetime| now + lifetime));
        let first = next(now, idle, end)?;
        Some(Box::new(Self { idle, end, moved: (now, 0), next: Box::pin(sleep_until(first)) }))
    }

    /// Ready when the stream between `a` and `b` must be reset. To be polled whenever its task runs.
    pub fn poll(&mut self, cx: &mut Context<'_>, a: &TcpStream, b: &TcpStream) -> Poll<PumpError> {
        loop {
            ready!(self.next.as_mut().poll(cx));
            let now = Instant::now();
            if self.end.is_some_and(|end| now >= end) {
                return Poll::Ready(PumpError::Expired("limits.lifetime"));
            }
            // Only what a receiver has taken counts: bytes that wait for one stand still.
            let taken = [a, b].map(|stream| tcp_info(stream).map_or(0, |info| info.acked_bytes)).iter().sum();
            if taken != self.moved.1 {
                self.moved = (now, taken);
            } else if self.idle.is_some_and(|idle| now >= self.moved.0 + idle) {
                return Poll::Ready(PumpError::Expired("limits.idle"));
            }
            let Some(at) = next(now, self.idle, self.end) else { return Poll::Pending };
            self.next.as_mut().reset(at);
        }
    }
}

/// Completes when the limits give up what is left of a stream: bytes that the other end of `socket` has yet to take.
pub async fn passed(expiry: &mut Option<Box<Expiry>>, socket: &TcpStream) {
    match expiry {
        Some(expiry) => drop(poll_fn(|cx| expiry.poll(cx, socket, socket)).await),
        None => pending().await,
    }
}

/// When to look again.
fn next(now: Instant, idle: Option<Duration>, end: Option<Instant>) -> Option<Instant> {
    idle.map(|idle| now + idle / CHECKS).into_iter().chain(end).min()
}
