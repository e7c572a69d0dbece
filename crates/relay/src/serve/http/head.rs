//! Reads the heads of a client's requests and of an origin's responses. It also recognises a client that speaks another
//! protocol, by its first bytes.

use std::io;

use ekiden_relay_proto::http::{HeadScanner, HttpError, check_beginning, empty_lines};
use ekiden_relay_proto::mixup::{Guess, Spoken, guess};
use ekiden_transport::Connection;
use tokio::time::timeout;

use super::{Client, Failed};
use crate::access::quota::ClientKey;
use crate::serve::begun::{Begun, LONG};
use crate::serve::http::body::Reader;
use crate::shared::ABOUT_TO_ASK;
use crate::stream::PumpError;

impl Client<'_> {
    /// The next request's head. `None` if there is none and the connection can end.
    pub(super) async fn head(&mut self, is_first: bool) -> Result<Option<Vec<u8>>, Failed> {
        let mut begun = Begun::new(self.node, ClientKey::from(self.caller.address().ip()));
        if self.reader.buffer.is_empty() {
            self.reader.buffer = Vec::new();
            let patience = if is_first { self.limits.handshake } else { self.limits.pool_idle };
            let mut current = (*self.current).clone();
            let removed = async { while current.changed().await.is_ok() {} };
            let more = tokio::select! {
                more = timeout(patience, begun.wait(&self.stream, 0, self.reader.more(&self.stream))) => more,
                // It may be about to ask, and is told with the answer that the connection ends.
                () = self.node.stopping() => {
                    timeout(ABOUT_TO_ASK, begun.wait(&self.stream, 0, self.reader.more(&self.stream))).await
                }
                () = removed, if !is_first => return Ok(None),
            };
            match more {
                Ok(Some(Ok(true))) => {}
                Ok(Some(Ok(false))) | Err(_) => return Ok(None),
                Ok(None) => return Err(crowded()),
                // Between two requests many clients end TLS without close_notify (RFC 9112 §9.8).
                Ok(Some(Err(PumpError::Receive(error)))) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(None);
                }
                Ok(Some(Err(error))) => return Err(Failed::Reset(error)),
            }
        }
        // Who has begun to ask is answered, also by a node that stops.
        let _busy = self.node.begin();
        let limit = self.limits.handshake;
        let most = self.limits.http_head_size;
        match timeout(limit, request_head(&mut self.reader, &self.stream, most, is_first, begun)).await {
            Ok(head) => head,
            // A client that has said nothing is not told anything either.
            Err(_) if self.reader.buffer.is_empty() => Ok(None),
            Err(_) => Err(Failed::Tell(408, format!("the request did not arrive within limits.handshake ({limit:?})"))),
        }
    }

    /// Tells a client, in the protocol that it speaks, that this is no listener for it.
    pub(super) async fn turn_away(self, spoken: Spoken) {
        let (from, key) = (self.caller.address(), ClientKey::from(self.caller.address().ip()));
        let remedy = match spoken {
            Spoken::Tls => format!("; it would be served with `tls` in {}", self.listener),
            _ => String::new(),
        };
        self.node.lines.info("mixup", key, format_args!("http: {from} speaks {spoken}, not HTTP{remedy}"));
        self.say_last(&spoken.refusal(Spoken::Http)).await;
    }
}

/// The client gives way to others.
fn crowded() -> Failed {
    Failed::Tell(503, "too many clients send long heads".into())
}

/// Reads a request's head. `None` if the connection ends before the head's first byte. With `is_first`, the client may speak
/// another protocol.
async fn request_head(
    reader: &mut Reader,
    from: &Connection,
    limit: usize,
    is_first: bool,
    mut begun: Begun<'_>,
) -> Result<Option<Vec<u8>>, Failed> {
    let mut scanner = HeadScanner::default();
    loop {
        if is_first
            && let Guess::Speaks(spoken) = guess(&reader.buffer)
            && spoken != Spoken::Http
        {
            return Err(Failed::Mixup(spoken));
        }
        let empty = empty_lines(&reader.buffer);
        if empty > 0 {
            reader.buffer.drain(..empty);
            scanner = HeadScanner::default();
        }
        let found = scanner.find(&reader.buffer, limit);
        if let Some(length) = found.map_err(|HttpError { status, reason }| Failed::Tell(status, reason.into()))? {
            return Ok(Some(reader.take(length)));
        }
        reader.shrink_small(LONG);
        let is_more = begun.wait(from, reader.buffer.len(), is_more(reader, from)).await;
        if !is_more.ok_or_else(crowded)?? {
            return Ok(None);
        }
    }
}

/// Reads a response's head. `None` if the connection ends before its first byte. A malformed head has status 502.
pub(super) async fn response_head(
    reader: &mut Reader,
    from: &Connection,
    limit: usize,
) -> Result<Option<Vec<u8>>, Failed> {
    let mut scanner = HeadScanner::default();
    loop {
        check_beginning(&reader.buffer).map_err(wrong_response)?;
        if let Some(length) = scanner.find(&reader.buffer, limit).map_err(wrong_response)? {
            return Ok(Some(reader.take(length)));
        }
        if !is_more(reader, from).await? {
            return Ok(None);
        }
    }
}

/// What the client is told of a response that is not passed on.
pub(super) fn wrong_response(error: HttpError) -> Failed {
    Failed::Tell(502, format!("the origin's response: {}", error.reason))
}

/// Waits for more of a head. False if the connection ends before the head's first byte.
async fn is_more(reader: &mut Reader, from: &Connection) -> Result<bool, Failed> {
    match reader.more(from).await {
        Ok(false) if !reader.buffer.is_empty() => Err(Failed::Reset(PumpError::Truncated)),
        more => more.map_err(Failed::Reset),
    }
}
