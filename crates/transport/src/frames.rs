//! Reads and sends control frames of the leg protocol (docs/design/protocol.md). Payload is left to the caller.

use std::fmt::Display;
use std::io;

use ekiden_relay_proto::leg::{
    About, Found, FrameKind, HEADER_BYTES, Header, MAX_CONTROL, MAX_UNPROVEN, ProtocolError,
};

use crate::wire::{self, Wire};

/// How many frames that it does not know a node skips one after another.
const SKIPPED_MOST: usize = 16;

/// How many bytes that mean nothing are read at a time.
const DROPPED_AT_ONCE: u32 = 4 << 10;

/// Reads one control frame, and not a byte more. Those before it that this node does not know are skipped. Of RESET it returns the code, one
/// byte, in place of a body; of FILL the length, four bytes, most significant first.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`]: the connection ended. [`io::ErrorKind::InvalidData`]: the bytes are no control frame, see
/// [`protocol_error`].
pub async fn read_frame(stream: &impl Wire) -> io::Result<(FrameKind, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    match wire::receive(stream, &mut header).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ if Header::is_tls(header[0]) => Err(broken(ProtocolError::Tls)),
        n => read_rest(stream, header, n).await,
    }
}

/// Reads the body of a frame of this kind, before the other side has proven a key. Another kind, or more than such frames have, is refused
/// by its header, before there is memory for it.
///
/// # Errors
/// As [`read_frame`].
pub async fn read_unproven(stream: &impl Wire, kind: FrameKind) -> io::Result<Vec<u8>> {
    let mut bytes = [0; HEADER_BYTES];
    match wire::receive(stream, &mut bytes).await? {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        _ if Header::is_tls(bytes[0]) => return Err(broken(ProtocolError::Tls)),
        n => wire::receive_exact(stream, &mut bytes[n..]).await?,
    }
    let header = Header::decode(bytes).map_err(broken)?;
    if header.kind != kind || header.length > MAX_UNPROVEN {
        return Err(invalid(format_args!("{:?} of {} bytes where {kind:?} was due", header.kind, header.length)));
    }
    let mut body = vec![0; header.length as usize];
    wire::receive_exact(stream, &mut body).await?;
    Ok(body)
}

/// As [`read_frame`], for a frame of whose `header` the first `n` bytes have been read.
///
/// # Errors
/// As [`read_frame`].
pub async fn read_rest(
    stream: &impl Wire,
    mut header: [u8; HEADER_BYTES],
    n: usize,
) -> io::Result<(FrameKind, Vec<u8>)> {
    wire::receive_exact(stream, &mut header[n..]).await?;
    let header = known(stream, header).await?;
    if matches!(header.kind, FrameKind::Data | FrameKind::Told) {
        return Err(invalid(format_args!("{:?} where a control frame was due", header.kind)));
    }
    let mut body = Vec::new();
    match header.kind {
        FrameKind::Reset => body.push(header.length as u8),
        FrameKind::Fill => {
            drop_body(stream, header.length).await?;
            body.extend(header.length.to_be_bytes());
        }
        _ => {
            debug_assert!(header.length <= MAX_CONTROL);
            body.resize(header.length as usize, 0);
            wire::receive_exact(stream, &mut body).await?;
        }
    }
    Ok((header.kind, body))
}

/// Reads `length` bytes that mean nothing, and holds few of them at a time.
async fn drop_body(stream: &impl Wire, length: u32) -> io::Result<()> {
    let mut piece = vec![0; length.min(DROPPED_AT_ONCE) as usize];
    let mut left = length as usize;
    while left > 0 {
        let now = left.min(piece.len());
        wire::receive_exact(stream, &mut piece[..now]).await?;
        left -= now;
    }
    Ok(())
}

/// The header of the first frame that this node knows, if `first` is not that of one: others before it are skipped.
async fn known(stream: &impl Wire, mut first: [u8; HEADER_BYTES]) -> io::Result<Header> {
    let mut skipped = 0;
    loop {
        match Header::read(first).map_err(broken)? {
            Found::Known(header) => return Ok(header),
            Found::Unknown(_) if skipped == SKIPPED_MOST => {
                return Err(invalid("frames that this node does not know, again and again"));
            }
            Found::Unknown(unknown) => {
                skipped += 1;
                wire::receive_exact(stream, &mut vec![0; unknown.length() as usize]).await?;
                wire::receive_exact(stream, &mut first).await?;
            }
        }
    }
}

/// The answer to a request whose first frame is read: that frame, or the next one behind what the other node says of itself, which `learn`
/// gets.
///
/// # Errors
/// As [`read_frame`].
pub async fn answer(
    stream: &impl Wire,
    first: (FrameKind, Vec<u8>),
    learn: impl FnOnce(About),
) -> io::Result<(FrameKind, Vec<u8>)> {
    match first {
        (FrameKind::About, body) => {
            learn(About::decode(&body).map_err(invalid)?);
            read_frame(stream).await
        }
        other => Ok(other),
    }
}

/// Reads the answer to ASK, which may be longer than other frames. What the other node says of itself before it `learn` gets.
///
/// # Errors
/// As [`read_frame`].
pub async fn read_told(stream: &impl Wire, learn: impl FnOnce(About)) -> io::Result<Vec<u8>> {
    let mut frame = read_long(stream).await?;
    if frame.0 == FrameKind::About {
        learn(About::decode(&frame.1).map_err(invalid)?);
        frame = read_long(stream).await?;
    }
    match frame {
        (FrameKind::Told, body) => Ok(body),
        (other, _) => Err(invalid(format_args!("{other:?} instead of TOLD"))),
    }
}

/// A TOLD or an ABOUT frame; of any other the header alone.
async fn read_long(stream: &impl Wire) -> io::Result<(FrameKind, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    wire::receive_exact(stream, &mut header).await?;
    let Header { kind, length } = known(stream, header).await?;
    let mut body = Vec::new();
    if matches!(kind, FrameKind::Told | FrameKind::About) {
        body.resize(length as usize, 0);
        wire::receive_exact(stream, &mut body).await?;
    }
    Ok((kind, body))
}

/// Sends a frame without a body.
///
/// # Errors
/// The connection's.
pub async fn send(stream: &impl Wire, kind: FrameKind) -> io::Result<()> {
    wire::send_all(stream, &Header { kind, length: 0 }.encode()).await
}

/// How a frame's header broke the protocol. `None` if `error` is another error.
pub fn protocol_error(error: &io::Error) -> Option<&ProtocolError> {
    error.get_ref()?.downcast_ref()
}

/// The error of bytes that break the protocol: [`io::ErrorKind::InvalidData`].
pub fn invalid(what: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

fn broken(error: ProtocolError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
