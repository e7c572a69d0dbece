//! Payload that is sent behind OPEN, before its answer.

use std::io;

use ekiden_relay_proto::leg::{FrameKind, HEADER_BYTES, Header};
use ekiden_transport::Connection;

use crate::stream::Framing;

/// Early payload: it may be sent behind OPEN, before the answer. It stays in its buffer until the stream is open, so that
/// it can be sent again on another connection.
pub enum Early<'a> {
    /// No early payload: the client sends nothing before it is answered.
    Nothing,
    /// These bytes, which may arrive twice.
    Repeatable(&'a [u8]),
    /// What the host at this connection sends until the stream is open. It arrives once or not at all.
    Host(&'a Connection),
    /// What a node sends until the stream is open, in whole DATA frames. It arrives once or not at all.
    Node(&'a Connection),
    /// These bytes of this node's own, which may arrive twice, and behind them what a host sends, as [`Early::Host`].
    Introduced(&'a [u8], &'a Connection),
}

/// The most payload sent before the answer, in bytes.
const MAX_EARLY: usize = 16 << 10;

/// One DATA frame.
pub fn put_payload(request: &mut Vec<u8>, bytes: &[u8]) {
    request.extend(Header { kind: FrameKind::Data, length: bytes.len() as u32 }.encode());
    request.extend(bytes);
}

/// A copy of early payload.
#[derive(Default)]
pub struct Said {
    /// As DATA frames.
    pub frames: Vec<u8>,
    /// How many bytes of the sender's that is.
    pub bytes: usize,
}

/// Peeks at what the sender has sent so far. An end can be seen again when the stream runs. An error cannot: the kernel
/// reports it once, and then an end.
pub fn said(
    speaker: &Connection,
    framing: Framing,
    peek: impl FnOnce(&Connection, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Said> {
    let mut frames = vec![0; HEADER_BYTES + MAX_EARLY];
    let n = peek(speaker, &mut frames[HEADER_BYTES..])?;
    frames.truncate(HEADER_BYTES + n);
    if framing == Framing::Leg {
        frames.drain(..HEADER_BYTES);
        frames.truncate(whole_frames(&frames));
        return Ok(Said { bytes: frames.len(), frames });
    }
    if n == 0 {
        return Ok(Said::default());
    }
    frames[..HEADER_BYTES].copy_from_slice(&Header { kind: FrameKind::Data, length: n as u32 }.encode());
    Ok(Said { frames, bytes: n })
}

/// How many of `bytes` are complete DATA frames.
fn whole_frames(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some((header, rest)) = bytes[whole..].split_first_chunk::<HEADER_BYTES>() {
        match Header::decode(*header) {
            Ok(Header { kind: FrameKind::Data, length }) if rest.len() >= length as usize => {
                whole += HEADER_BYTES + length as usize;
            }
            _ => break,
        }
    }
    whole
}

/// Removes from the sender the bytes that were sent early; they are known to be there.
pub fn consume(speaker: &Connection, mut n: usize) -> io::Result<()> {
    let mut sink = [0; 4096];
    while n > 0 {
        let most = n.min(sink.len());
        match speaker.receive_now(&mut sink[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => n -= got,
        }
    }
    Ok(())
}
