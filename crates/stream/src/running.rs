//! One side of a stream while it runs: how it breaks, and what happens to the rest when a host has sent its end and is then gone.
//!
//! A host may send its end and forget the connection while its data is still on its way, for minutes where a receiver or a leg is
//! slow. Its kernel answers everything that arrives after that with a reset. The host's data is passed on all the same, up to the
//! end, as its own kernel would have done. Data for the host is refused from then on, and its sender learns of the refusal behind
//! the end (docs/design/protocol.md §6).

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ekiden_transport::wire::Wire;
use tokio::time::{sleep, timeout};

use crate::alarm::{Alarm, Change};
use crate::between_streams::{POLL_LEAST, POLL_MOST};
use crate::framing::{Framing, ResetCode};
use crate::pump::{Pump, PumpError};

/// How long reading of refused data pauses once the limit on discarded data is reached.
const DISCARD_PAUSE: Duration = Duration::from_secs(60);

/// A side while its stream runs.
pub struct Running<'a, W: Wire> {
    pub stream: &'a W,
    pub framing: Framing,
    alarm: Alarm<'a>,
    /// Whether a host's FIN has arrived, once something was seen of that: what can still be read goes up to an end that was said, whatever
    /// happens to the connection.
    has_ended: Option<bool>,
    /// Why it takes nothing any more, although it has said its end. What it has said is still passed on.
    refusal: Option<PumpError>,
    has_passed_on: bool,
    /// While the other side refuses what this one sends: see [`waits`].
    waits: Option<Pin<Box<dyn Future<Output = bool> + Send + 'a>>>,
}

impl<'a, W: Wire> Running<'a, W> {
    pub fn new(stream: &'a W, framing: Framing) -> Self {
        let (alarm, has_ended, refusal, has_passed_on) = (Alarm::default(), None, None, false);
        Self { stream, framing, alarm, has_ended, refusal, has_passed_on, waits: None }
    }

    /// Moves what goes from this side to `receiver`.
    pub fn move_to(
        &mut self,
        cx: &mut Context<'_>,
        receiver: &mut Running<'_, W>,
        pumps: Pumps<'_, W>,
    ) -> Poll<PumpError> {
        let Pumps { from, to } = pumps;
        if !from.is_done() {
            match from.poll(cx, self.stream, receiver.stream) {
                Poll::Ready(Err(PumpError::Send(error))) if receiver.has_said_end(to) => {
                    receiver.refuses(cx, PumpError::Send(error), from);
                }
                // Its sender has gone, and is told nothing.
                Poll::Ready(Err(PumpError::Receive(_) | PumpError::Truncated)) if from.is_refused() && to.is_done() => {
                    from.leave();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    /// Whether this side is a host whose end came before its connection broke; `from` is its direction. The error does not tell: the
    /// kernel reports it once, to whichever call comes first, also to a splice that then says only what it has moved.
    fn has_said_end(&self, from: &Pump<W>) -> bool {
        let has_ended = || self.has_ended == Some(true) || from.has_read_end();
        self.framing == Framing::Raw && (has_ended() || self.stream.has_received_end())
    }

    fn refuses(&mut self, cx: &Context<'_>, why: PumpError, to: &mut Pump<W>) {
        to.refuse();
        self.refusal = Some(why);
        cx.waker().wake_by_ref();
    }

    /// Ready if this side has broken while the direction `from` it does not read and so cannot notice. A node may end its
    /// connection only after the direction `to` it has ended too.
    pub fn breaks(&mut self, cx: &mut Context<'_>, pumps: Pumps<'_, W>, receiver: &W) -> Poll<PumpError> {
        let Pumps { from, to } = pumps;
        let is_node = self.framing == Framing::Leg;
        if is_node && from.is_done() && !to.is_done() && self.refusal.is_none() {
            match from.poll_refusal(cx, self.stream) {
                Poll::Ready(Ok(code)) => self.refuses(cx, PumpError::Reset(code), to),
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => {}
            }
        }
        while (is_node || self.refusal.is_none()) && (!from.is_reading() || receiver.has_pending()) {
            let watches_end = if is_node {
                !to.is_done() || from.has_discarded_enough()
            } else {
                self.has_ended.is_none() && !from.has_read_end()
            };
            match ready!(self.alarm.poll(cx, self.stream, watches_end)) {
                // Nothing more of it comes, and nothing more is wanted.
                Change::Ended | Change::Broken(_) if is_node && from.is_refused() && to.is_done() => {
                    from.leave();
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Change::Ended if is_node => {
                    return Poll::Ready(PumpError::Receive(io::ErrorKind::UnexpectedEof.into()));
                }
                // A connection that broke shows an end as well.
                Change::Ended => self.has_ended = Some(self.stream.has_received_end()),
                Change::Broken(error) if self.has_said_end(from) => {
                    self.refuses(cx, PumpError::Receive(error), to);
                }
                Change::Broken(error) => return Poll::Ready(PumpError::Receive(error)),
            }
        }
        Poll::Pending
    }

    /// Once this side's data, up to its end, was passed on to `receiver`, tells `receiver` that what it still sends is refused.
    /// A node learns it behind the END. A host is reset as soon as it has everything: then this is ready.
    pub fn tell_refusal(
        &mut self,
        cx: &mut Context<'_>,
        pumps: Pumps<'_, W>,
        receiver: &mut Running<'_, W>,
    ) -> Poll<PumpError> {
        let Pumps { from, to } = pumps;
        if self.refusal.is_none() {
            return Poll::Pending;
        }
        if from.is_done() && !std::mem::replace(&mut self.has_passed_on, true) {
            receiver.waits = None;
            if receiver.framing == Framing::Leg {
                from.say_refusal(ResetCode::Broken);
                cx.waker().wake_by_ref();
            }
        }
        let awaits_ack = self.has_passed_on && receiver.framing == Framing::Raw;
        if !awaits_ack && !to.has_discarded_enough() {
            return Poll::Pending;
        }
        let stream = receiver.stream;
        let waits = receiver.waits.get_or_insert_with(|| Box::pin(waits(stream, awaits_ack)));
        if ready!(waits.as_mut().poll(cx)) {
            return self.refusal.take().map_or(Poll::Pending, Poll::Ready);
        }
        receiver.waits = None;
        to.discard_more();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The two directions of a stream, as one side sees them.
pub struct Pumps<'a, W: Wire> {
    pub from: &'a mut Pump<W>,
    pub to: &'a mut Pump<W>,
}

/// For a side whose data is refused: completes with true when its kernel has acknowledged everything, if it `awaits_ack`; with false after
/// [`DISCARD_PAUSE`], when more of its data is to be discarded. Without that timeout the refusal might never arrive: a host may read only
/// after it has written, and a node that refuses the other direction waits in the same way.
async fn waits(stream: &impl Wire, awaits_ack: bool) -> bool {
    let acknowledged = async {
        match awaits_ack {
            true => acknowledged(stream).await,
            false => pending().await,
        }
    };
    timeout(DISCARD_PAUSE, acknowledged).await.is_ok()
}

/// Completes when the other kernel has acknowledged everything, or the connection has broken.
pub async fn acknowledged(stream: &impl Wire) {
    let mut pause = POLL_LEAST;
    while stream.info().is_ok_and(|info| info.awaits_ack()) {
        sleep(pause).await;
        pause = (pause * 2).min(POLL_MOST);
    }
}
