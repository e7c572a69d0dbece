//! A whole stream: both directions between two sockets, and what closing them means.

use std::future::poll_fn;
use std::net::Shutdown;
use std::task::{Context, Poll};
use std::time::Duration;

use ekiden_net::tcp_info::tcp_info;
use ekiden_relay_proto::segment::{Header, Kind};
use socket2::SockRef;
use tokio::time::{Instant, sleep};

use crate::alarm::Alarm;
use crate::connection::Connection;
use crate::expiry::Expiry;
use crate::node::Busy;
use crate::pump::{Pump, PumpError};

/// How soon, and later how often, it is looked whether the end of a stream has arrived.
const DELIVERY_LOOK: Duration = Duration::from_millis(20);
const DELIVERY_LOOK_MOST: Duration = Duration::from_millis(500);
/// From then on it is left to the kernel.
const DELIVERY_MOST: Duration = Duration::from_secs(60);

/// RESET codes (docs/protocol.md §6).
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub enum ResetCode {
    /// A connection further along broke or was reset.
    Broken = 1,
    /// The other node broke the protocol.
    Violation = 2,
}

/// One end of a stream at this node.
#[derive(Debug)]
pub struct Side {
    /// The connection. It resets when dropped, unless [`Side::end_cleanly`] was called.
    pub stream: Connection,
    /// Whether a node is at the other end, so that frames are spoken.
    pub node: bool,
    /// Whether this end of the connection has an address that is not this machine's.
    pub foreign: bool,
}

/// Both directions of a stream.
#[derive(Debug)]
pub struct Duplex {
    a: Side,
    b: Side,
    forward: Pump,
    backward: Pump,
}

impl Side {
    /// A host's connection.
    pub fn host(stream: impl Into<Connection>) -> Self {
        Self { stream: stream.into(), node: false, foreign: false }
    }

    /// A node's connection.
    pub fn node(stream: Connection) -> Self {
        Self { stream, node: true, foreign: false }
    }

    /// Both directions have ended: what is queued is to be delivered, then the end.
    ///
    /// Only here does a connection to a host lose its reset on close. Until then whatever kills this process makes the
    /// kernel drop what is queued and reset, also after one direction was ended by shutdown, and in every state in which
    /// something is queued. From here on the kernel delivers what is queued, and then an end that was said, whether or
    /// not the process lives on. So it may be called only when nothing is left to be read or written: a byte unread
    /// resets, a byte unwritten makes a false end.
    pub fn end_cleanly(self) {
        self.stream.end_cleanly();
    }

    /// As [`Side::end_cleanly`], and keeps the connection until all has arrived. Whoever stops the node waits for `busy`, and
    /// only then takes away the rules by which acknowledgements for a foreign address come here.
    pub async fn deliver(self, busy: Busy) {
        // It may have been said before, and the connection may be gone.
        let _ = SockRef::from(self.stream.socket()).shutdown(Shutdown::Write);
        let (mut pause, give_up) = (DELIVERY_LOOK, Instant::now() + DELIVERY_MOST);
        while tcp_info(self.stream.socket()).is_ok_and(|info| info.is_ending) && Instant::now() < give_up {
            sleep(pause).await;
            pause = (pause * 2).min(DELIVERY_LOOK_MOST);
        }
        self.end_cleanly();
        drop(busy);
    }

    /// Tells a node why its stream is given up, if the connection takes it at once.
    fn reset(self, code: ResetCode, between_frames: bool) {
        if self.node && between_frames {
            let frame = Header { kind: Kind::Reset, length: code as u32 }.encode();
            if self.stream.send_last(&frame) {
                self.stream.end_cleanly();
            }
        }
    }
}

impl Duplex {
    /// A stream between `a` and `b`; `first` was already read from `a`.
    pub fn new(a: Side, b: Side, first: &[u8]) -> Self {
        let forward = Pump::whole(a.node, b.node).with_first(first);
        let backward = Pump::whole(b.node, a.node);
        Self { a, b, forward, backward }
    }

    /// Runs until both directions have ended; returns the sides, still open. A host that is among them must be
    /// closed by [`Side::end_cleanly`]: it may not have heard the end before. At the first error, and at the
    /// `expiry`, both sides are reset.
    pub async fn run(mut self, mut expiry: Option<Box<Expiry>>) -> Result<(Side, Side), PumpError> {
        let result = {
            let Self { a, b, forward, backward } = &mut self;
            let (mut a, mut b) = (Running::new(a), Running::new(b));
            poll_fn(|cx| {
                if let Some(expiry) = &mut expiry
                    && let Poll::Ready(error) = expiry.poll(cx, a.stream.socket(), b.stream.socket())
                {
                    return Poll::Ready(Err(error));
                }
                poll(cx, &mut a, &mut b, forward, backward)
            })
            .await
        };
        match result {
            Ok(()) => Ok((self.a, self.b)),
            Err(error) => {
                let code = match error {
                    PumpError::Violation(_) => ResetCode::Violation,
                    _ => ResetCode::Broken,
                };
                self.a.reset(code, self.backward.is_between_frames() && !self.backward.is_done());
                self.b.reset(code, self.forward.is_between_frames() && !self.forward.is_done());
                Err(error)
            }
        }
    }
}

/// A side while its stream runs.
struct Running<'a> {
    stream: &'a Connection,
    node: bool,
    alarm: Alarm<'a>,
}

impl<'a> Running<'a> {
    fn new(side: &'a Side) -> Self {
        Self { stream: &side.stream, node: side.node, alarm: Alarm::default() }
    }

    /// Ready if this side has broken and the direction `from` it, which does not read now, cannot notice. A node may end
    /// its connection only after the direction `to` it has ended too.
    fn breaks(&mut self, cx: &mut Context<'_>, from: &Pump, to: &Pump, receiver: &Connection) -> Poll<PumpError> {
        if from.is_reading() && !receiver.owes() {
            return Poll::Pending;
        }
        self.alarm.poll(cx, self.stream.socket(), self.node && !to.is_done()).map(PumpError::Receive)
    }
}

fn poll(
    cx: &mut Context<'_>,
    a: &mut Running<'_>,
    b: &mut Running<'_>,
    forward: &mut Pump,
    backward: &mut Pump,
) -> Poll<Result<(), PumpError>> {
    if backward.is_done() {
        forward.leave_end_to_close();
    }
    if !forward.is_done()
        && let Poll::Ready(Err(error)) = forward.poll(cx, a.stream, b.stream)
    {
        return Poll::Ready(Err(error));
    }
    // All that `a` said was read up to its end, so closing `a` cannot reset it for unread bytes.
    if forward.is_done() {
        backward.leave_end_to_close();
    }
    if !backward.is_done()
        && let Poll::Ready(Err(error)) = backward.poll(cx, b.stream, a.stream)
    {
        return Poll::Ready(Err(error));
    }
    if forward.is_done() && backward.is_done() {
        return Poll::Ready(Ok(()));
    }
    if let Poll::Ready(error) = a.breaks(cx, forward, backward, b.stream) {
        return Poll::Ready(Err(error));
    }
    b.breaks(cx, backward, forward, a.stream).map(Err)
}
