//! A whole stream: both directions between two sockets, and what closing them means.

use std::future::poll_fn;
use std::net::Shutdown;
use std::task::{Context, Poll};
use std::time::Duration;

use ekiden_net::socket;
use ekiden_net::tcp_info::tcp_info;
use ekiden_relay_proto::segment::{Header, Kind};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::auto::Watch;
use crate::config::Tcp;
use crate::node::{Busy, Node};
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
    pub stream: TcpStream,
    /// Whether a node is at the other end, so that frames are spoken.
    pub node: bool,
    /// Whether this end of the connection has an address that is not this machine's.
    pub foreign: bool,
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
    pub fn host(stream: TcpStream) -> Self {
        Self { stream, node: false, foreign: false, watch: None }
    }

    /// A node's connection.
    pub fn node(stream: TcpStream) -> Self {
        Self { stream, node: true, foreign: false, watch: None }
    }

    /// Gives it the congestion control that its path has, if `tcp` leaves that to the path; while its stream runs the path
    /// is watched.
    pub fn follow(&mut self, node: &Node, tcp: &Tcp) {
        let path = if tcp.auto { node.paths.of(&self.stream) } else { None };
        self.watch = path.map(|path| Box::new(Watch::new(path, &self.stream)));
    }

    /// Both directions have ended: what is queued is to be delivered, then the end.
    pub fn end_cleanly(self) {
        // If this fails the connection resets: never a wrong end.
        let _ = socket::reset_on_close(&self.stream, false);
    }

    /// As [`Side::end_cleanly`], and keeps the connection until all has arrived. Whoever stops the node waits for `busy`, and
    /// only then takes away the rules by which acknowledgements for a foreign address come here.
    pub async fn deliver(self, busy: Busy) {
        // It may have been said before, and the connection may be gone.
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
        let (mut pause, give_up) = (DELIVERY_LOOK, Instant::now() + DELIVERY_MOST);
        while tcp_info(&self.stream).is_ok_and(|info| info.is_ending) && Instant::now() < give_up {
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
            let sent = self.stream.try_io(Interest::WRITABLE, || socket::send(&self.stream, &frame, false));
            if matches!(sent, Ok(n) if n == frame.len()) {
                let _ = socket::reset_on_close(&self.stream, false);
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
                watch.poll(cx, stream);
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
