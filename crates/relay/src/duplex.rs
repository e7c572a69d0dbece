//! A whole stream: both directions between two sockets, and what closing them means.

use std::future::poll_fn;
use std::task::{Context, Poll};

use ekiden_relay_proto::segment::{Header, Kind};

use crate::auto::Watch;
use crate::config::Tcp;
use crate::connection::Connection;
use crate::node::Node;
use crate::pump::{Pump, PumpError};

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
    /// Looks at it, if its congestion control is chosen by what its path shows.
    watch: Option<Box<Watch>>,
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
        Self { stream: stream.into(), node: false, watch: None }
    }

    /// A node's connection.
    pub fn node(stream: Connection) -> Self {
        Self { stream, node: true, watch: None }
    }

    /// Gives it the congestion control that its path has, if `tcp` leaves that to the path; while its stream runs the path
    /// is watched.
    pub fn follow(&mut self, node: &Node, tcp: &Tcp) {
        let path = if tcp.auto { node.paths.of(self.stream.socket()) } else { None };
        self.watch = path.map(|path| Box::new(Watch::new(path, self.stream.socket())));
    }

    /// Both directions have ended: what is queued is to be delivered, then the end.
    pub fn end_cleanly(self) {
        self.stream.end_cleanly();
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
    /// closed by [`Side::end_cleanly`]: it may not have heard the end before. At the first error both sides are reset.
    pub async fn run(mut self) -> Result<(Side, Side), PumpError> {
        let result = poll_fn(|cx| self.poll(cx)).await;
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

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PumpError>> {
        for Side { stream, watch, .. } in [&mut self.a, &mut self.b] {
            if let Some(watch) = watch {
                watch.poll(cx, stream.socket());
            }
        }
        let (a, b) = (&self.a.stream, &self.b.stream);
        if self.backward.is_done() {
            self.forward.leave_end_to_close();
        }
        if !self.forward.is_done()
            && let Poll::Ready(Err(error)) = self.forward.poll(cx, a, b)
        {
            return Poll::Ready(Err(error));
        }
        // All that `a` said was read up to its end, so closing `a` cannot reset it for unread bytes.
        if self.forward.is_done() {
            self.backward.leave_end_to_close();
        }
        if !self.backward.is_done()
            && let Poll::Ready(Err(error)) = self.backward.poll(cx, b, a)
        {
            return Poll::Ready(Err(error));
        }
        match self.forward.is_done() && self.backward.is_done() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}
