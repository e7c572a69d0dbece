//! One request and its response, which move at the same time.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use ekiden_relay_proto::http::{Body, Chunked, Request, Response, parse_response};
use ekiden_transport::{Connection, wire};

use super::Failed;
use super::body::Reader;
use super::head::{response_head, wrong_response};
use crate::config::Limits;
use crate::serve::timeouts::{leaving, while_moving};
use crate::shared::Node;
use crate::stream::{Output, PumpError};

/// A request that is being answered.
pub struct Exchange<'a> {
    node: &'a Node,
    pub request: &'a Request,
    client: &'a Connection,
    limits: &'a Limits,
    /// Whether the final response has begun. From then on the client cannot be told of an error.
    has_begun: AtomicBool,
    /// Whether an interim response has come: the origin has heard the request.
    is_heard: AtomicBool,
}

/// How much of a request's body was sent.
pub enum Sent {
    All,
    /// Only a part after the response was complete: the client sent no more, or the node at the other end took no more.
    Part,
    /// The origin's connection broke meanwhile.
    Broken,
}

impl<'a> Exchange<'a> {
    pub fn new(node: &'a Node, request: &'a Request, client: &'a Connection, limits: &'a Limits) -> Self {
        Self { node, request, client, limits, has_begun: AtomicBool::new(false), is_heard: AtomicBool::new(false) }
    }

    /// Whether the final response has begun.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Whether the origin has said that it has heard the request.
    pub fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    /// Sends the client a part of the final response, which has begun from then on.
    pub async fn answer(&self, part: &[u8]) -> Result<(), Failed> {
        self.has_begun.store(true, Ordering::Relaxed);
        self.to_client().write(part).await.map_err(Failed::Reset)
    }

    /// A writer to the client.
    pub fn to_client(&self) -> Output<'a> {
        Output::raw(self.client)
    }

    fn has_body(&self) -> bool {
        self.request.body != Body::Length(0)
    }

    /// Runs `work` as long as the client is connected and, until the final response has begun, data moves.
    pub async fn attended<T>(&self, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        let Self { client, limits, has_begun, .. } = self;
        let leaving = leaving(client, self.has_body(), limits.pool_idle, has_begun);
        tokio::select! {
            biased;
            done = while_moving(limits.response, has_begun, work) => {
                let text = || format!("the origin did not answer within limits.response ({:?})", limits.response);
                done.unwrap_or_else(|| Err(Failed::Tell(504, text())))
            }
            () = leaving => Err(Failed::Reset(PumpError::Receive(io::ErrorKind::ConnectionAborted.into()))),
        }
    }

    /// Sends the request's body while the response is received. An origin may answer before it has read the body, and read
    /// on: the rest is sent too, as long as the client sends it and no pause is longer than `limits.response`.
    pub async fn both(
        &self,
        sending: impl Future<Output = Result<(), PumpError>>,
        reader: &mut Reader,
        from: &Connection,
        can_repeat: bool,
    ) -> Result<(Response, Sent), Failed> {
        let mut sending = pin!(sending);
        let mut sent = (!self.has_body()).then_some(Sent::All);
        let response = {
            let mut receiving = pin!(self.respond(reader, from, can_repeat));
            loop {
                tokio::select! {
                    ended = &mut sending, if sent.is_none() => sent = Some(match ended {
                        Ok(()) => Sent::All,
                        // The origin may have answered before it stopped listening.
                        Err(PumpError::Send(_)) => Sent::Broken,
                        Err(error) => return Err(Failed::Reset(error)),
                    }),
                    answered = &mut receiving => break answered?,
                }
            }
        };
        if let Some(sent) = sent {
            return Ok((response, sent));
        }
        // The end of the connection may be the end of the response, and a client that sees it may say no more.
        let sending = async {
            if !response.keeps_client {
                let _ = wire::say_end(self.client).await;
            }
            sending.await
        };
        let never = AtomicBool::new(false);
        let sent = tokio::select! {
            sent = while_moving(self.limits.response, &never, sending) => match sent {
                Some(Ok(())) => Sent::All,
                Some(Err(PumpError::Send(_))) => Sent::Broken,
                // The client has its response, and is not reset.
                Some(Err(_)) | None => Sent::Part,
            },
            () = reader.refusal(from) => Sent::Part,
        };
        Ok((response, sent))
    }

    /// Passes the response on, with the interim ones before it, and returns it. If the end of the connection is the end of the
    /// body, the caller must still end the client's.
    pub async fn respond(&self, reader: &mut Reader, from: &Connection, can_repeat: bool) -> Result<Response, Failed> {
        loop {
            let head = match response_head(reader, from, self.limits.http_head_size).await {
                Ok(Some(head)) => head,
                Ok(None) | Err(Failed::Reset(_)) if can_repeat && reader.buffer.is_empty() => {
                    return Err(Failed::Again);
                }
                Ok(None) => return Err(Failed::Lost(PumpError::Truncated)),
                Err(Failed::Reset(error)) => return Err(Failed::Lost(error)),
                Err(failed) => return Err(failed),
            };
            // RFC 9112 §9.6: who is about to close says so.
            let may_keep = !self.node.is_stopping();
            let response = parse_response(&head, self.limits.http_fields as usize, self.request, may_keep)
                .map_err(wrong_response)?;
            if response.is_interim {
                self.is_heard.store(true, Ordering::Relaxed);
                self.to_client().write(&response.head).await.map_err(Failed::Reset)?;
                continue;
            }
            self.answer(&response.head).await?;
            let chunked = Chunked::new(response.unchunk).without(&response.listed);
            let passed = reader.pass_body(response.body, chunked, from, self.to_client()).await;
            passed.map_err(|error| match error {
                PumpError::Send(_) | PumpError::Malformed(_) | PumpError::Expired(_) => Failed::Reset(error),
                PumpError::Receive(_) | PumpError::Truncated | PumpError::Reset(_) | PumpError::Protocol(_) => {
                    Failed::Lost(error)
                }
            })?;
            return Ok(response);
        }
    }
}

/// The answer to a client whose origin's connection broke.
pub fn gone(error: &PumpError) -> Failed {
    Failed::Tell(502, format!("the origin's connection broke: {error}"))
}
