//! A whole stream: both directions between two connections, and how these are closed.
//!
//! A host's connection resets when it is closed, until `Side::end_cleanly`: only after both directions have ended, and all is written, may
//! a close look like an end.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::task::{Context, Poll};

use ekiden_relay_proto::leg::{FrameKind, Header};
use ekiden_transport::wire::{self, Wire};
use tokio::time::sleep;

use crate::between_streams::{POLL_LEAST, POLL_MOST};
use crate::expiry::{self, Expiry};
use crate::framing::{Framing, ResetCode};
use crate::last_words;
use crate::observer::Observer;
use crate::output::Output;
use crate::pump::{Pump, PumpError};
use crate::running::{Pumps, Running};

/// One end of a stream at this node.
#[derive(Debug)]
pub struct Side<W> {
    /// The connection. It resets when dropped, unless [`Side::end_cleanly`] was called.
    pub stream: W,
    /// Its framing: raw bytes, or frames with a node.
    pub framing: Framing,
    /// Whether this end of the connection has an address that is not this machine's (transparent proxying).
    pub has_transparent_address: bool,
    /// Whether all that this host was sent, a proxy's reply and its stream, fits into one segment. It has room for that: nothing of it
    /// waits to be sent.
    pub was_sent_little: bool,
}

/// Both directions of a stream.
#[derive(Debug)]
pub struct Duplex<W: Wire> {
    a: Side<W>,
    b: Side<W>,
    forward: Pump<W>,
    backward: Pump<W>,
    /// The caller must send the end of `backward`.
    owes_end: bool,
}

/// Why a stream was reset.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Broken {
    /// The first error.
    pub error: PumpError,
    /// Whether it was the error of the connection to `b`, the side that was asked for.
    pub is_beyond: bool,
}

/// A stream whose directions have both ended. Its connections are still open.
#[derive(Debug)]
pub struct Finished<W> {
    /// The side that asked for the stream. A host may not have heard the end before [`Side::end_cleanly`].
    pub a: Side<W>,
    /// The other side. A host may not have heard the end before [`Side::end_cleanly`].
    pub b: Side<W>,
    /// `a` is a node, and END or DELIVERED must still be sent to it.
    pub owes_end: bool,
    /// `b` is a node that has said DELIVERED.
    pub is_delivered: bool,
    /// Something that `a` has sent may have been discarded: `b` had ended and then refused it.
    pub is_refused: bool,
    /// The same for what `b` has sent.
    pub has_refused: bool,
}

impl<W: Wire> Side<W> {
    /// A host's connection.
    pub fn host(stream: impl Into<W>) -> Self {
        Self { stream: stream.into(), framing: Framing::Raw, has_transparent_address: false, was_sent_little: false }
    }

    /// A node's connection.
    pub fn node(stream: W) -> Self {
        Self { stream, framing: Framing::Leg, has_transparent_address: false, was_sent_little: false }
    }

    /// Whether a node is at the other end.
    pub fn is_node(&self) -> bool {
        self.framing == Framing::Leg
    }

    /// A writer to it.
    pub fn output(&self) -> Output<'_, W> {
        Output { connection: &self.stream, framing: self.framing }
    }

    /// Whether it has sent data that has not been read yet.
    pub fn has_unread(&self) -> bool {
        self.stream.has_unread()
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

    /// As [`Side::end_cleanly`], if the kernel has sent everything to the host, so that the connection need not be kept open;
    /// otherwise [`Side::deliver`] is to follow.
    pub fn end_if_sent(self) -> Result<(), Self> {
        let has_unsent = || !self.was_sent_little && self.stream.has_unsent();
        if self.has_transparent_address || has_unsent() {
            return Err(self);
        }
        self.end_cleanly();
        Ok(())
    }

    /// Sends a host the end, and keeps the connection for [`Side::deliver`]. From here on the kernel delivers what is queued
    /// even if this process dies, as after [`Side::end_cleanly`].
    ///
    /// With a transparent address the connection is still reset if this process dies. Its packet filter rules go with it, and
    /// without them no acknowledgement arrives: the kernel could not know whether the data has arrived.
    pub fn say_end(&self) {
        if !self.has_transparent_address {
            self.stream.end_cleanly();
        }
        // An error means that the connection is gone. An end that was sent before is not sent again.
        let _ = self.stream.shut_down();
    }

    /// Sends the end and keeps the connection until the host has acknowledged everything, or the limits pass. If this future is
    /// dropped before, the kernel delivers the rest, but resets a connection with a transparent address.
    ///
    /// Two things need a process that keeps the connection. A receiver may have no room for minutes: the kernel gives up a
    /// closed connection then, but not an open one. And acknowledgements for a transparent address arrive only while the packet
    /// filter rules stand: a node that stops waits for this before it removes them.
    pub async fn deliver(self, expiry: &mut Option<Box<Expiry>>) {
        self.say_end();
        let _rest = (!self.has_transparent_address).then(|| LeaveToKernel(&self.stream));
        let arrived = async {
            if self.stream.has_pending() {
                // An error means that the connection is gone.
                let _ = wire::say_end(&self.stream).await;
            }
            let mut pause = POLL_LEAST;
            while self.stream.info().is_ok_and(|info| info.is_ending) {
                sleep(pause).await;
                pause = (pause * 2).min(POLL_MOST);
            }
        };
        // What the host still sends is read and discarded. A host may read only after it has sent everything, and to close a
        // connection with unread data resets it.
        tokio::select! {
            biased;
            () = arrived => self.stream.end_cleanly(),
            () = expiry::passed(expiry, &self.stream) => {}
            () = last_words::discard(&self.stream) => {}
        }
    }

    /// Sends a node the reason of a reset, if the connection takes it at once.
    fn reset(self, code: ResetCode, may_be_said: bool) {
        if self.is_node() && may_be_said {
            let frame = Header { kind: FrameKind::Reset, length: code as u32 }.encode();
            if wire::send_last(&self.stream, &frame) {
                self.stream.end_cleanly();
            }
        }
    }
}

/// Leaves the connection to the kernel when dropped.
struct LeaveToKernel<'a, W: Wire>(&'a W);

impl<W: Wire> Drop for LeaveToKernel<'_, W> {
    fn drop(&mut self) {
        self.0.leave_to_kernel();
    }
}

impl<W: Wire> Duplex<W> {
    /// A stream that `a` asked for, to `b`; `first` was already read from `a`.
    pub fn new(a: Side<W>, b: Side<W>, first: &[u8]) -> Self {
        let forward = Pump::whole(a.framing, b.framing).with_first(first);
        let backward = Pump::whole(b.framing, a.framing);
        Self { a, b, forward, backward, owes_end: false }
    }

    /// Runs until both directions have ended. At the first error, and at the `expiry`, both sides are reset. `observer` is
    /// told how it goes.
    #[allow(clippy::manual_async_fn, reason = "an async function's future keeps its arguments twice")]
    pub fn run<O: Observer<W>>(
        mut self,
        expiry: &mut Option<Box<Expiry>>,
        observer: O,
    ) -> impl Future<Output = Result<Finished<W>, Broken>> {
        async move {
            let result = {
                let Self { a, b, forward, backward, owes_end } = &mut self;
                let mut watching = observer.watch(&a.stream, &b.stream);
                let (mut a, mut b) = (Running::new(&a.stream, a.framing), Running::new(&b.stream, b.framing));
                let result = poll_fn(|cx| {
                    if let Some(expiry) = expiry
                        && let Poll::Ready(error) = expiry.poll(cx, a.stream, b.stream)
                    {
                        return Poll::Ready(Err(Broken { error, is_beyond: false }));
                    }
                    let polled = poll(cx, &mut a, &mut b, forward, backward, owes_end);
                    if let Some(watching) = &mut watching {
                        watching.moved(forward.progress(), backward.progress());
                    }
                    polled
                })
                .await;
                if let Some(watching) = &mut watching {
                    match &result {
                        Ok(()) if forward.is_refused() || backward.is_refused() => {}
                        Ok(()) => watching.is_done(),
                        Err(Broken { error: PumpError::Expired(_), .. }) => {}
                        Err(Broken { is_beyond, .. }) => watching.broke(*is_beyond),
                    }
                }
                result
            };
            match result {
                Ok(()) => {
                    let Self { mut a, mut b, forward, backward, owes_end } = self;
                    a.was_sent_little &= backward.is_little();
                    b.was_sent_little &= forward.is_little();
                    // Half a header behind an END is half a refusal.
                    let is_refused = forward.is_refused() || backward.is_in_header();
                    let has_refused = backward.is_refused() || forward.is_in_header();
                    Ok(Finished { a, b, owes_end, is_delivered: backward.is_delivered(), is_refused, has_refused })
                }
                Err(broken) => {
                    self.pass_on(&broken, expiry).await;
                    let code = match broken.error {
                        PumpError::Protocol(_) => ResetCode::Protocol,
                        _ => ResetCode::Broken,
                    };
                    // A host that has broken off behind its end still gets what is on its way to it.
                    let is_told = matches!(broken.error, PumpError::Receive(_)) && !broken.is_beyond;
                    match is_told && self.backward.is_done() && !self.a.is_node() {
                        true => self.a.stream.leave_to_kernel(),
                        false => self.a.reset(code, self.backward.may_be_reset()),
                    }
                    self.b.reset(code, self.forward.may_be_reset());
                    Err(broken)
                }
            }
        }
    }

    /// Passes on what a side had said before its connection broke.
    async fn pass_on(&mut self, broken: &Broken, expiry: &mut Option<Box<Expiry>>) {
        // Behind a record of TLS that was damaged, or frames that make no sense, nothing is what the side has said.
        let reads_on = match &broken.error {
            PumpError::Receive(error) if error.kind() == ErrorKind::InvalidData => return,
            PumpError::Send(_) | PumpError::Receive(_) => true,
            PumpError::Reset(_) | PumpError::Truncated => false,
            PumpError::Malformed(_) | PumpError::Expired(_) | PumpError::Protocol(_) => return,
        };
        let Self { a, b, forward, backward, .. } = self;
        let (pump, from, to) = if broken.is_beyond { (backward, b, a) } else { (forward, a, b) };
        // Boxed: streams that do not break should not pay for its size.
        Box::pin(last_words::pass_on(pump, reads_on, &from.stream, to.output(), expiry)).await;
    }
}

fn poll<W: Wire>(
    cx: &mut Context<'_>,
    a: &mut Running<'_, W>,
    b: &mut Running<'_, W>,
    forward: &mut Pump<W>,
    backward: &mut Pump<W>,
    owes_end: &mut bool,
) -> Poll<Result<(), Broken>> {
    let broken = |error, is_beyond| Poll::Ready(Err(Broken { error, is_beyond }));
    if backward.is_done() && b.stream.ends_by_close() {
        forward.leave_end_to_close();
    }
    if let Poll::Ready(error) = a.move_to(cx, b, Pumps { from: forward, to: backward }) {
        let is_beyond = matches!(error, PumpError::Send(_));
        return broken(error, is_beyond);
    }
    // All that `a` said was read up to its end, so closing `a` cannot reset it for unread bytes. A node may be told with its
    // end that all was delivered.
    if forward.is_done() {
        backward.said_end();
        if a.stream.ends_by_close() || a.framing == Framing::Leg {
            *owes_end |= backward.leave_end() && a.framing == Framing::Leg;
        }
    }
    if let Poll::Ready(error) = b.move_to(cx, a, Pumps { from: backward, to: forward }) {
        let is_beyond = !matches!(error, PumpError::Send(_));
        return broken(error, is_beyond);
    }
    if forward.is_done() && backward.is_done() {
        return Poll::Ready(Ok(()));
    }
    if let Poll::Ready(error) = a.breaks(cx, Pumps { from: forward, to: backward }, b.stream) {
        return broken(error, false);
    }
    if let Poll::Ready(error) = b.breaks(cx, Pumps { from: backward, to: forward }, a.stream) {
        return broken(error, true);
    }
    if let Poll::Ready(error) = a.tell_refusal(cx, Pumps { from: forward, to: backward }, b) {
        return broken(error, false);
    }
    b.tell_refusal(cx, Pumps { from: backward, to: forward }, a).map(|error| Err(Broken { error, is_beyond: true }))
}
