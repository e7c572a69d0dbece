//! Resets streams on which nothing moves, and those that have run for too long, where the configuration has such limits. Gives up the rest
//! of a stream whose client has received its end, if that rest is in the way of other streams.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ekiden_transport::wire::Wire;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::pump::PumpError;

/// How many times a stream is checked within the time for which it may be idle.
const CHECKS: u32 = 4;

/// Timeout for the rest of a stream that is in the way of others: once nothing of it was taken for this time, the next node or the kernel
/// is left to deliver it ...
const LATE: Duration = Duration::from_secs(60);

/// ... and the timeout if this node holds none of it any more, because the next one does.
const LATE_ELSEWHERE: Duration = Duration::from_secs(10);

/// Whether the rest of a stream is in the way of others.
pub type InTheWay = Arc<AtomicBool>;

/// The time limits of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// The longest time in which none of its data is taken.
    pub idle: Option<Duration>,
    /// The longest time for which it may run.
    pub lifetime: Option<Duration>,
}

/// The limits of one stream.
pub struct Expiry {
    idle: Option<Duration>,
    end: Option<Instant>,
    /// When bytes were last seen to move, and how many had moved by then.
    moved: (Instant, u64),
    next: Pin<Box<Sleep>>,
    /// Of a stream whose client has its end.
    late: Option<InTheWay>,
}

impl Expiry {
    /// For a stream that begins now; `None` if nothing limits it.
    pub fn new(limits: impl Into<Limits>) -> Option<Box<Self>> {
        let (limits, now) = (limits.into(), Instant::now());
        let (idle, end) = (limits.idle, limits.lifetime.map(|lifetime| now + lifetime));
        let first = next(now, idle, end)?;
        Some(Box::new(Self { idle, end, moved: (now, 0), next: Box::pin(sleep_until(first)), late: None }))
    }

    /// For what is left of a stream whose client has its end.
    pub fn late(before: Option<Box<Self>>, in_the_way: InTheWay) -> Box<Self> {
        let now = Instant::now();
        let (idle, end) = before.map_or((None, None), |before| (before.idle, before.end));
        let first = now + LATE_ELSEWHERE / CHECKS;
        Box::new(Self { idle, end, moved: (now, 0), next: Box::pin(sleep_until(first)), late: Some(in_the_way) })
    }

    fn is_in_the_way(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.load(Ordering::Relaxed))
    }

    /// Ready when the stream between `a` and `b` must be reset. To be polled whenever its task runs.
    pub fn poll(&mut self, cx: &mut Context<'_>, a: &impl Wire, b: &impl Wire) -> Poll<PumpError> {
        loop {
            ready!(self.next.as_mut().poll(cx));
            let now = Instant::now();
            if self.end.is_some_and(|end| now >= end) {
                return Poll::Ready(PumpError::Expired("limits.lifetime"));
            }
            // Only what a receiver has taken counts: bytes that wait for one stand still.
            let taken = acked(a) + acked(b);
            if taken != self.moved.1 {
                self.moved = (now, taken);
            } else if self.idle.is_some_and(|idle| now >= self.moved.0 + idle) {
                return Poll::Ready(PumpError::Expired("limits.idle"));
            }
            let still = now - self.moved.0;
            if self.is_in_the_way() && (still >= LATE || still >= LATE_ELSEWHERE && holds_nothing(a)) {
                return Poll::Ready(PumpError::Expired("the places of late streams"));
            }
            let looks = self.late.is_some().then_some(LATE_ELSEWHERE);
            let idle = self.idle.into_iter().chain(looks).min();
            let Some(at) = next(now, idle, self.end) else { return Poll::Pending };
            self.next.as_mut().reset(at);
        }
    }
}

fn acked(stream: &impl Wire) -> u64 {
    stream.info().map_or(0, |info| info.acked_bytes)
}

/// Whether the kernel here has nothing left that the other end has not acknowledged.
fn holds_nothing(stream: &impl Wire) -> bool {
    stream.info().is_ok_and(|info| info.unsent_bytes == 0 && info.unacked_segments == 0)
}

/// Completes when the limits give up what is left of a stream: bytes that the other end of `wire` has yet to take.
pub async fn passed(expiry: &mut Option<Box<Expiry>>, wire: &impl Wire) {
    match expiry {
        Some(expiry) => drop(poll_fn(|cx| expiry.poll(cx, wire, wire)).await),
        None => pending().await,
    }
}

/// When to look again.
fn next(now: Instant, idle: Option<Duration>, end: Option<Instant>) -> Option<Instant> {
    idle.map(|idle| now + idle / CHECKS).into_iter().chain(end).min()
}
