//! One direction of a stream: bytes from one socket to another, with or without frames on either side.
//!
//! Small pieces go through a buffer that all connections of the thread share. Once pieces fill it, they go through a pooled
//! pipe by splice, without being copied, unless there is TLS on either side. In either case nothing is read before what was
//! read has been written. So a slow receiver slows its sender, and memory stays bounded: a direction holds at most the piece
//! that the kernel did not take at once. Where all of these together are many (see [`ekiden_transport::budget`]), pieces are
//! small.

use std::cell::RefCell;
use std::io;
use std::num::NonZeroU32;
use std::task::{Context, Poll, ready};

use ekiden_relay_proto::leg::{Event, FrameDecoder, FrameKind, HEADER_BYTES, Header};
use ekiden_transport::budget::{Holding, Room};
use ekiden_transport::is_transient;
use ekiden_transport::wire::{self, Pipe, Sizes, Wire};

use crate::framing::{Framing, ResetCode};
use crate::observer::Progress;
use crate::source::{Part, Source};

mod error;
mod passing;

use passing::Passing;

pub use error::PumpError;

/// Number of pieces that go through memory after a small pipe has taken little at once. Then a pipe is tried again.
const COPIES: u8 = 16;

/// Bytes that, together with a proxy's reply before them, fit into a segment of 536 bytes, which every host accepts (RFC 9293 §3.7.1).
const LITTLE_SENT: u16 = 472;

/// How many times as long a byte takes through memory as by splice. One side then mostly has TLS.
const COPYING: usize = 4;

thread_local! {
    /// Room for a frame's header, then for a piece and the header behind it.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; Sizes::USUAL.large + HEADER_BYTES]);
}

/// One direction of a stream.
#[derive(Debug)]
pub struct Pump<W: Wire> {
    source: Source,
    /// The framing of the receiving side.
    framing: Framing,
    /// Whether the end is passed on, or only means that this pump is done.
    says_end: bool,
    bulk: bool,
    /// How many pieces must go through memory before a pipe is tried again.
    copies: u8,
    phase: Phase,
    /// Bytes read, as far as they can be counted.
    moved: u16,
    /// Set when the receiver takes nothing any more: the number of bytes discarded since then, plus one.
    refused: Option<NonZeroU32>,
    /// Bytes that go out before the pipe's; how many of them already have.
    rest: Vec<u8>,
    rest_sent: u32,
    /// What has come of a frame that this node does not know and passes on.
    passing: Option<Box<Passing>>,
    /// Present while it holds bytes.
    pipe: Option<W::Pipe>,
    /// The memory that it holds while it waits, in the budget. What the connections hold they count themselves.
    holding: Holding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Moving,
    /// Everything was read. What is left must be written.
    Ended,
    Done,
}

impl<W: Wire> Pump<W> {
    /// From a host until its end, or from a node until its END.
    pub fn whole(from: Framing, to: Framing) -> Self {
        Self::new(Source::until_end(from.decoder()), to, true)
    }

    /// The rest of a direction whose beginning was read otherwise, without passing its end on; `decoder` is where a
    /// node's frames stand.
    pub fn remainder(decoder: Option<FrameDecoder>, to: Framing) -> Self {
        Self::new(Source::until_end(decoder), to, false)
    }

    /// `n` bytes of payload, and no end; an end before is an error.
    pub fn exactly(n: u64, decoder: Option<FrameDecoder>, to: Framing) -> Self {
        let source = decoder.map_or(Source::Exactly(n), |decoder| Source::Frames(decoder, Part::Exactly(n)));
        Self::new(source, to, false)
    }

    /// The state of a node's frames now.
    pub fn decoder(&self) -> Option<FrameDecoder> {
        match self.source {
            Source::Frames(decoder, _) => Some(decoder),
            Source::UntilEnd(_) | Source::Exactly(_) => None,
        }
    }

    fn new(source: Source, framing: Framing, says_end: bool) -> Self {
        let (rest, bulk, phase) = (Vec::new(), false, Phase::Moving);
        let (refused, passing, pipe, holding) = Default::default();
        let (moved, rest_sent, copies) = (0, 0, 0);
        Self { source, framing, says_end, bulk, phase, moved, refused, rest, rest_sent, copies, passing, pipe, holding }
    }

    /// Sends `bytes` first, as if they had been read.
    pub fn with_first(mut self, bytes: &[u8]) -> Self {
        if !bytes.is_empty() {
            self.queue(bytes);
            self.source.queued(bytes.len());
        }
        self
    }

    /// The receiver's connection will be closed cleanly as soon as this direction has ended, and that says the end too.
    pub fn leave_end_to_close(&mut self) {
        self.says_end &= self.framing == Framing::Leg;
    }

    /// The end is left to the caller to say. Whether there is one: not if it has been said, or has begun to be.
    pub fn leave_end(&mut self) -> bool {
        std::mem::take(&mut self.says_end)
    }

    /// Whether the direction ended as it should.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// The other direction's END has been said to the node that this one comes from, an acceptor.
    pub fn said_end(&mut self) {
        if let Source::Frames(decoder, _) = &mut self.source {
            decoder.said_end();
        }
    }

    /// Whether the receiver was sent so little that every host has room for it.
    pub fn is_little(&self) -> bool {
        self.moved <= LITTLE_SENT
    }

    /// Whether a node said by the end that it holds nothing any more of the other direction.
    pub fn is_delivered(&self) -> bool {
        matches!(self.source, Source::Frames(decoder, _) if decoder.is_delivered())
    }

    /// Whether the sender's end was read.
    pub fn has_read_end(&self) -> bool {
        self.phase != Phase::Moving
    }

    /// What was read of a whole direction for its receiver, whether or not it was passed on.
    pub fn progress(&self) -> Progress {
        let is_refused = self.is_refused();
        let (has_ended, waits) = (self.has_read_end() && !is_refused, is_refused || !self.is_between_frames());
        Progress { bytes: self.source.read(), has_ended, waits }
    }

    /// The sender's connection has broken: its end is none that was said.
    pub fn cut(&mut self) {
        if let Source::UntilEnd(_) = self.source {
            self.source = Source::Exactly(u64::MAX);
        }
    }

    /// The receiver takes nothing any more. What its sender still sends is read up to the end and discarded.
    pub fn refuse(&mut self) {
        if !self.is_done() {
            (self.refused, self.says_end) = (Some(NonZeroU32::MIN), false);
            self.discard();
        }
    }

    /// Whether something may have been discarded.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Reads nothing more: the sender has gone, and its data was refused.
    pub fn leave(&mut self) {
        self.phase = Phase::Done;
    }

    /// Whether a frame's header has come in part.
    pub fn is_in_header(&self) -> bool {
        matches!(self.source, Source::Frames(decoder, _) if decoder.header_missing() < HEADER_BYTES)
    }

    /// Whether reading pauses because it has discarded more than the limit, `discarded_most`.
    pub fn has_discarded_enough(&self) -> bool {
        self.phase == Phase::Moving && self.refused.is_some_and(|bytes| bytes.get() > W::SIZES.discarded_most)
    }

    /// Resets the count of discarded bytes, so that reading goes on up to the limit again.
    pub fn discard_more(&mut self) {
        if let Some(bytes) = &mut self.refused {
            *bytes = NonZeroU32::MIN;
        }
    }

    fn discard(&mut self) {
        (self.rest, self.rest_sent, self.passing, self.pipe) = (Vec::new(), 0, None, None);
    }

    /// After the END to a node: tells it that what it sends is refused.
    pub fn say_refusal(&mut self, code: ResetCode) {
        debug_assert!(self.is_done() && self.framing == Framing::Leg);
        self.phase = Phase::Ended;
        self.rest = Header { kind: FrameKind::Reset, length: code as u32 }.encode().to_vec();
    }

    /// After a node's END: ready with the code when it has said that it refuses what it is sent.
    pub fn poll_refusal(&mut self, cx: &mut Context<'_>, from: &W) -> Poll<Result<u8, PumpError>> {
        let Source::Frames(decoder, Part::UntilEnd(_)) = &mut self.source else { return Poll::Pending };
        loop {
            let mut header = [0; HEADER_BYTES];
            let missing = decoder.header_missing();
            let n = ready!(wire::poll_receive(from, cx, &mut header[..missing])).map_err(PumpError::Receive)?;
            if n == 0 {
                return Poll::Ready(Err(PumpError::Truncated));
            }
            if let Some(Event::Reset(code)) = decoder.took_header(&header[..n])? {
                return Poll::Ready(Ok(code));
            }
        }
    }

    /// Whether it waits for the sender, and so notices when that connection breaks. False while it still has bytes to write.
    pub fn is_reading(&self) -> bool {
        self.phase == Phase::Moving && self.is_between_frames() && !self.has_discarded_enough()
    }

    /// Whether a frame may be sent to the receiver now: no other is half written.
    pub fn is_between_frames(&self) -> bool {
        self.rest.is_empty() && self.pipe.is_none()
    }

    /// Whether RESET may be sent to the receiver now. One that refuses what it is sent may have a frame in part, and reads no more.
    pub fn may_be_reset(&self) -> bool {
        self.is_between_frames() && !self.is_done() && !self.is_refused()
    }

    /// Moves what can be moved. Ready when the end was passed on or at the first error.
    pub fn poll(&mut self, cx: &mut Context<'_>, from: &W, to: &W) -> Poll<Result<(), PumpError>> {
        let polled = self.advance(cx, from, to);
        let piped = self.pipe.as_mut().map_or(0, Pipe::wait);
        let passing = self.passing.as_ref().map_or(0, |passing| passing.0.capacity());
        self.holding.set(self.rest.capacity() + passing + piped);
        polled
    }

    fn advance(&mut self, cx: &mut Context<'_>, from: &W, to: &W) -> Poll<Result<(), PumpError>> {
        let mut used = 0;
        loop {
            ready!(self.flush(cx, to)).map_err(PumpError::Send)?;
            match self.phase {
                Phase::Done => return Poll::Ready(Ok(())),
                Phase::Ended if self.says_end => self.say_end(to).map_err(PumpError::Send)?,
                Phase::Ended => self.phase = Phase::Done,
                Phase::Moving if used >= W::SIZES.turn => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Phase::Moving if self.has_discarded_enough() => return Poll::Pending,
                Phase::Moving => used += ready!(self.fill(cx, from, to))?,
            }
        }
    }

    /// Writes what was read but not yet written.
    pub fn flush(&mut self, cx: &mut Context<'_>, to: &W) -> Poll<io::Result<()>> {
        if self.is_refused() {
            self.discard();
            return Poll::Ready(Ok(()));
        }
        while !self.is_between_frames() {
            ready!(to.poll_write_ready(cx))?;
            let sent = match (&self.rest[..], &mut self.pipe) {
                ([], Some(pipe)) => to.drain(pipe),
                (rest, pipe) => to.try_send(&rest[self.rest_sent as usize..], pipe.is_some()),
            };
            match sent {
                Ok(n) if !self.rest.is_empty() => {
                    self.rest_sent += n as u32;
                    if self.rest_sent as usize == self.rest.len() {
                        (self.rest, self.rest_sent) = (Vec::new(), 0);
                    }
                }
                Ok(_) => drop(self.pipe.take_if(|pipe| pipe.held() == 0)),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        to.poll_flush(cx)
    }

    /// Reads one piece and writes what the receiver takes of it at once. Returns how much of a turn it used.
    fn fill(&mut self, cx: &mut Context<'_>, from: &W, to: &W) -> Poll<Result<usize, PumpError>> {
        let due = match self.source {
            Source::Frames(decoder, _) if decoder.is_unknown() => return self.skip(cx, from),
            Source::UntilEnd(_) => u64::MAX,
            Source::Exactly(0) | Source::Frames(_, Part::Exactly(0)) => {
                self.phase = Phase::Ended;
                return Poll::Ready(Ok(0));
            }
            Source::Exactly(n) => n,
            Source::Frames(decoder, part) => part.left().min(decoder.payload().into()),
        };
        let due = usize::try_from(due).unwrap_or(usize::MAX);
        let Sizes { small, large, very_small, .. } = W::SIZES;
        let large = large - HEADER_BYTES;
        // The length of a frame or a body is known before its bytes: no need to see how large pieces are.
        let worth_it = match self.source {
            Source::UntilEnd(_) => self.bulk,
            _ => due > small && (self.bulk || due > large),
        };
        let room = W::room();
        let splices = worth_it && self.copies == 0 && room != Room::Overdrawn;
        if splices && from.may_be_spliced() && to.may_be_spliced() {
            ready!(from.poll_read_ready(cx)).map_err(PumpError::Receive)?;
            if let Some(mut pipe) = W::Pipe::take() {
                let most = if room == Room::Scarce { due.min(small) } else { due };
                match from.fill(&mut pipe, most) {
                    Ok(0) => {}
                    Ok(n) => return Poll::Ready(self.spliced(pipe, n, to)),
                    Err(error) if is_transient(&error) => {}
                    Err(error) => return Poll::Ready(Err(PumpError::Receive(error))),
                }
                // The kernel's splice stops at urgent data, whatever is behind: there it reports that nothing can be read, or,
                // after a FIN, the end. A receive tells these apart, and reads on behind urgent data.
                drop(pipe);
                let received = self.copy(cx, due, small, from, to);
                self.bulk = true;
                return received;
            }
        }
        self.copies = self.copies.saturating_sub(1);
        let piece = match room {
            Room::Overdrawn => very_small,
            Room::Plenty if self.bulk => large,
            Room::Plenty | Room::Scarce => small,
        };
        self.copy(cx, due, piece, from, to)
    }

    /// `n` bytes are in `pipe`.
    fn spliced(&mut self, pipe: W::Pipe, n: usize, to: &W) -> Result<usize, PumpError> {
        self.bulk = n >= W::SIZES.too_small_to_splice;
        if n < W::SIZES.little_spliced && pipe.is_small() {
            self.copies = COPIES;
        }
        self.took(n);
        if self.framing == Framing::Leg {
            let header = Header { kind: FrameKind::Data, length: n as u32 }.encode();
            self.send_or_queue(&header, true, to)?;
        }
        self.pipe = Some(pipe);
        Ok(n)
    }

    /// One piece through memory, of up to `most` of the `due` bytes.
    fn copy(
        &mut self,
        cx: &mut Context<'_>,
        due: usize,
        most: usize,
        from: &W,
        to: &W,
    ) -> Poll<Result<usize, PumpError>> {
        // Another header always follows a frame's payload. Reading it too saves a system call per frame.
        let header = match self.source {
            Source::Frames(decoder, part) if due <= most && part.left() > due as u64 => decoder.header_missing(),
            _ => 0,
        };
        SCRATCH.with_borrow_mut(|scratch| {
            let room = HEADER_BYTES..HEADER_BYTES + due.min(most) + header;
            let n = ready!(wire::poll_receive(from, cx, &mut scratch[room])).map_err(PumpError::Receive)?;
            if n == 0 {
                return Poll::Ready(self.connection_ended().map(|()| 0));
            }
            let payload = n.min(due);
            let mut sent = Ok(());
            if payload > 0 {
                self.bulk = payload >= W::SIZES.small;
                self.took(payload);
                let start = if self.framing == Framing::Leg {
                    let header = Header { kind: FrameKind::Data, length: payload as u32 }.encode();
                    scratch[..HEADER_BYTES].copy_from_slice(&header);
                    0
                } else {
                    HEADER_BYTES
                };
                sent = self.send_or_queue(&scratch[start..HEADER_BYTES + payload], false, to);
            }
            // Also if sending fails: what follows may have to be read and discarded.
            if n > payload {
                self.took_header(&scratch[HEADER_BYTES + payload..HEADER_BYTES + n])?;
            }
            Poll::Ready(sent.map(|()| COPYING * n.max(from.take_read())))
        })
    }

    fn took(&mut self, n: usize) {
        self.count(n);
        if let Some(bytes) = &mut self.refused {
            *bytes = bytes.saturating_add(n as u32);
        }
        self.source.took(n, self.refused.is_none());
    }

    fn count(&mut self, n: usize) {
        self.moved = self.moved.saturating_add(u16::try_from(n).unwrap_or(u16::MAX));
    }

    fn took_header(&mut self, bytes: &[u8]) -> Result<(), PumpError> {
        let Source::Frames(decoder, part) = &mut self.source else { return Ok(()) };
        match decoder.took_header(bytes)? {
            Some(Event::End | Event::Delivered) if matches!(part, Part::Exactly(_)) => {
                return Err(PumpError::Truncated);
            }
            Some(Event::End | Event::Delivered) => self.phase = Phase::Ended,
            Some(Event::Reset(code)) => return Err(PumpError::Reset(code)),
            Some(Event::Unknown(unknown)) => self.pass(unknown),
            Some(Event::Data(_)) | None => {}
        }
        Ok(())
    }

    /// The end of a connection ends the stream only where no framing marks the end.
    fn connection_ended(&mut self) -> Result<(), PumpError> {
        match self.source {
            Source::UntilEnd(_) => {
                self.phase = Phase::Ended;
                Ok(())
            }
            _ => Err(PumpError::Truncated),
        }
    }

    /// Says the end, or as much of it as the receiver takes now: the rest is flushed before this is called again.
    fn say_end(&mut self, to: &W) -> io::Result<()> {
        self.says_end = false;
        if self.framing == Framing::Leg {
            self.rest = Header { kind: FrameKind::End, length: 0 }.encode().to_vec();
            return Ok(());
        }
        match to.shut_down() {
            // The receiver has already gone. The other direction reports how.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            Err(error) if is_transient(&error) => {
                self.says_end = true;
                Ok(())
            }
            other => other,
        }
    }

    /// Sends what the socket takes now and keeps the rest.
    fn send_or_queue(&mut self, bytes: &[u8], more: bool, to: &W) -> Result<(), PumpError> {
        if self.is_refused() {
            return Ok(());
        }
        let sent = match to.try_send(bytes, more) {
            Ok(n) => n,
            Err(error) if is_transient(&error) => 0,
            Err(error) => return Err(PumpError::Send(error)),
        };
        self.rest = bytes[sent..].to_vec();
        Ok(())
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        if self.framing == Framing::Leg {
            self.rest.extend(Header { kind: FrameKind::Data, length: bytes.len() as u32 }.encode());
        }
        self.rest.extend(bytes);
    }
}
