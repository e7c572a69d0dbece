//! Reads a connection whose bytes must be looked at, in pieces: heads and chunked bodies of HTTP.
//!
//! A [`Reader`] does not hold its connection, so that one message can be received while another is sent.

use std::future::{pending, poll_fn};
use std::io;

use ekiden_relay_proto::http::{Body, Chunked};
use ekiden_relay_proto::leg::{Event, FrameDecoder, HEADER_BYTES};
use ekiden_transport::budget::Holding;
use ekiden_transport::{Connection, is_transient};

use crate::overlay::Came;
use crate::serve::begun::LONG;
use crate::stream::{Framing, Output, Pump, PumpError};

/// The most bytes read at a time.
const PIECE: usize = 16 << 10;

/// Bodies of at least this many bytes go through the pump rather than through the buffer.
const WORTH_PUMPING: u64 = 64 << 10;

/// The maximum number of unasked bytes behind a node's response that are read and discarded.
const UNASKED_MOST: usize = 64 << 10;

/// The reading half: the frame decoder, and bytes that were read but not yet used.
#[derive(Debug)]
pub struct Reader {
    /// `Some` if there is a node at the other end.
    decoder: Option<FrameDecoder>,
    /// The end of the stream was said.
    ended: bool,
    /// Bytes read but not yet used.
    pub buffer: Vec<u8>,
    /// How many bytes behind a response were discarded.
    unasked: usize,
    /// Told of the first byte.
    pub came: Option<Came>,
    holding: Holding,
}

impl Reader {
    /// For a connection of which nothing was read yet.
    pub fn new(framing: Framing) -> Self {
        let (decoder, holding) = (framing.decoder(), Holding::default());
        Self { decoder, ended: false, buffer: Vec::new(), unasked: 0, came: None, holding }
    }

    /// Takes the first `length` bytes out of the buffer, with the room that all was read into.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(length);
        self.holding.set(rest.capacity());
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Gives back the room behind what was read, where that is at most `most` bytes: whoever has said little may stay silent for long.
    pub fn shrink_small(&mut self, most: usize) {
        if self.buffer.len() <= most {
            self.buffer.shrink_to_fit();
            self.holding.set(self.buffer.capacity());
        }
    }

    /// Waits for data and appends it to the buffer. False at the end of the stream.
    pub async fn more(&mut self, from: &Connection) -> Result<bool, PumpError> {
        loop {
            from.readable().await.map_err(PumpError::Receive)?;
            let read = self.read_now(from);
            self.holding.set(self.buffer.capacity());
            if let Ok(Some(Ok(true))) = &read
                && let Some(came) = self.came.take()
            {
                came.now();
            }
            match read {
                Ok(Some(more)) => return more,
                Ok(None) => {}
                // A part of a record has come: the rest of it may be long in coming.
                Err(error) if is_transient(&error) => self.shrink_small(LONG),
                Err(error) => return Err(PumpError::Receive(error)),
            }
        }
    }

    /// `None` if only a frame's header was read.
    fn read_now(&mut self, from: &Connection) -> io::Result<Option<Result<bool, PumpError>>> {
        let Some(decoder) = &mut self.decoder else {
            let n = read_into(&mut self.buffer, from, PIECE)?;
            return Ok(Some(Ok(n > 0)));
        };
        if decoder.payload() > 0 {
            let is_unknown = decoder.is_unknown();
            let before = self.buffer.len();
            let n = read_into(&mut self.buffer, from, PIECE.min(decoder.payload() as usize))?;
            decoder.took_payload(n as u32);
            if n > 0 && is_unknown {
                self.buffer.truncate(before);
                return Ok(None);
            }
            return Ok(Some(if n > 0 { Ok(true) } else { Err(PumpError::Truncated) }));
        }
        let mut header = [0; HEADER_BYTES];
        let missing = decoder.header_missing();
        let n = from.try_receive(&mut header[..missing])?;
        if n == 0 {
            return Ok(Some(Err(PumpError::Truncated)));
        }
        Ok(match decoder.took_header(&header[..n]) {
            Ok(Some(Event::End | Event::Delivered)) => {
                self.ended = true;
                Some(Ok(false))
            }
            Ok(Some(Event::Reset(code))) => Some(Err(PumpError::Reset(code))),
            Ok(Some(Event::Data(_) | Event::Unknown(_)) | None) => None,
            Err(error) => Some(Err(error.into())),
        })
    }

    /// Behind a response, while the rest of its request is sent: completes when the node at the other end takes no more of
    /// the request. The node says so behind its END.
    pub async fn refusal(&mut self, from: &Connection) {
        while self.decoder.is_some() && self.discard() {
            if self.more(from).await.is_err() {
                return;
            }
        }
        pending().await
    }

    /// Behind the last request and this side's END: waits until the node at the other end has delivered all.
    ///
    /// # Errors
    /// The connection broke, or more is sent unasked than is discarded.
    pub async fn delivered(&mut self, from: &Connection) -> Result<(), PumpError> {
        self.said_end();
        while !self.is_delivered() {
            if !self.discard() {
                return Err(PumpError::Malformed("the origin goes on sending behind its response"));
            }
            self.more(from).await?;
        }
        Ok(())
    }

    /// Discards what was sent unasked. False if that was too much.
    fn discard(&mut self) -> bool {
        self.unasked += self.buffer.len();
        self.buffer.clear();
        self.unasked <= UNASKED_MOST
    }

    /// Whether the end of the stream was said.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Notes that this side has said END to the node.
    pub fn said_end(&mut self) {
        if let Some(decoder) = &mut self.decoder {
            decoder.said_end();
        }
    }

    /// Whether the node ended the stream with DELIVERED.
    pub fn is_delivered(&self) -> bool {
        self.decoder.as_ref().is_some_and(FrameDecoder::is_delivered)
    }

    /// Whether nothing was sent unasked and no frame has begun, so that the connection can be kept idle.
    pub fn is_quiet(&self) -> bool {
        let between = |decoder: &FrameDecoder| decoder.payload() == 0 && decoder.header_missing() == HEADER_BYTES;
        self.buffer.is_empty() && self.unasked == 0 && self.decoder.as_ref().is_none_or(between)
    }

    /// Passes a whole body on; a chunked one is written anew as `chunked` says. If the end of the connection is the end of the
    /// body, the caller must still end the receiver's.
    pub async fn pass_body(
        &mut self,
        body: Body,
        chunked: Chunked,
        from: &Connection,
        to: Output<'_>,
    ) -> Result<(), PumpError> {
        match body {
            Body::Length(length) => self.pass(length, from, to).await,
            Body::Chunked => self.pass_chunks(chunked, from, to).await,
            Body::UntilEnd => {
                let first = std::mem::take(&mut self.buffer);
                let pump = Pump::remainder(self.decoder, to.framing).with_first(&first);
                self.run(pump, from, to).await?;
                self.ended = true;
                Ok(())
            }
        }
    }

    /// Passes `length` bytes on.
    async fn pass(&mut self, length: u64, from: &Connection, to: Output<'_>) -> Result<(), PumpError> {
        let buffered = length.min(self.buffer.len() as u64);
        if buffered > 0 {
            let rest = self.buffer.split_off(buffered as usize);
            let first = std::mem::replace(&mut self.buffer, rest);
            to.write(&first).await?;
        }
        if length > buffered {
            let pump = Pump::exactly(length - buffered, self.decoder, to.framing);
            self.run(pump, from, to).await?;
        }
        Ok(())
    }

    async fn pass_chunks(&mut self, mut chunked: Chunked, from: &Connection, to: Output<'_>) -> Result<(), PumpError> {
        let (mut out, mut trailer) = (Vec::new(), Holding::default());
        loop {
            let used = chunked.advance(&self.buffer, &mut out).map_err(|error| PumpError::Malformed(error.reason))?;
            self.buffer.drain(..used);
            trailer.set(chunked.held());
            if !out.is_empty() {
                to.write(&out).await?;
                out.clear();
            }
            if chunked.is_done() {
                return Ok(());
            }
            let due = chunked.data_due();
            if due >= WORTH_PUMPING {
                self.pass(due, from, to).await?;
                chunked.skipped(due);
            }
            if !self.more(from).await? {
                return Err(PumpError::Truncated);
            }
        }
    }

    async fn run(&mut self, mut pump: Pump, from: &Connection, to: Output<'_>) -> Result<(), PumpError> {
        poll_fn(|cx| pump.poll(cx, from, to.connection)).await?;
        self.decoder = pump.decoder();
        Ok(())
    }
}

fn read_into(buffer: &mut Vec<u8>, from: &Connection, most: usize) -> io::Result<usize> {
    let before = buffer.len();
    buffer.resize(before + most, 0);
    let got = from.try_receive(&mut buffer[before..]);
    buffer.truncate(before + *got.as_ref().unwrap_or(&0));
    got
}
