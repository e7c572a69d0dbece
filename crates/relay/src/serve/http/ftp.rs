//! `ftp` URLs: the HTTP proxy fetches the file by FTP in passive mode, over the same routes as any other request.
//!
//! The end of the data connection does not prove that the transfer is complete: a server that dies ends its connections too.
//! So the last byte, or the last chunk, waits for the server's reply that the transfer is complete. Without that reply the
//! client is reset.

use std::sync::Arc;

use ekiden_relay_proto::Target;
use ekiden_relay_proto::ftp::{Replies, Reply, ReplyError, Word, command};
use ekiden_relay_proto::http::ftp::{Fetch, Form, Found};
use ekiden_relay_proto::http::{Body, Chunked, Request};
use ekiden_relay_proto::leg::{FrameKind, Header};
use ekiden_transport::Connection;
use socket2::SockRef;
use tokio::time::{Duration, timeout};

use super::exchange::Exchange;
use super::{Client, Failed, LINGER, Origin, Outcome, finish};
use crate::peer::Early;
use crate::reach::{Destination, Upstream, reach, reach_beside};
use crate::serve::failed::Asked;
use crate::serve::http::body::Reader;
use crate::shared::Node;
use crate::stream::{Expiry, Output, PumpError, closing};

/// The last chunk of a body, without a trailer (RFC 9112 §7.1).
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A control connection.
struct Control<'a> {
    node: &'a Arc<Node>,
    target: &'a Target,
    /// How long the server may take to call a transfer complete after the data has ended.
    completion_limit: Duration,
    upstream: Upstream,
    reader: Reader,
    replies: Replies,
}

impl Client<'_> {
    /// One request for an `ftp` URL and its response.
    pub(super) async fn fetch(&self, request: &Request, fetch: &Fetch) -> Result<Outcome, Failed> {
        let exchange = Exchange::new(self.node, request, &self.stream, &self.limits);
        let config = self.node.config();
        let to = self.destination(&config, &request.target);
        let fetching = async {
            let asked = Asked::new(self.caller.address(), "ftp", &request.target);
            let mut control = Control::open(self.node, to, self.limits.response, &asked).await?;
            let answered = control.answer(fetch, &exchange).await;
            if !matches!(answered, Err(Failed::Reset(_))) {
                control.quit();
            }
            if let Err(Failed::Tell(502, wrong)) = &answered {
                asked.log_answer(self.node, wrong);
            }
            answered
        };
        match exchange.attended(fetching).await {
            Err(Failed::Tell(_, text)) if exchange.has_begun() => {
                tracing::debug!("ftp to {}: {text}", request.target);
                Err(Failed::Reset(PumpError::Truncated))
            }
            Ok(true) => Ok(Outcome::Next(None)),
            Ok(false) => Ok(Outcome::Close),
            Err(failed) => Err(failed),
        }
    }
}

impl<'a> Control<'a> {
    async fn open(
        node: &'a Arc<Node>,
        to: Destination<'a>,
        completion_limit: Duration,
        asked: &Asked,
    ) -> Result<Self, Failed> {
        let upstream = reach(node, to, Early::Nothing).await;
        let upstream = upstream.map_err(|failure| {
            asked.log_failure(node, &failure);
            Failed::Tell(failure.code.http_status(), failure.text)
        })?;
        let reader = Reader::new(upstream.side.framing);
        Ok(Self { node, target: to.target, completion_limit, upstream, reader, replies: Replies::default() })
    }

    /// The whole dialogue without QUIT. Returns whether the client's connection can take another request.
    async fn answer(&mut self, fetch: &Fetch, exchange: &Exchange<'_>) -> Result<bool, Failed> {
        let request = exchange.request;
        self.log_in(fetch).await?;
        let mut found = match fetch.form {
            Form::Image | Form::Ascii => self.find_file(fetch, request.is_head).await?,
            Form::Listing | Form::Names => self.enter_directory(fetch).await?,
        };
        if request.is_head {
            exchange.answer(&found.head(request)).await?;
            return Ok(found.keeps_client(request));
        }
        // A third descriptor, besides the two that each client's connection is counted with.
        let Some(_counted) = self.node.one_more() else {
            return Err(Failed::Tell(503, format!("ftp {}: out of descriptors", self.target)));
        };
        let data = self.data_connection().await?;
        let verb = match fetch.form {
            Form::Image | Form::Ascii => "RETR",
            Form::Listing => "LIST",
            Form::Names => "NLST",
        };
        if found.offset > 0 && self.say("REST", Some(&found.offset.into())).await?.code != 350 {
            found.offset = 0;
        }
        // The listing follows a CWD: a name as an argument of LIST could be taken for options.
        let path = fetch.path.as_ref().filter(|_| verb == "RETR");
        let begun = self.say(verb, path).await?;
        if !begun.is_preliminary() && !begun.is_done() {
            return Err(self.refused(verb, &begun));
        }
        self.transfer(data, found, begun.is_done(), exchange).await
    }

    async fn log_in(&mut self, fetch: &Fetch) -> Result<(), Failed> {
        let greeting = self.last_reply().await?;
        if !greeting.is_done() {
            return Err(self.refused("the connection", &greeting));
        }
        let mut verb = "USER";
        let mut reply = self.say(verb, Some(&fetch.user)).await?;
        if reply.code == 331 {
            verb = "PASS";
            reply = self.say(verb, Some(&fetch.password)).await?;
        }
        match reply.code {
            200..300 => Ok(()),
            // 332 asks for an account as well. HTTP cannot carry one.
            332 | 530 => Err(self.failed(401, verb, &reply)),
            _ => Err(self.refused(verb, &reply)),
        }
    }

    /// The size and time of a file. The size is unknown in text mode, which changes line ends.
    async fn find_file(&mut self, fetch: &Fetch, is_head: bool) -> Result<Found, Failed> {
        let path = fetch.path.as_ref();
        let is_image = fetch.form == Form::Image;
        let verb = if is_image { "TYPE I" } else { "TYPE A" };
        let reply = self.say(verb, None).await?;
        if !reply.is_done() {
            return Err(self.refused(verb, &reply));
        }
        let mut found = Found { form: fetch.form, size: None, offset: 0, modified: None };
        if is_image {
            let reply = self.say("SIZE", path).await?;
            if is_head && reply.code == 550 {
                return Err(self.refused("SIZE", &reply));
            }
            found.size = reply.size();
        }
        found.modified = self.say("MDTM", path).await?.modified();
        if let Some(size) = found.size.filter(|_| fetch.offset > 0) {
            if fetch.offset >= size {
                let text = format!("ftp {}: the file has {size} bytes, none from {} on", self.target, fetch.offset);
                return Err(Failed::Tell(416, text));
            }
            found.offset = fetch.offset;
        }
        Ok(found)
    }

    async fn enter_directory(&mut self, fetch: &Fetch) -> Result<Found, Failed> {
        if fetch.path.is_some() {
            let reply = self.say("CWD", fetch.path.as_ref()).await?;
            if !reply.is_done() {
                return Err(self.refused("CWD", &reply));
            }
        }
        Ok(Found { form: fetch.form, size: None, offset: 0, modified: None })
    }

    /// Opens a connection for data to the host of the control connection. From the server's reply it takes only the port.
    async fn data_connection(&mut self) -> Result<Origin, Failed> {
        let (mut verb, mut reply) = ("EPSV", self.say("EPSV", None).await?);
        let mut port = reply.extended_port();
        if reply.code >= 500 {
            (verb, reply) = ("PASV", self.say("PASV", None).await?);
            port = reply.passive_port();
        }
        let Some(port) = port else { return Err(self.refused(verb, &reply)) };
        let generation = self.node.generation();
        let upstream = reach_beside(self.node, self.target, &self.upstream, port).await;
        let upstream = upstream.map_err(|failure| {
            let text = format!("ftp {}: no connection for data: {}", self.target, failure.text);
            Failed::Tell(failure.code.http_status(), text)
        })?;
        let reader = Reader::new(upstream.side.framing);
        Ok(Origin { target: Target { host: self.target.host.clone(), port }, upstream, reader, generation })
    }

    /// Passes what comes on `data` to the client. `is_complete` means that the server has called the transfer complete already.
    /// Returns what [`Control::answer`] returns.
    async fn transfer(
        &mut self,
        mut data: Origin,
        mut found: Found,
        is_complete: bool,
        exchange: &Exchange<'_>,
    ) -> Result<bool, Failed> {
        let (request, to) = (exchange.request, exchange.to_client());
        let Origin { upstream: Upstream { side, .. }, reader, .. } = &mut data;
        let from = &side.stream;
        // Read before the response begins, so that a failure up to here can still be reported.
        let has_data = reader.more(from).await.map_err(|error| self.broken(&error))?;
        if !has_data && found.size.is_none() {
            found.size = Some(0);
        }
        let body = found.body(request);
        let last = match body {
            Body::Length(0) if has_data => return Err(self.wrong_size(&found)),
            Body::Length(0) => found.head(request),
            _ if !has_data => {
                self.complete(is_complete).await?;
                return Err(self.wrong_size(&found));
            }
            _ => {
                exchange.answer(&found.head(request)).await?;
                match body {
                    Body::Length(length) => {
                        let passed = reader.pass_body(Body::Length(length - 1), Chunked::new(false), from, to).await;
                        passed.map_err(Failed::Reset)?;
                        while reader.buffer.is_empty() && reader.more(from).await.map_err(Failed::Reset)? {}
                        let last = std::mem::take(&mut reader.buffer);
                        if last.len() != 1 || reader.more(from).await.map_err(Failed::Reset)? {
                            return Err(self.wrong_size(&found));
                        }
                        last
                    }
                    Body::Chunked => {
                        pass_as_chunks(reader, from, to).await.map_err(Failed::Reset)?;
                        LAST_CHUNK.to_vec()
                    }
                    Body::UntilEnd => {
                        let passed = reader.pass_body(Body::UntilEnd, Chunked::new(false), from, to).await;
                        passed.map_err(Failed::Reset)?;
                        Vec::new()
                    }
                }
            }
        };
        self.complete(is_complete).await?;
        finish(self.node, Some(data));
        exchange.answer(&last).await?;
        Ok(found.keeps_client(request))
    }

    /// Waits until the server calls the transfer complete, if it has not.
    async fn complete(&mut self, is_complete: bool) -> Result<(), Failed> {
        if is_complete {
            return Ok(());
        }
        let complete = timeout(self.completion_limit, self.last_reply()).await;
        let silent = |_| Failed::Tell(504, format!("ftp {}: the server does not say it is complete", self.target));
        let reply = complete.map_err(silent)??;
        if reply.is_done() { Ok(()) } else { Err(self.refused("the transfer", &reply)) }
    }

    /// Sends a command and waits for its first reply.
    async fn say(&mut self, verb: &'static str, argument: Option<&Word>) -> Result<Reply, Failed> {
        let side = &self.upstream.side;
        let sent = side.output().write(&command(verb, argument)).await;
        sent.map_err(|error| self.broken(&error))?;
        self.reply().await
    }

    /// Waits for the last reply to a command. One preliminary reply may come before it.
    async fn last_reply(&mut self) -> Result<Reply, Failed> {
        let reply = self.reply().await?;
        if reply.is_preliminary() { self.reply().await } else { Ok(reply) }
    }

    async fn reply(&mut self) -> Result<Reply, Failed> {
        loop {
            let taken = self.replies.take(&mut self.reader.buffer);
            let taken =
                taken.map_err(|wrong: ReplyError| Failed::Tell(502, format!("ftp {}: {wrong}", self.target)))?;
            if let Some(reply) = taken {
                return Ok(reply);
            }
            let more = self.reader.more(&self.upstream.side.stream).await;
            if !more.map_err(|error| self.broken(&error))? {
                return Err(Failed::Tell(502, format!("ftp {}: the server closed the connection", self.target)));
            }
        }
    }

    /// The error that an unexpected reply means.
    fn refused(&self, what: &str, reply: &Reply) -> Failed {
        self.failed(if reply.code == 550 { 404 } else { 502 }, what, reply)
    }

    fn failed(&self, status: u16, what: &str, reply: &Reply) -> Failed {
        Failed::Tell(status, format!("ftp {}: {what}: {} {}", self.target, reply.code, reply.text))
    }

    fn wrong_size(&self, found: &Found) -> Failed {
        let size = found.size.unwrap_or_default();
        Failed::Tell(502, format!("ftp {}: the file has not the {size} bytes that SIZE says", self.target))
    }

    fn broken(&self, error: &PumpError) -> Failed {
        Failed::Tell(502, format!("ftp {}: the connection broke: {error}", self.target))
    }

    /// Sends QUIT and ends both directions, so that the connection to the next node may serve another stream. This goes on in a
    /// task of its own.
    fn quit(self) {
        let (node, Self { upstream, mut reader, .. }) = (self.node.clone(), self);
        tokio::spawn(async move {
            let side = &upstream.side;
            let left = async {
                side.output().write(&command("QUIT", None)).await?;
                let ended = if side.is_node() {
                    side.stream.send_all(&Header { kind: FrameKind::End, length: 0 }.encode()).await
                } else {
                    SockRef::from(side.stream.socket()).shutdown(std::net::Shutdown::Write)
                };
                ended.map_err(PumpError::Send)?;
                reader.said_end();
                while !reader.has_ended() && reader.more(&side.stream).await? {
                    reader.buffer.clear();
                }
                Ok::<(), PumpError>(())
            };
            if matches!(timeout(LINGER, left).await, Ok(Ok(()))) {
                let mut expiry = Expiry::new(&node.config().limits);
                let (side, afterwards) = upstream.apart(&node);
                if let Err((side, afterwards)) = closing::finish_now(side, afterwards, reader.is_delivered()) {
                    // Nobody needs the result.
                    let _ = closing::finish(side, afterwards, &mut expiry).await;
                }
            }
        });
    }
}

/// Passes all data on as chunks until it ends. The last chunk is left to the caller.
async fn pass_as_chunks(reader: &mut Reader, from: &Connection, to: Output<'_>) -> Result<(), PumpError> {
    loop {
        let data = std::mem::take(&mut reader.buffer);
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        chunk.extend(data);
        chunk.extend(b"\r\n");
        to.write(&chunk).await?;
        if !reader.more(from).await? {
            return Ok(());
        }
    }
}
